"""check_bundle lets one thing through: a signed, proved, gated bundle that is what it says it is."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError, RefusedError
from serving.bundle import bundle_sha256, check_bundle, open_bundle
from serving.signature import sign_folder

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


def test_a_signed_proved_gated_bundle_is_accepted_as_it_was_read(bundle: Path, keys: Keys) -> None:
    sign_folder(bundle, keys[0])
    checked = check_bundle(bundle, keys[1], library=True)
    assert checked.model == (bundle / "model.onnx").read_bytes()
    assert checked.is_signed
    assert checked.gates.passed
    assert checked.contract.workload == "redis"
    assert checked.certificate["verdict"] == "PROVED"
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


def test_what_was_not_proved_opens_without_a_certificate_and_is_never_accepted(
    bundle_writer: Callable[..., Path], tmp_path: Path, keys: Keys
) -> None:
    folder = bundle_writer(tmp_path / "refuted", status="REFUTED")
    (folder / "certificate.json").unlink()
    with pytest.raises(RefusedError, match="certificate must come with its leaves"):
        open_bundle(folder)
    (folder / "certificate.npz").unlink()
    opened = open_bundle(folder)
    assert not opened.gates.passed
    assert opened.certificate == {}
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
        "certificate's model_sha256 must be",
    ),
    "larger box": (
        lambda f: edit(f / "contract.json", specification__tolerance=0.5),
        "certificate's specification_sha256 must be",
    ),
    "another tolerance": (lambda f: edit(f / "certificate.json", tolerance=0.5), "certificate's tolerance"),
    "not proved": (
        lambda f: edit(f / "certificate.json", verdict="UNKNOWN"),
        "certificate's verdict must be",
    ),
    "no verdict": (lambda f: edit(f / "certificate.json", verdict=None), "certificate's verdict must be"),
    "other certificate format": (lambda f: edit(f / "certificate.json", format="x"), "certificate's format"),
    "other leaves": (
        lambda f: edit(f / "certificate.json", leaves_file="/etc/passwd"),
        "leaves_file must be",
    ),
    "gates lie": (lambda f: edit(f / "gates.json", gates=[]), "at least one gate"),
    "unknown file": (lambda f: (f / "notes.txt").write_text("hello"), r"unexpected notes\.txt"),
    "no evidence": (lambda f: (f / "evidence.json").unlink(), r"got no evidence\.json"),
    "broken contract": (lambda f: (f / "contract.json").write_text("{"), r"contract\.json must be a JSON"),
    "unknown contract key": (lambda f: edit(f / "contract.json", extra=1), "key must be a known one"),
    "key given twice": (
        lambda f: (f / "certificate.json").write_text('{"verdict":"REFUTED","verdict":"PROVED"}'),
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

    def checker(model: Path, contract: dict[str, Any], certificate: dict[str, Any], leaves: Path) -> Any:
        seen.extend([model, leaves])
        assert bundle not in model.parents
        assert model.read_bytes() == (bundle / "model.onnx").read_bytes()
        assert leaves.read_bytes() == (bundle / "certificate.npz").read_bytes()
        assert contract["model"]["sha256"] == certificate["model_sha256"]
        return SimpleNamespace(accepted=contract["seed"] == 7, reason="leaf 3 does not hold")

    check_bundle(bundle, keys[1], deep=True, checker=checker)
    assert len(seen) == 2
    assert not any(path.exists() for path in seen), "nothing is left behind"
    edit(bundle / "contract.json", seed=8)
    sign_folder(bundle, keys[0])
    check_bundle(bundle, keys[1])
    with pytest.raises(RefusedError, match="must prove its specification, got: leaf 3 does not hold"):
        check_bundle(bundle, keys[1], deep=True, checker=checker)


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
