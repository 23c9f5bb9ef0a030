"""check_bundle lets one thing through: a signed, proved, gated bundle that is what it says it is."""

import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError, RefusedError
from models.control.contract.guarantee import executed
from models.verification.closed_loop.answer import GuaranteeCheck
from serving.bundle import CHECK_SECONDS, bundle_sha256, check_bundle, open_bundle
from serving.promise import _specification
from serving.signature import sign_folder
from systems.autoscaling import acting
from tests.serving.conftest import made_up_proof, sealed, specification

Keys = tuple[Path, Path]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, bundle_writer: Callable[..., Path], keys: Keys) -> Path:
    folder = bundle_writer(tmp_path_factory.mktemp("shared") / "bundle")
    sign_folder(folder, keys[0])
    return folder


def edit(path: Path, **changes: Any) -> None:
    """Sets keys of a JSON file; a key with two underscores names a nested one."""
    data = json.loads(path.read_text())
    for name, value in changes.items():
        *parents, last = name.split("__")
        target = data
        for key in parents:
            target = target[key]
        target[last] = value
    path.write_text(json.dumps(data))


def edit_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def edit_input(folder: Path, number: int, **changes: Any) -> None:
    """Sets keys of one of the contract's inputs."""
    inputs = json.loads((folder / "contract.json").read_text())["inputs"]
    inputs[number] |= changes
    edit(folder / "contract.json", inputs=inputs)


def reseal(folder: Path, content: bytes | None = None, **changed: Any) -> None:
    """Another specification, which the contract names; the proof is the old one's."""
    contract = json.loads((folder / "contract.json").read_text())
    if content is None:
        content = yaml.safe_dump(specification(contract, **changed)).encode()
        contract = sealed(contract, content)
    contract["specification"]["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "specification.yaml").write_bytes(content)
    (folder / "contract.json").write_text(json.dumps(contract))


def reprove(folder: Path, **changed: Any) -> None:
    """A proof that says something else."""
    contract = json.loads((folder / "contract.json").read_text())
    (folder / "proof.npz").write_bytes(made_up_proof(contract, **changed))


def said_twice(proof: bytes) -> bytes:
    """The proof with a document whose verdict is UNKNOWN and then PROVED."""
    with np.load(io.BytesIO(proof)) as arrays:
        found = dict(arrays)
    document = found["document"].tobytes().replace(b'"verdict"', b'"verdict": "UNKNOWN", "verdict"')
    content = io.BytesIO()
    np.savez_compressed(content, **(found | {"document": np.frombuffer(document, np.uint8)}))
    return content.getvalue()


def with_two_documents(proof: bytes) -> bytes:
    """The proof with a second file of the name of its document."""
    content = io.BytesIO(proof)
    with zipfile.ZipFile(content, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("document.npy", archive.read("document.npy"))
    return content.getvalue()


def test_a_signed_proved_gated_bundle_is_accepted_as_it_was_read(bundle: Path, keys: Keys) -> None:
    sign_folder(bundle, keys[0])
    checked = check_bundle(bundle, keys[1], library=True)
    assert checked.model == (bundle / "model.onnx").read_bytes()
    assert checked.is_signed
    assert checked.gates.passed
    assert checked.contract.workload == "redis"
    assert checked.proof["verdict"] == "PROVED" and checked.leaves == 1
    assert checked.promise.specification.feature_names == checked.contract.input_names
    assert checked.evidence["metrics"]["test_mse"] == 1.0


def test_the_bundle_digest_names_the_content_and_not_the_signature(bundle: Path, keys: Keys) -> None:
    before = open_bundle(bundle).sha256
    sign_folder(bundle, keys[0])
    first = open_bundle(bundle)
    sign_folder(bundle, keys[0])
    assert before == first.sha256 == open_bundle(bundle).sha256
    changed = {**first.files, "evidence.json": b"{}"}
    assert bundle_sha256(changed) != before
    shell = "sha256sum $(ls | grep -v model.sig | LC_ALL=C sort) | sha256sum | cut -d' ' -f1"
    done = subprocess.run(["sh", "-c", shell], cwd=bundle, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == before


def test_an_unsigned_bundle_opens_but_is_refused_by_the_check(bundle: Path, keys: Keys) -> None:
    assert not open_bundle(bundle).is_signed
    with pytest.raises(RefusedError, match=r"must be signed, got no model\.sig.*did not let through"):
        check_bundle(bundle, keys[1])


def test_what_was_not_proved_opens_without_a_proof_and_is_never_accepted(
    bundle_writer: Callable[..., Path], tmp_path: Path, keys: Keys
) -> None:
    folder = bundle_writer(tmp_path / "refuted", status="REFUTED")
    (folder / "proof.npz").unlink()
    opened = open_bundle(folder)
    assert not opened.gates.passed
    assert opened.proof == {} and opened.leaves == 0
    sign_folder(folder, keys[0])
    with pytest.raises(RefusedError, match="gates must all hold, got specification: the verdict is REFUTED"):
        check_bundle(folder, keys[1])


# Each of these is signed with the right key: a signature alone does not make a bundle fit to serve.
WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "another model": (
        lambda f: (f / "model.onnx").write_bytes((f / "model.onnx").read_bytes() + b"\0"),
        "contract's model sha256 must be",
    ),
    "contract follows another model": (
        lambda f: [
            (f / "model.onnx").write_bytes(b"x"),
            edit(f / "contract.json", model__sha256=hashlib.sha256(b"x").hexdigest()),
        ],
        "proof's model_sha256 must be",
    ),
    "another specification": (
        lambda f: edit_text(f / "specification.yaml", "tolerance:\n  latency_ms: 0.0", "tolerance:\n  latency_ms: 9.0"),
        "contract's specification sha256 must be",
    ),
    "contract follows another specification": (
        lambda f: reseal(f, tolerance={"latency_ms": 9.0}), "proof's specification_sha256 must be"),
    "larger box in the contract": (
        lambda f: edit_input(f, 0, maximum=0.9), r"contract's box must be the specification's, .* got \[\(0.0, 0.9\)"),
    "another unit in the contract": (lambda f: edit_input(f, 0, unit="percent"), "contract's units must be"),
    "another name in the contract": (lambda f: edit_input(f, 0, name="psi"), "contract's inputs must be"),
    "values in the contract alone": (lambda f: edit_input(f, 2, values=[1, 8]), "contract's values must be"),
    "a group in the contract alone": (
        lambda f: edit(f / "contract.json", one_hot=[["psi_cpu_some", "psi_io_full"]]), "contract's one_hot must be"),
    "another sentence": (
        lambda f: edit(f / "contract.json", specification__statement="Always right."),
        "contract's statement must be the specification's",
    ),
    "specification is no YAML": (lambda f: reseal(f, b"a: [1"), "specification must be YAML"),
    "specification leaves the tolerance to its reader": (
        lambda f: reseal(f, b"features: [a]\n"), "specification of a bundle must give outputs, box, tolerance"),
    "not proved": (lambda f: reprove(f, verdict="UNKNOWN"), "proof's verdict must be"),
    "no verdict": (lambda f: reprove(f, verdict=None), "proof's verdict must be"),
    "other proof format": (lambda f: reprove(f, format="x"), "proof's format"),
    "another sentence in the proof": (lambda f: reprove(f, statement="Always right."), "proof's statement"),
    "proof without parts": (lambda f: reprove(f, parts=None), "proof must say its parts"),
    "proof with leaves that are no count": (
        lambda f: reprove(f, parts=[{"name": "monotone", "leaves": True}]), "proof must say its parts"),
    "proof of no leaves": (lambda f: reprove(f, parts=[{"name": "monotone", "leaves": 0}]), "proof must say its parts"),
    "proof that says a thing twice": (
        lambda f: (f / "proof.npz").write_bytes(said_twice((f / "proof.npz").read_bytes())),
        "proof's document must be a JSON object, got .*each thing once, key 'verdict'"),
    "proof with two documents": (
        lambda f: (f / "proof.npz").write_bytes(with_two_documents((f / "proof.npz").read_bytes())),
        r"proof must hold each file once, got document\.npy twice"),
    "evidence that says a thing twice": (
        lambda f: edit_text(f / "evidence.json", '"metrics": {', '"metrics": {"test_mse": 2.0,'), "key 'test_mse'"),
    "proof is no archive": (lambda f: (f / "proof.npz").write_bytes(b"PK"), "proof must be readable"),
    "gates lie": (lambda f: edit(f / "gates.json", gates=[]), "at least one gate"),
    "unknown file": (lambda f: (f / "notes.txt").write_text("hello"), r"unexpected notes\.txt"),
    "no evidence": (lambda f: (f / "evidence.json").unlink(), r"got no evidence\.json"),
    "broken contract": (lambda f: (f / "contract.json").write_text("{"), r"contract\.json must be a JSON"),
    "unknown contract key": (lambda f: edit(f / "contract.json", extra=1), "key must be a known one"),
    "key given twice": (
        lambda f: (f / "contract.json").write_text('{"format":"assay-bundle/2","format":"assay-bundle/1"}'),
        "given twice",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_bundle_that_contradicts_itself_is_refused_although_it_is_signed(
    bundle: Path, keys: Keys, change: Callable[[Path], object], message: str
) -> None:
    change(bundle)
    sign_folder(bundle, keys[0])
    with pytest.raises(RefusedError, match=message):
        check_bundle(bundle, keys[1])


def test_a_failed_gate_is_named(bundle_writer: Callable[..., Path], tmp_path: Path, keys: Keys) -> None:
    folder = bundle_writer(tmp_path / "slow", test_mse=1000.0)
    sign_folder(folder, keys[0])
    with pytest.raises(RefusedError, match="baseline_mse: test_mse 1000 <= 150 does not hold"):
        check_bundle(folder, keys[1])


def test_a_wrong_key_is_a_refusal_and_a_missing_folder_is_bad_input(
    bundle: Path, keys: Keys, other_keys: Keys
) -> None:
    sign_folder(bundle, keys[0])
    with pytest.raises(RefusedError, match=r"must be signed with other\.pub, got another key"):
        check_bundle(bundle, other_keys[1])
    with pytest.raises(InputError, match="must be a readable folder"):
        check_bundle(bundle / "absent", keys[1])


def test_the_deep_check_sees_the_checked_bytes_and_its_refusal_counts(bundle: Path, keys: Keys) -> None:
    sign_folder(bundle, keys[0])
    seen: list[Path] = []

    def checker(proof: Path, model: Path, specification: Path, seconds: float) -> Any:
        seen.extend([proof, model, specification])
        assert bundle not in model.parents and seconds == CHECK_SECONDS
        for path in (proof, model, specification):
            assert path.read_bytes() == (bundle / path.name).read_bytes()
        return SimpleNamespace(accepted=len(seen) == 3, reason="leaf 3 does not hold")

    check_bundle(bundle, keys[1], deep=True, checker=checker)
    assert len(seen) == 3
    assert not any(path.exists() for path in seen), "nothing is left behind"
    check_bundle(bundle, keys[1])
    with pytest.raises(RefusedError, match="must prove the specification, got: leaf 3 does not hold"):
        check_bundle(bundle, keys[1], deep=True, checker=checker)


def as_its_system_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A predictor's contract stands for a policy's here; what a policy's must say: test_own_interface.py."""
    monkeypatch.setattr("serving.own_interface.other_interface", lambda contract: "")


def guaranteed(folder: Path, keys: Keys, content: bytes | None = b"proof", module: str = "systems.autoscaling.acting",
               **changes: Any) -> None:
    """Signs the bundle with a guarantee of the closed loop; its box is all that the policy may be shown."""
    contract = json.loads((folder / "contract.json").read_text())
    for number, one in enumerate(contract["inputs"]):
        edit_input(folder, number, physical_minimum=one["minimum"], physical_maximum=one["maximum"])
    driving = {"acting": {"module": module, "sha256": "0" * 64}, "step_s": 15.0, "whole": [], "settings": {},
               "current": {one["name"]: contract["inputs"][0]["name"] for one in contract["outputs"]},
               "seen": {"margin": 1.0, "ranges": []}}
    entry = {"file": "guarantee.npz", "sha256": hashlib.sha256(b"proof").hexdigest(), "statement": "It holds."}
    edit(folder / "contract.json", guarantee=entry | changes, driving=driving)
    (folder / "guarantee.npz").unlink(missing_ok=True)
    if content is not None:
        (folder / "guarantee.npz").write_bytes(content)
    sign_folder(folder, keys[0])


def test_a_guarantee_of_the_closed_loop_is_proved_again_by_a_deep_check(bundle: Path, keys: Keys,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    as_its_system_is(monkeypatch)
    guaranteed(bundle, keys)
    answers, asked = [(True, "It holds.", ""), (False, "", "leaf 7"), (True, "It holds a little.", "")], []

    def check(*arguments: Any) -> GuaranteeCheck:
        asked.append(arguments)
        accepted, statement, reason = answers[len(asked) - 1]
        return GuaranteeCheck(accepted, reason, 1, statement)

    monkeypatch.setattr(acting, "check_guarantee", check)

    def deep() -> None:
        check_bundle(bundle, keys[1], deep=True, checker=lambda *_: SimpleNamespace(accepted=True, reason=""))

    deep()
    content, model, properties, settings, levels, seconds = asked[0]
    assert (content, model) == (b"proof", (bundle / "model.onnx").read_bytes()) and settings == levels == {}
    assert seconds == CHECK_SECONDS
    assert properties == executed(yaml.safe_load((bundle / "specification.yaml").read_text()), model)
    with pytest.raises(RefusedError, match="guarantee must be proved, got: leaf 7"):
        deep()
    with pytest.raises(RefusedError, match=r"contract's guarantee must be what is proved, .*'It holds a little\.'"):
        deep()
    check_bundle(bundle, keys[1])
    assert len(asked) == 3


def test_the_numbers_of_a_guarantee_are_those_that_are_proved(bundle: Path, keys: Keys,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    as_its_system_is(monkeypatch)
    monkeypatch.setattr(acting, "check_guarantee", lambda *_: GuaranteeCheck(
        True, "", 1, "It is at most 3 s.", "It is at most so much.", {"s": 3.0}))
    said = {"statement": "It is at most 3 s.", "about": "It is at most so much.", "at_most": {"s": 3.0}}

    def deep() -> None:
        check_bundle(bundle, keys[1], deep=True, checker=lambda *_: SimpleNamespace(accepted=True, reason=""))

    guaranteed(bundle, keys, **said)
    deep()
    for changes in ({"at_most": {"s": 2.0}}, {"at_most": {"ms": 3.0}}, {"about": "Of all."}):
        guaranteed(bundle, keys, **said | changes)
        with pytest.raises(RefusedError, match="contract's guarantee must be what is proved"):
            deep()
    guaranteed(bundle, keys, statement="It is at most 3 s.")
    with pytest.raises(RefusedError, match="contract's guarantee must be what is proved"):
        deep()


def test_a_guarantee_is_refused_where_the_box_is_narrower_than_what_the_policy_may_be_shown(
        bundle: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    as_its_system_is(monkeypatch)
    guaranteed(bundle, keys)
    monkeypatch.setattr(acting, "check_guarantee", lambda *_: GuaranteeCheck(True, statement="It holds."))

    def deep() -> None:
        sign_folder(bundle, keys[0])
        check_bundle(bundle, keys[1], deep=True, checker=lambda *_: SimpleNamespace(accepted=True, reason=""))

    deep()
    first = json.loads((bundle / "contract.json").read_text())["inputs"][0]
    for wider in ({"physical_maximum": first["maximum"] + 1.0}, {"physical_maximum": None}, {"physical_minimum": None}):
        edit_input(bundle, 0, **first | wider)
        with pytest.raises(RefusedError, match="guarantee must rest on what holds of all that may be observed: the "
                                               f"specification's box must cover .* of {first['name']}"):
            deep()
    edit_input(bundle, 0, physical_minimum=None, physical_maximum=None)
    target = json.loads((bundle / "contract.json").read_text())["outputs"][0]["name"]  # the first input is its present
    limits = {"minimum": first["minimum"], "maximum": first["maximum"], "most_down": 0.5, "most_up": 0.5}
    edit(bundle / "contract.json", fallback={"rule": "hpa-cpu", "settings": {}, "safe_ranges": {target: limits}})
    deep()
    edit(bundle / "contract.json", fallback__safe_ranges={target: limits | {"maximum": first["maximum"] + 1.0}})
    with pytest.raises(RefusedError, match=f"specification's box must cover .* of {first['name']}"):
        deep()


@pytest.mark.parametrize(("content", "changes", "reason"), [
    (None, {}, "guarantee.npz must come with a contract"), (b"another", {}, "guarantee sha256 must be"),
    (b"proof", {"file": "else.npz"}, "must name guarantee.npz"), (b"proof", {"statement": 1}, "must have texts"),
    (b"proof", {"more": ""}, "must have texts"), (b"proof", {"about": "It."}, "must have texts"),
    (b"proof", {"about": 1, "at_most": {"s": 1.0}}, "must have texts"),
    (b"proof", {"about": "It.", "at_most": {}}, "a number for each"),
    (b"proof", {"about": "It.", "at_most": {"s": "3"}}, "a number for each"),
    (b"proof", {"about": "It.", "at_most": [3.0]}, "a number for each")])
def test_a_guarantee_that_does_not_fit_its_contract_is_refused(bundle: Path, keys: Keys, content: bytes | None,
                                                               changes: dict[str, Any], reason: str) -> None:
    guaranteed(bundle, keys, content, **changes)
    with pytest.raises(RefusedError, match=reason):
        check_bundle(bundle, keys[1])


def test_a_guarantee_without_a_word_in_the_contract_and_of_an_unknown_law_is_refused(bundle: Path, keys: Keys) -> None:
    (bundle / "guarantee.npz").write_bytes(b"proof")
    sign_folder(bundle, keys[0])
    with pytest.raises(RefusedError, match=r"guarantee\.npz must come with a contract"):
        check_bundle(bundle, keys[1])
    for module in ("os", "systems.nothing.acting", "systems.autoscaling.observer", "my.systems.autoscaling.acting"):
        guaranteed(bundle, keys, module=module)
        with pytest.raises(RefusedError, match="comes with Assay"):
            check_bundle(bundle, keys[1], deep=True, checker=lambda *_: SimpleNamespace(accepted=True, reason=""))


@pytest.mark.parametrize(("fact", "value"), [("opset", 99), ("opset", 17), ("input", "rows"), ("output", "p99_ms")])
def test_a_deep_check_holds_what_the_contract_says_of_the_model_against_the_file(bundle: Path, keys: Keys, fact: str,
                                                                                  value: Any) -> None:
    edit(bundle / "contract.json", **{f"model__{fact}": value})
    sign_folder(bundle, keys[0])
    with pytest.raises(RefusedError, match=f"contract's model must be the file's, .*'opset': 18.*, got .*{value}"):
        check_bundle(bundle, keys[1], deep=True, checker=lambda *_: SimpleNamespace(accepted=True, reason=""))


@pytest.mark.parametrize(("module", "reason"), [
    ("systems.autoscaling.acting", "contract must say of a policy what its system does: acting must be installed"),
    ("systems.nothing.acting", "acting must be of a system that comes with Assay"), ("my_package.acting", "")])
def test_a_policy_is_held_to_its_system_without_a_guarantee_too(bundle: Path, keys: Keys, module: str,
                                                                reason: str) -> None:
    guaranteed(bundle, keys, module=module)
    contract = json.loads((bundle / "contract.json").read_text())
    safe = {one["name"]: {"minimum": 1.0, "maximum": 2.0, "most_down": 0.5, "most_up": 0.5}
            for one in contract["outputs"]}
    contract["fallback"] = {"rule": "mine", "settings": {}, "safe_ranges": safe}
    del contract["guarantee"]
    (bundle / "contract.json").write_text(json.dumps(contract))
    (bundle / "guarantee.npz").unlink()
    sign_folder(bundle, keys[0])

    def deep() -> None:
        check_bundle(bundle, keys[1], deep=True, checker=lambda *_: SimpleNamespace(accepted=True, reason=""))

    if reason:
        with pytest.raises(RefusedError, match=reason):
            deep()
    else:
        deep()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_in_any_file_goes_unnoticed(shared: Path, keys: Keys, data: st.DataObject) -> None:
    path = shared / data.draw(
        st.sampled_from([item.name for item in shared.iterdir() if item.name != "model.sig"])
    )
    original = path.read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    flip = data.draw(st.integers(1, 255))
    changed = bytearray(original)
    changed[position] ^= flip
    try:
        path.write_bytes(changed)
        with pytest.raises(RefusedError, match=f"as they were signed, got {re.escape(path.name)} changed"):
            check_bundle(shared, keys[1])
    finally:
        path.write_bytes(original)


def test_checking_a_bundle_imports_nothing_heavy() -> None:
    program = (
        "import sys, serving.bundle, serving.signature, serving.ledger, serving.session\n"
        "heavy = {'torch', 'mlflow', 'kfp', 'onnx', 'pandas', 'sklearn', 'model_signing', 'scipy', 'yaml'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_beside_a_controller_a_specification_of_a_person_s_form_is_refused_in_one_line(
    bundle: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What people write is read with pydantic, which the light install lacks; what export writes is read without."""
    sign_folder(bundle, keys[0])
    monkeypatch.setitem(sys.modules, "feature_store.written.model", None)
    _specification.cache_clear()
    with pytest.raises(RefusedError, match=r"specification: expected it as the export of a bundle writes it.*bundle"):
        check_bundle(bundle, keys[1])


def test_evidence_of_another_verdict_than_the_proofs_is_refused(bundle: Path, keys: Keys) -> None:
    edit(bundle / "evidence.json", verdict={"status": "REFUTED"})
    sign_folder(bundle, keys[0])
    with pytest.raises(RefusedError, match="evidence's verdict must be PROVED, got REFUTED"):
        check_bundle(bundle, keys[1])
