"""Opens and checks a bundle folder: what stands between a file on disk and a decision on a machine.

`open_bundle` parses the folder; `check_bundle` is the one gate that a controller's model passes:

    1. exactly the expected files, no links, each read once into memory
    2. model.sig is the given key's signature over exactly these bytes
    3. model.onnx has the SHA-256 that contract and certificate name, encoder.onnx (if any) the contract's
    4. the certificate says PROVED, for this contract's specification, boxes and tolerance
    5. gates.json: every gate passed
    6. deep: the independent checker accepts the certificate's leaves, and onnxruntime computes the network that it read
       (models/verification/bundle_check.py)

What was checked is what is used: `Bundle.model` holds the checked bytes, nothing is read again.
"""

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NewType, Protocol

from feature_store.errors import InputError, RefusedError
from feature_store.whole_files import whole_folder
from models.gate_report import GateReport
from models.gates import PROVED
from serving.canonical import parse_json
from serving.contract import ENCODER_FILE, MODEL_FILE, Contract, specification_sha256
from serving.signature import SIGNATURE_FILE, read_folder, verify_files, verify_with_library

CERTIFICATE_FORMAT = "assay-certificate/1"
LEAVES_FILE = "certificate.npz"
# A model that was not proved has no certificate; it can be opened and recorded, never served.
_PROOF_FILES = frozenset({"certificate.json", LEAVES_FILE})
_FILES = frozenset({MODEL_FILE, "contract.json", "evidence.json", "gates.json"})
# Files that a bundle may lack; the encoder belongs to a contract with an embedding.
_OPTIONAL = _PROOF_FILES | {ENCODER_FILE}


class CheckResult(Protocol):
    """What the independent checker answers."""

    @property
    def accepted(self) -> bool:
        """Whether every leaf holds."""

    @property
    def reason(self) -> str:
        """Why not."""


# check_exported(model_path, contract, certificate, leaves_path), models/verification/bundle_check.py
CertificateChecker = Callable[[Path, dict[str, Any], dict[str, Any], Path], CheckResult]


@dataclass(frozen=True)
class Bundle:
    """A bundle as it was read, once.

    Attributes:
        folder: where it was read from; for messages, not to be read again.
        files: content of every file by name, the signature among them where there is one.
        contract: parsed contract.json.
        certificate: parsed certificate.json, empty where the model was not proved.
        evidence: parsed evidence.json.
        gates: parsed gates.json.
        sha256: hex digest that names the bundle: over the names and digests of all files but the
            signature, which is different each time the same files are signed.
    """

    folder: Path
    files: Mapping[str, bytes] = field(repr=False)
    contract: Contract
    certificate: Mapping[str, Any]
    evidence: Mapping[str, Any] = field(repr=False)
    gates: GateReport
    sha256: str

    @property
    def model(self) -> bytes:
        """Content of model.onnx."""
        return self.files[MODEL_FILE]

    @property
    def is_signed(self) -> bool:
        """Whether there is a signature; whether it holds only `check_bundle` says."""
        return SIGNATURE_FILE in self.files


# What `check_bundle` let through. A predictor takes this type only, so that mypy sees a check left out.
CheckedBundle = NewType("CheckedBundle", Bundle)


def open_bundle(folder: Path) -> Bundle:
    """Reads and parses a bundle folder. Nothing is verified: see `check_bundle`.

    Raises:
        InputError: the folder cannot be read.
        RefusedError: a file is missing, unexpected or not plain, or does not parse.
    """
    return _parse(Path(folder), read_folder(Path(folder)))


def check_bundle(
    folder: Path,
    public_key_path: Path,
    *,
    deep: bool = False,
    library: bool = False,
    checker: CertificateChecker | None = None,
) -> CheckedBundle:
    """Opens a bundle and refuses it unless everything about it holds.

    Args:
        folder: the bundle.
        public_key_path: key that it must be signed with (PEM).
        deep: also re-check every leaf of the certificate (seconds instead of milliseconds).
        library: also verify the signature with the model-signing package, beside our own reading.
        checker: the independent checker to use with `deep`; None: the project's.

    Raises:
        RefusedError: with the reason.
        InputError: the folder or the key cannot be read.
    """
    folder = Path(folder)
    files = read_folder(folder)
    # Before anything is parsed: parsers see only what the key's owner wrote.
    verify_files(files, public_key_path, str(folder))
    if library:
        verify_with_library(folder, public_key_path)
    bundle = _parse(folder, files)
    check_content(bundle)
    if deep:
        check_leaves(bundle, checker)
    return CheckedBundle(bundle)


def check_content(bundle: Bundle) -> None:
    """Refuses a bundle whose own files say that it must not be promoted (steps 3 to 5).

    Raises:
        RefusedError: with the reason.
    """
    where = str(bundle.folder)
    failed = [gate for gate in bundle.gates.gates if not gate.passed]
    if failed:
        listed = "; ".join(f"{gate.name}: {gate.reason}" for gate in failed)
        raise RefusedError(f"gates must all hold, got {listed} ({where}, gates.json)")
    if not bundle.certificate:
        raise RefusedError(f"bundle must hold a certificate, got none ({where}); its model was not proved")
    digest = hashlib.sha256(bundle.model).hexdigest()
    embedding = bundle.contract.embedding
    encoder = None if embedding is None else hashlib.sha256(bundle.files[ENCODER_FILE]).hexdigest()
    expected = {
        "contract's encoder sha256": (None if embedding is None else embedding.sha256, encoder),
        "contract's model sha256": (bundle.contract.model.sha256, digest),
        "certificate's format": (bundle.certificate.get("format"), CERTIFICATE_FORMAT),
        "certificate's model_sha256": (bundle.certificate.get("model_sha256"), digest),
        "certificate's specification_sha256": (
            bundle.certificate.get("specification_sha256"),
            specification_sha256(bundle.contract),
        ),
        "certificate's verdict": (bundle.certificate.get("verdict"), PROVED),
        "certificate's tolerance": (
            bundle.certificate.get("tolerance"),
            bundle.contract.specification["tolerance"],
        ),
        "certificate's leaves_file": (bundle.certificate.get("leaves_file"), LEAVES_FILE),
    }
    for what, (value, required) in expected.items():
        if value != required:
            raise RefusedError(f"{what} must be {required}, got {value} ({where})")


def check_leaves(bundle: Bundle, checker: CertificateChecker | None = None) -> None:
    """Refuses a bundle whose certificate the independent checker does not accept (step 6).

    The checker gets the checked bytes in a fresh folder: those on disk may have changed since.

    Args:
        checker: None: the project's.

    Raises:
        RefusedError: with the checker's reason.
    """
    check = checker or _project_checker()
    with tempfile.TemporaryDirectory(prefix="assay-check-") as temporary:
        model_path, leaves_path = Path(temporary) / MODEL_FILE, Path(temporary) / LEAVES_FILE
        model_path.write_bytes(bundle.model)
        leaves_path.write_bytes(bundle.files[LEAVES_FILE])
        result = check(model_path, bundle.contract.to_json(), dict(bundle.certificate), leaves_path)
    if result.accepted is not True:
        raise RefusedError(
            f"certificate must prove its specification, got: {result.reason} ({bundle.folder})"
        )


def bundle_sha256(files: Mapping[str, bytes]) -> str:
    """Hex digest that names a bundle: SHA-256 over `<digest>  <name>` lines, the signature left out.

    The same as `sha256sum` of every file but model.sig, sorted by name, through `sha256sum` again.
    """
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)
             if name != SIGNATURE_FILE]  # fmt: skip
    return hashlib.sha256("".join(lines).encode("ascii")).hexdigest()


def write_folder(bundle: Bundle, destination: Path) -> None:
    """Writes a bundle's files to a new folder, all of them or none.

    Raises:
        InputError: the folder is there already.
    """
    if destination.exists():
        raise InputError(f"destination must be a new folder, got one that exists ({destination})")
    with whole_folder(destination, overwrite=False) as new:
        for name, data in bundle.files.items():
            (new / name).write_bytes(data)


def _parse(folder: Path, files: Mapping[str, bytes]) -> Bundle:
    unexpected = sorted(set(files) - _FILES - _OPTIONAL - {SIGNATURE_FILE})
    missing = sorted(_FILES - set(files))
    if unexpected or missing:
        problem = f"unexpected {', '.join(unexpected)}" if unexpected else f"no {', '.join(missing)}"
        raise RefusedError(f"bundle must hold exactly its files, got {problem} ({folder})")
    if _PROOF_FILES & set(files) and not set(files) >= _PROOF_FILES:
        raise RefusedError(f"certificate must come with its leaves, got one of the two ({folder})")
    try:
        contract = Contract.from_json(parse_json(files["contract.json"], f"{folder}/contract.json"))
        gates = GateReport.from_json(parse_json(files["gates.json"], f"{folder}/gates.json"))
    except InputError as error:
        # The caller's input is a folder; a bundle with a broken file in it is refused, not mistyped.
        raise RefusedError(f"{error} ({folder})") from error
    if (contract.embedding is not None) != (ENCODER_FILE in files):
        raise RefusedError(f"encoder must come with a contract that has an embedding, got one of the two ({folder})")
    certificate = {}
    if "certificate.json" in files:
        certificate = parse_json(files["certificate.json"], f"{folder}/certificate.json")
    evidence = parse_json(files["evidence.json"], f"{folder}/evidence.json")
    if not isinstance(evidence.get("metrics"), dict):
        raise RefusedError(f"evidence must hold metrics, got {sorted(evidence)} ({folder}/evidence.json)")
    return Bundle(
        folder=folder,
        files=dict(files),
        contract=contract,
        certificate=certificate,
        evidence=evidence,
        gates=gates,
        sha256=bundle_sha256(files),
    )


def _project_checker() -> CertificateChecker:
    # Only a deep check needs it, and it imports onnx.
    from models.verification.bundle_check import check_exported

    return check_exported
