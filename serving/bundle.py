"""Opens and checks a bundle folder: what stands between a file on disk and a decision on a machine.

`open_bundle` parses the folder; `check_bundle` is the one gate that a controller's model passes:

    1. exactly the expected files, no links, each read once into memory
    2. model.sig is the given key's signature over exactly these bytes
    3. model.onnx and specification.yaml have the SHA-256 that contract and proof name, encoder.onnx and guarantee.npz
       (if any) the contract's; the contract's inputs, outputs, units and boxes are the specification's
    4. the proof says PROVED, and in words what the contract says
    5. gates.json: every gate passed
    6. deep: the independent checker proves every leaf of the proof again, and onnxruntime computes the network that it
       read (models/verification/proof_file.py, as `assay check PROOF` does); of a contract with a guarantee of the
       closed loop, guarantee.npz proves that, and the sentence is what it proves

What was checked is what is used: `Bundle.model` holds the checked bytes, nothing is read again.
"""

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NewType, Protocol

from feature_store.errors import InputError, MissingToolError, RefusedError
from feature_store.strict_json import parse_json
from feature_store.whole_files import whole_folder
from models.gate_report import GateReport
from models.gates import PROVED
from models.verification.checker.archive import Rejected
from models.verification.proof_document import FORMAT as PROOF_FORMAT
from models.verification.proof_document import read_document
from serving.contract import ENCODER_FILE, MODEL_FILE, SPECIFICATION_FILE, Contract
from serving.driving_spec import DrivingSpec
from serving.guarantee_spec import GUARANTEE_FILE, GuaranteeSpec
from serving.promise import Promise, read_promise
from serving.signature import SIGNATURE_FILE, read_folder, verify_files, verify_with_library

if TYPE_CHECKING:  # it imports numpy alone, but only a deep check needs it
    from models.control.contract.guarantee import GuaranteeChecker

PROOF_FILE = "proof.npz"
_FILES = frozenset({MODEL_FILE, SPECIFICATION_FILE, "contract.json", "evidence.json", "gates.json"})
# Files that a bundle may lack: a model that was not proved has no proof, it can be opened and recorded, never served;
# the encoder belongs to a contract with an embedding, guarantee.npz to one with a guarantee.
_OPTIONAL = frozenset({PROOF_FILE, ENCODER_FILE, GUARANTEE_FILE})
CHECK_SECONDS = 600.0  # for every leaf of a proof


class CheckResult(Protocol):
    """What the independent checker answers."""

    @property
    def accepted(self) -> bool:
        """Whether every leaf holds."""

    @property
    def reason(self) -> str:
        """Why not."""


# check_proof(proof, model, specification, seconds), models/verification/proof_file.py
ProofChecker = Callable[[Path, Path, Path, float], CheckResult]


@dataclass(frozen=True)
class Bundle:
    """A bundle as it was read, once.

    Attributes:
        folder: where it was read from; for messages, not to be read again.
        files: content of every file by name, the signature among them where there is one.
        promise: parsed contract.json and specification.yaml.
        proof: the document in proof.npz, empty where the model was not proved.
        evidence: parsed evidence.json.
        gates: parsed gates.json.
        sha256: hex digest that names the bundle: over the names and digests of all files but the
            signature, which is different each time the same files are signed.
    """

    folder: Path
    files: Mapping[str, bytes] = field(repr=False)
    promise: Promise
    proof: Mapping[str, Any]
    evidence: Mapping[str, Any] = field(repr=False)
    gates: GateReport
    sha256: str

    @property
    def contract(self) -> Contract:
        """What goes in and what comes out."""
        return self.promise.contract

    @property
    def leaves(self) -> int:
        """Boxes of the proof; 0 where there is none."""
        return sum(part["leaves"] for part in self.proof.get("parts", ()))

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
    return parse_bundle(Path(folder), read_folder(Path(folder)))


def check_bundle(
    folder: Path,
    public_key_path: Path,
    *,
    deep: bool = False,
    library: bool = False,
    checker: ProofChecker | None = None,
) -> CheckedBundle:
    """Opens a bundle and refuses it unless everything about it holds.

    Args:
        folder: the bundle.
        public_key_path: key that it must be signed with (PEM).
        deep: also prove every leaf of the proof again (seconds instead of milliseconds).
        library: also verify the signature with the model-signing package, beside our own reading.
        checker: the independent checker to use with `deep`; None: the project's.

    Raises:
        RefusedError: with the reason.
        InputError: the folder or the key cannot be read.
        MissingToolError: `deep` needs a package that is not installed.
    """
    folder = Path(folder)
    files = read_folder(folder)
    # Before anything is parsed: parsers see only what the key's owner wrote.
    verify_files(files, public_key_path, str(folder))
    if library:
        verify_with_library(folder, public_key_path)
    bundle = parse_bundle(folder, files)
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
    if not bundle.proof:
        raise RefusedError(f"bundle must hold a proof, got none ({where}); its model was not proved")
    contract = bundle.contract
    model, specification = (hashlib.sha256(bundle.files[name]).hexdigest() for name in (MODEL_FILE, SPECIFICATION_FILE))
    embedding = contract.embedding
    encoder = None if embedding is None else hashlib.sha256(bundle.files[ENCODER_FILE]).hexdigest()
    loop = contract.guarantee
    expected = {
        "contract's encoder sha256": (None if embedding is None else embedding.sha256, encoder),
        "contract's guarantee sha256": (None if loop is None else loop.sha256, None if loop is None else
                                        hashlib.sha256(bundle.files[GUARANTEE_FILE]).hexdigest()),
        "contract's model sha256": (contract.model.sha256, model),
        "evidence's verdict": (_verdict(bundle.evidence), PROVED),
        "proof's format": (bundle.proof.get("format"), PROOF_FORMAT),
        "proof's model_sha256": (bundle.proof.get("model_sha256"), model),
        "proof's specification_sha256": (bundle.proof.get("specification_sha256"), specification),
        "proof's verdict": (bundle.proof.get("verdict"), PROVED),
        "proof's statement": (bundle.proof.get("statement"), contract.specification.statement),
    }
    for what, (value, required) in expected.items():
        if value != required:
            raise RefusedError(f"{what} must be {required}, got {value} ({where})")


def _verdict(evidence: Mapping[str, Any]) -> Any:
    """What the evidence says; PROVED where it says nothing of it, for the proof does."""
    verdict = evidence.get("verdict")
    return verdict.get("status", PROVED) if isinstance(verdict, Mapping) else PROVED


def check_leaves(bundle: Bundle, checker: ProofChecker | None = None) -> None:
    """Refuses a bundle whose proofs the independent checker does not accept (step 6).

    The checker gets the checked bytes in a fresh folder: those on disk may have changed since.

    Args:
        checker: None: the project's.

    Raises:
        RefusedError: with the checker's reason.
    """
    check = checker or _project_checker()
    with tempfile.TemporaryDirectory(prefix="assay-check-") as temporary:
        model, specification, proof = (Path(temporary) / name for name in (MODEL_FILE, SPECIFICATION_FILE, PROOF_FILE))
        for path in (model, specification, proof):
            path.write_bytes(bundle.files[path.name])
        try:
            result = check(proof, model, specification, CHECK_SECONDS)
            accepted, reason = result.accepted is True, result.reason
        except InputError as error:  # of a model or a specification that no proof can be about
            accepted, reason = False, str(error)
    if not accepted:
        raise RefusedError(f"proof must prove the specification, got: {reason} ({bundle.folder})")
    _check_facts(bundle)
    _check_policy(bundle)


def _check_facts(bundle: Bundle) -> None:
    """That the contract calls the model's input and output what the file does: by these names it is run."""
    from models.verification.model_facts import model_facts  # it imports onnx

    said = {name: getattr(bundle.contract.model, name) for name in ("opset", "input", "output")}
    try:
        facts = model_facts(bundle.model)
    except InputError as error:
        raise RefusedError(f"{error} ({bundle.folder}/{MODEL_FILE})") from error
    if facts != said:
        raise RefusedError(f"contract's model must be the file's, {facts}, got {said} ({bundle.folder}/contract.json)")


def _check_policy(bundle: Bundle) -> None:
    """Of a contract of a policy: that it says what its system does, and what is guaranteed of the closed loop."""
    guarantee, driving = bundle.contract.guarantee, bundle.contract.driving
    if guarantee is None and driving is None and bundle.contract.fallback is None:
        return
    # Only a deep check needs them, and they import onnx.
    from feature_store.strict_yaml import parse_yaml
    from models.control.contract.acting import comes_along, load_acting
    from serving.own_interface import bounds_for_all, other_interface

    module = "" if driving is None else driving.acting.module
    check = load_acting(module).check_guarantee if guarantee is not None and comes_along(module) else None
    if guarantee is not None and check is None:
        raise RefusedError("guarantee must be of a system that comes with Assay and has a law, got "
                           f"{module or 'none'} ({bundle.folder})")
    text = bundle.files[SPECIFICATION_FILE].decode("utf-8")
    specification = parse_yaml(text, "specification", f"{bundle.folder}/{SPECIFICATION_FILE}")
    if reason := other_interface(bundle.contract) or bounds_for_all(bundle.contract, specification):
        raise RefusedError(f"contract must say of a policy what its system does: {reason} "
                           f"({bundle.folder}/contract.json)")
    if guarantee is not None and check is not None and driving is not None:
        _check_guarantee(bundle, guarantee, driving, specification, check)


def _check_guarantee(bundle: Bundle, guarantee: GuaranteeSpec, driving: DrivingSpec, specification: Mapping[str, Any],
                     check: "GuaranteeChecker") -> None:
    from models.control.contract.guarantee import executed, held_live, narrower
    from serving.own_interface import shown_by, targets_of

    # what is beyond these no policy is shown, and a target beyond its safe range nobody sets
    shown, targets = shown_by(bundle.contract), targets_of(bundle.contract)
    present = {one.present: (one.low, one.high) for one in targets.values()}
    if reason := narrower(specification, shown, present, driving.settings):
        raise RefusedError(f"guarantee must rest on what holds of all that may be observed: {reason} "
                           f"({bundle.folder}/{SPECIFICATION_FILE})")
    proved_of_all = held_live(executed(specification, bundle.model), targets, shown)
    found = check(bundle.files[GUARANTEE_FILE], bundle.model, proved_of_all, driving.settings, driving.levels,
                  CHECK_SECONDS)
    if not found.accepted:
        raise RefusedError(f"guarantee must be proved, got: {found.reason} ({bundle.folder}/{GUARANTEE_FILE})")
    proved = replace(guarantee, statement=found.statement, about=found.about, at_most=dict(found.at_most))
    if guarantee != proved:
        raise RefusedError(f"contract's guarantee must be what is proved, {proved.to_json()}, got "
                           f"{guarantee.to_json()} ({bundle.folder})")


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


def parse_bundle(folder: Path, files: Mapping[str, bytes]) -> Bundle:
    """A bundle from its files as `read_folder` read them; `folder` is for messages. Raises RefusedError."""
    unexpected = sorted(set(files) - _FILES - _OPTIONAL - {SIGNATURE_FILE})
    missing = sorted(_FILES - set(files))
    if unexpected or missing:
        problem = f"unexpected {', '.join(unexpected)}" if unexpected else f"no {', '.join(missing)}"
        raise RefusedError(f"bundle must hold exactly its files, got {problem} ({folder})")
    try:
        contract = Contract.from_json(parse_json(files["contract.json"], f"{folder}/contract.json"))
        gates = GateReport.from_json(parse_json(files["gates.json"], f"{folder}/gates.json"))
    except InputError as error:
        # The caller's input is a folder; a bundle with a broken file in it is refused, not mistyped.
        raise RefusedError(f"{error} ({folder})") from error
    if (contract.embedding is not None) != (ENCODER_FILE in files):
        raise RefusedError(f"encoder must come with a contract that has an embedding, got one of the two ({folder})")
    if (contract.guarantee is not None) != (GUARANTEE_FILE in files):
        raise RefusedError(f"{GUARANTEE_FILE} must come with a contract that has a guarantee, got one of the two "
                           f"({folder})")
    promise = read_promise(contract, files[SPECIFICATION_FILE], str(folder))
    proof = _proof(files[PROOF_FILE], folder) if PROOF_FILE in files else {}
    evidence = parse_json(files["evidence.json"], f"{folder}/evidence.json")
    if not isinstance(evidence.get("metrics"), dict):
        raise RefusedError(f"evidence must hold metrics, got {sorted(evidence)} ({folder}/evidence.json)")
    return Bundle(
        folder=folder,
        files=dict(files),
        promise=promise,
        proof=proof,
        evidence=evidence,
        gates=gates,
        sha256=bundle_sha256(files),
    )


def _proof(content: bytes, folder: Path) -> dict[str, Any]:
    try:
        document = read_document(content)
    except Rejected as error:
        raise RefusedError(f"{error} ({folder}/{PROOF_FILE})") from error
    parts = document.get("parts")
    if not isinstance(parts, list) or not all(
            isinstance(part, dict) and type(part.get("leaves")) is int and part["leaves"] > 0 for part in parts):
        raise RefusedError(f"proof must say its parts and their leaves, got {parts!r:.80} ({folder}/{PROOF_FILE})")
    return document


def _project_checker() -> ProofChecker:
    """Raises MissingToolError: the light install has onnx as an extra."""
    # Only a deep check needs it, and it imports onnx.
    try:
        from models.verification.proof_file import check_proof
    except ModuleNotFoundError as error:
        raise MissingToolError(f"proofs are checked with the package `{error.name}`, which is not installed; install "
                               "it with `pip install 'assay-serving[proofs]'`") from error
    return check_proof
