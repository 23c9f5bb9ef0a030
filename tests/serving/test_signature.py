"""Two ways of verifying one signature, held against each other over valid and tampered folders.

The library (model-signing) is the format's reference; ours needs `cryptography` alone. Whatever the
library refuses, ours refuses. Where ours is stricter the test says so and why.
"""

import base64
import copy
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feature_store.errors import AssayError, InputError, RefusedError
from serving.keys import load_private_key, sign_payload
from serving.signature import SIGNATURE_FILE, read_folder, sign_folder, verify_files, verify_with_library

IN_TOTO = "application/vnd.in-toto+json"
Keys = tuple[Path, Path]


def light(folder: Path, public_key: Path) -> bool:
    try:
        verify_files(read_folder(folder), public_key, str(folder))
    except RefusedError:
        return False
    return True


def reference(folder: Path, public_key: Path) -> bool:
    try:
        verify_with_library(folder, public_key)
    except RefusedError:
        return False
    return True


@pytest.fixture
def signed(bundle: Path, keys: Keys) -> Path:
    sign_folder(bundle, keys[0])
    return bundle


def test_both_ways_and_the_command_accept_what_was_signed(signed: Path, keys: Keys) -> None:
    assert light(signed, keys[1])
    assert reference(signed, keys[1])
    command = [str(Path(sys.executable).with_name("model_signing")), "verify", "key", str(signed)]
    command += ["--signature", str(signed / SIGNATURE_FILE), "--public_key", str(keys[1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "Verification succeeded\n"), done.stderr


def test_a_folder_signed_by_the_command_is_accepted(bundle: Path, keys: Keys) -> None:
    command = [str(Path(sys.executable).with_name("model_signing")), "sign", "key", str(bundle)]
    command += ["--signature", str(bundle / SIGNATURE_FILE), "--private_key", str(keys[0])]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert light(bundle, keys[1])


def test_the_folder_may_be_moved_copied_and_signed_again(signed: Path, keys: Keys) -> None:
    moved = signed.rename(signed.with_name("elsewhere"))
    sign_folder(moved, keys[0])
    assert light(moved, keys[1])
    assert reference(moved, keys[1])
    assert sorted(path.name for path in moved.parent.iterdir()) == ["elsewhere"]


def test_a_link_to_the_folder_is_followed(signed: Path, keys: Keys) -> None:
    link = signed.with_name("current")
    link.symlink_to(signed)
    assert light(link, keys[1])
    assert reference(link, keys[1])


def edit_signature(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads((folder / SIGNATURE_FILE).read_text())
    change(data)
    (folder / SIGNATURE_FILE).write_text(json.dumps(data))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def swap_two(folder: Path) -> None:
    one, two = folder / "evidence.json", folder / "gates.json"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def payload_swapped(folder: Path) -> None:
    """The statement of the tampered content under the signature of the untampered."""
    flip(folder / "model.onnx")

    def change(data: dict[str, Any]) -> None:
        envelope = data["dsseEnvelope"]
        statement = json.loads(base64.b64decode(envelope["payload"]))
        for resource in statement["predicate"]["resources"]:
            content = (folder / resource["name"]).read_bytes()
            resource["digest"] = hashlib.sha256(content).hexdigest()
        envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()

    edit_signature(folder, change)


def set_in(*path: Any, value: Any) -> Callable[[Path], None]:
    def change(data: dict[str, Any]) -> None:
        target: Any = data
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return lambda folder: edit_signature(folder, change)


def replace_by_link(folder: Path) -> None:
    (folder / "model.onnx").rename(folder.parent / "model.onnx")
    (folder / "model.onnx").symlink_to(folder.parent / "model.onnx")


def write_signature(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / SIGNATURE_FILE).write_text(text)

    return write


FILES = ("contract.json", "evidence.json", "gates.json", "model.onnx", "proof.npz", "specification.yaml")
ENVELOPE = "dsseEnvelope"
TAMPERED: dict[str, Callable[[Path], object]] = {
    **{f"changed {name}": lambda folder, name=name: flip(folder / name) for name in FILES},
    **{f"emptied {name}": lambda folder, name=name: (folder / name).write_bytes(b"") for name in FILES},
    **{f"removed {name}": lambda folder, name=name: (folder / name).unlink() for name in FILES},
    "appended": lambda folder: append(folder / "model.onnx"),
    "added": lambda folder: (folder / "extra.json").write_text("{}"),
    "added with the name of a dependency": lambda folder: (folder / "onnx.py").write_text("import os"),
    "added in a folder": lambda folder: [(folder / "d").mkdir(), (folder / "d" / "x").write_text("")],
    "renamed": lambda folder: (folder / "gates.json").rename(folder / "gates2.json"),
    "other case": lambda folder: (folder / "gates.json").rename(folder / "Gates.json"),
    "two swapped": swap_two,
    "file replaced by a link to it": replace_by_link,
    "link added": lambda folder: (folder / "link").symlink_to(folder / "model.onnx"),
    "link to nowhere": lambda folder: (folder / "link").symlink_to("absent"),
    "link to a folder": lambda folder: (folder / "link").symlink_to("/etc"),
    "pipe added": lambda folder: os.mkfifo(folder / "pipe"),
    "no signature": lambda folder: (folder / SIGNATURE_FILE).unlink(),
    "empty signature": write_signature(""),
    "signature is null": write_signature("null"),
    "signature is a list": write_signature("[]"),
    "signature is {}": write_signature("{}"),
    "payload swapped": payload_swapped,
    "payload empty": set_in(ENVELOPE, "payload", value=""),
    "payload not base64": set_in(ENVELOPE, "payload", value="!!!"),
    "payload type": set_in(ENVELOPE, "payloadType", value="application/json"),
    "signature bytes empty": set_in(ENVELOPE, "signatures", 0, "sig", value=""),
    "signature of zeros": set_in(
        ENVELOPE, "signatures", 0, "sig", value=base64.b64encode(bytes(70)).decode()
    ),
    "r and s are zero": set_in(ENVELOPE, "signatures", 0, "sig", value="MAYCAQACAQA="),
    "no signatures": set_in(ENVELOPE, "signatures", value=[]),
    "unknown key in the signature file": set_in("extra", value=1),
    "media type": set_in("mediaType", value="application/json"),
    "hint of another key": set_in("verificationMaterial", "publicKey", "hint", value="0" * 64),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED.keys())
def test_both_ways_refuse_a_tampered_folder(
    signed: Path, keys: Keys, tamper: Callable[[Path], object]
) -> None:
    tamper(signed)
    assert not light(signed, keys[1])
    assert not reference(signed, keys[1])


@pytest.mark.parametrize("cut", [0, 1, 10, 100, -1, -2, -50])
def test_both_ways_refuse_a_truncated_signature(signed: Path, keys: Keys, cut: int) -> None:
    text = (signed / SIGNATURE_FILE).read_text()
    (signed / SIGNATURE_FILE).write_text(text[:cut])
    assert not light(signed, keys[1])
    assert not reference(signed, keys[1])


def test_both_ways_refuse_the_signature_of_another_key(signed: Path, other_keys: Keys, keys: Keys) -> None:
    assert not light(signed, other_keys[1])
    assert not reference(signed, other_keys[1])
    sign_folder(signed, other_keys[0])
    assert not light(signed, keys[1])
    assert not reference(signed, keys[1])
    # The hint is not signed: an attacker writes the one that is looked for.
    hint = hashlib.sha256(keys[1].read_bytes()).hexdigest()
    set_in("verificationMaterial", "publicKey", "hint", value=hint)(signed)
    assert not light(signed, keys[1])
    assert not reference(signed, keys[1])


def test_both_ways_refuse_the_signature_of_another_bundle(
    signed: Path, keys: Keys, bundle_writer: Callable[..., Path], tmp_path: Path
) -> None:
    other = bundle_writer(tmp_path / "other", workload="nginx")
    sign_folder(other, keys[0])
    (signed / SIGNATURE_FILE).write_bytes((other / SIGNATURE_FILE).read_bytes())
    assert not light(signed, keys[1])
    assert not reference(signed, keys[1])


STRICTER: dict[str, Callable[[Path], object]] = {
    # The library leaves these four out by default, so that anything could travel in them.
    ".gitignore added": lambda folder: (folder / ".gitignore").write_text("x"),
    ".git added": lambda folder: [(folder / ".git").mkdir(), (folder / ".git" / "hooks").write_text("x")],
    # The library looks at files only.
    "empty folder added": lambda folder: (folder / "d").mkdir(),
    # The library looks at the first signature only: another reader may look at the last.
    "second signature": lambda folder: edit_signature(
        folder, lambda data: data[ENVELOPE]["signatures"].append(data[ENVELOPE]["signatures"][0])
    ),
    # The library skips characters that are not base64: two files, one meaning.
    "junk in the base64": lambda folder: edit_signature(
        folder, lambda data: data[ENVELOPE].update(payload="\n " + data[ENVELOPE]["payload"])
    ),
    # The library warns on standard output and goes on.
    "no key hint": lambda folder: edit_signature(
        folder, lambda data: data["verificationMaterial"].update(publicKey={})
    ),
    # Python's parser takes the last of two; others take the first.
    "key given twice": lambda folder: (folder / SIGNATURE_FILE).write_text(
        '{"mediaType":"x",' + (folder / SIGNATURE_FILE).read_text()[1:]
    ),
}


@pytest.mark.parametrize("tamper", STRICTER.values(), ids=STRICTER.keys())
def test_ours_refuses_what_the_format_leaves_open(
    signed: Path, keys: Keys, tamper: Callable[[Path], object]
) -> None:
    tamper(signed)
    assert not light(signed, keys[1])


def signed_statement(folder: Path, keys: Keys, change: Callable[[dict[str, Any]], None]) -> None:
    """Signs a malformed statement with the right key, and keeps its root digest consistent."""

    def resign(data: dict[str, Any]) -> None:
        envelope = data[ENVELOPE]
        statement = json.loads(base64.b64decode(envelope["payload"]))
        change(statement)
        digests = [item.get("digest", "") for item in statement["predicate"]["resources"]]
        if all(len(digest) == 64 for digest in digests):
            root = hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()
            statement["subject"][0]["digest"]["sha256"] = root
        payload = json.dumps(statement).encode()
        envelope["payload"] = base64.b64encode(payload).decode()
        signature = sign_payload(load_private_key(keys[0]), IN_TOTO, payload)
        envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()

    edit_signature(folder, resign)


def resources(statement: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = statement["predicate"]["resources"]
    return found


STATEMENTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "path that leaves the folder": lambda s: resources(s)[0].update(name="../contract.json"),
    "absolute path": lambda s: resources(s)[0].update(name="/etc/passwd"),
    "same file through a dot": lambda s: resources(s)[0].update(name="./contract.json"),
    "file listed twice": lambda s: resources(s).append(copy.deepcopy(resources(s)[0])),
    "file left out": lambda s: resources(s).pop(),
    "nothing listed": lambda s: resources(s).clear(),
    "weaker hash": lambda s: resources(s)[0].update(algorithm="md5", digest="0" * 32),
    "upper-case digest": lambda s: resources(s)[0].update(digest=resources(s)[0]["digest"].upper()),
    "model ignored": lambda s: s["predicate"]["serialization"]["ignore_paths"].append("model.onnx"),
    "links allowed": lambda s: s["predicate"]["serialization"].update(allow_symlinks=True),
    "in shards": lambda s: s["predicate"]["serialization"].update(method="shards"),
    "older predicate": lambda s: s.update(predicateType="https://model_signing/Digests/v0.1"),
    "other statement type": lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"),
    "two subjects": lambda s: s["subject"].append(s["subject"][0]),
}


@pytest.mark.parametrize("change", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_a_malformed_statement_is_refused_even_with_a_valid_signature(
    signed: Path, keys: Keys, change: Callable[[dict[str, Any]], None]
) -> None:
    signed_statement(signed, keys, change)
    assert not light(signed, keys[1])


def test_the_root_digest_must_be_that_of_the_listed_files(signed: Path, keys: Keys) -> None:
    def resign(data: dict[str, Any]) -> None:
        statement = json.loads(base64.b64decode(data[ENVELOPE]["payload"]))
        statement["subject"][0]["digest"]["sha256"] = "0" * 64
        payload = json.dumps(statement).encode()
        signature = sign_payload(load_private_key(keys[0]), IN_TOTO, payload)
        data[ENVELOPE]["payload"] = base64.b64encode(payload).decode()
        data[ENVELOPE]["signatures"][0]["sig"] = base64.b64encode(signature).decode()

    edit_signature(signed, resign)
    assert not light(signed, keys[1])
    assert not reference(signed, keys[1])


def test_a_signature_over_the_same_bytes_of_another_type_is_refused(signed: Path, keys: Keys) -> None:
    """A ledger entry is signed with the same key: its signature must not open a bundle."""

    def resign(data: dict[str, Any]) -> None:
        payload = base64.b64decode(data[ENVELOPE]["payload"])
        signature = sign_payload(
            load_private_key(keys[0]), "application/vnd.assay.ledger-entry+json", payload
        )
        data[ENVELOPE]["signatures"][0]["sig"] = base64.b64encode(signature).decode()

    edit_signature(signed, resign)
    assert not light(signed, keys[1])
    assert not reference(signed, keys[1])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, bundle_writer: Callable[..., Path], keys: Keys) -> Path:
    folder = bundle_writer(tmp_path_factory.mktemp("shared") / "bundle")
    sign_folder(folder, keys[0])
    return folder


def between_tokens(document: bytes) -> list[int]:
    """Places of a JSON text at which white space means nothing."""
    inside, places = False, []
    for position, char in enumerate(document.decode("ascii")):
        if not inside and char in ",:{}[]":
            places.append(position)
        inside ^= char == '"'  # the signature file escapes none
    return places


def test_ours_is_never_more_lenient_than_the_library(shared: Path, keys: Keys) -> None:
    """One byte of the signature file anywhere replaced, removed or inserted; and white space where it means nothing,
    without which hardly any change would be one that ours accepts."""
    path = shared / SIGNATURE_FILE
    original, accepted = path.read_bytes(), list[bytes]()
    places = between_tokens(original)

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def attack(data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            position, byte = data.draw(st.sampled_from(places)), data.draw(st.sampled_from([b" ", b"\n", b"\t"]))
            changed = original[:position] + byte + original[position:]
        else:
            position = data.draw(st.integers(0, len(original) - 1))
            byte = data.draw(st.binary(min_size=1, max_size=1))
            kept = data.draw(st.sampled_from([byte, b"", byte + original[position : position + 1]]))
            changed = original[:position] + kept + original[position + 1 :]
        path.write_bytes(changed)
        if light(shared, keys[1]):
            accepted.append(changed)
            assert reference(shared, keys[1])

    try:
        attack()
    finally:
        path.write_bytes(original)
    assert len(set(accepted) - {original}) >= 10


def test_a_refusal_says_what_and_where(signed: Path, keys: Keys) -> None:
    (signed / "extra.json").write_text("{}")
    with pytest.raises(RefusedError, match=r"files: expected signed ones only, got extra.json unsigned \(/"):
        verify_files(read_folder(signed), keys[1], str(signed))
    (signed / "extra.json").unlink()
    flip(signed / "model.onnx")
    with pytest.raises(RefusedError, match=r"as they were signed, got model\.onnx changed"):
        verify_files(read_folder(signed), keys[1], str(signed))


def test_a_missing_folder_and_a_missing_key_are_bad_input_not_a_refusal(signed: Path, keys: Keys) -> None:
    with pytest.raises(InputError, match="must be a readable folder, got No such file"):
        read_folder(signed / "absent")
    with pytest.raises(InputError, match="must be a readable folder, got Not a directory"):
        read_folder(signed / "model.onnx")
    with pytest.raises(InputError, match="public key must be a readable file"):
        verify_files(read_folder(signed), signed / "absent.pub", "x")


@pytest.mark.parametrize(("names", "mebibytes", "message"), [
    (["model.onnx"], 300, "up to 256 MiB"), (["model.onnx", "more"], 130, "more must be .* up to 256 MiB"),
    ([f"file{number}" for number in range(33)], 0, "up to 32 files")], ids=["one", "together", "many"])
def test_files_that_would_fill_the_memory_are_refused(
        signed: Path, names: list[str], mebibytes: int, message: str) -> None:
    for name in names:
        with (signed / name).open("ab") as file:
            file.truncate(mebibytes * 2**20)  # sparse: takes no disk
    with pytest.raises(RefusedError, match=message):
        read_folder(signed)


def test_signing_refuses_what_a_signature_would_not_cover(bundle: Path, keys: Keys) -> None:
    (bundle / ".gitignore").write_text("x")
    with pytest.raises(AssayError, match="file name must be plain"):
        sign_folder(bundle, keys[0])
    assert not (bundle / SIGNATURE_FILE).exists()
