"""Decides what is signed: the one place where the project's key meets a bundle.

A signature says "the gates held and the proof is one". So whoever signs does not take the folder's word
for it: the gates are evaluated again on the evidence, with the thresholds of this project and against
the champion as the caller measured it, and the independent checker goes through the proof. What the champion
was measured at goes into the evidence, so that the gates can be evaluated once more when somebody promotes the version.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, RefusedError
from feature_store.whole_files import write_file
from models.configuration import Configuration
from models.gate_report import evaluate_gates
from models.paired_cases import checked_cases, measured_cases
from serving.bundle import (
    Bundle,
    ProofChecker,
    bundle_sha256,
    check_bundle,
    check_content,
    check_leaves,
    open_bundle,
    parse_bundle,
    write_folder,
)
from serving.contract import ENCODER_FILE, MODEL_FILE
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.signature import SIGNATURE_FILE, read_folder, sign_folder, verify_files

CHAMPION = "champion"  # in the evidence: the champion that the gates measured, null where there was none


def let_through(
    folder: Path,
    configuration: Configuration,
    champion: Mapping[str, Any] | None,
    checker: ProofChecker | None = None,
) -> Bundle:
    """Signs a bundle in place where every gate holds; opens it unsigned where gates.json says one failed.

    Makes the key pair where there is none yet, for the ledger records rejected bundles too.

    Args:
        folder: the bundle as the gate step left it.
        champion: {"version", "metrics", "cases"} that the gates measured, None where there was no champion.
        checker: independent checker of proofs; None: the project's.

    Raises:
        RefusedError: the gates or the proof say more than evidence and leaves bear, or the bundle
            contradicts itself. Nothing is signed.
        InputError: the folder or a key cannot be read.
    """
    _require_keys(configuration)
    bundle = open_bundle(folder)
    if not bundle.gates.passed:
        if bundle.is_signed:
            raise RefusedError(f"bundle must not be signed where a gate fails, got a signature ({folder})")
        return bundle
    bundle = _with_champion(bundle, champion)
    _sign_sound(bundle, configuration, champion, checker)
    return check_bundle(folder, configuration.public_key_path, library=True)


def sign_again(folder: Path, configuration: Configuration, sha256: str, checker: ProofChecker | None) -> bool:
    """Signs a registered bundle with the current key where no accepted one has signed it; changes model.sig alone.

    Args:
        sha256: the digest under which the ledger, which is verified, knows it as registered. That its gates held then
            is not taken from the ledger, for whoever had the key could write it.

    Returns:
        Whether it was signed.

    Raises:
        RefusedError: it is another bundle, its evidence does not bear the gates of mlflow.yaml, as it is now, or its
            proof proves nothing. Nothing is signed.
        InputError: the folder or a key cannot be read.
    """
    files = read_folder(folder)
    # Before anything is parsed, as a signature would be.
    if (actual := bundle_sha256(files)) != sha256:
        raise RefusedError(f"bundle must be {sha256} as the ledger says, got {actual} ({folder})")
    with contextlib.suppress(RefusedError):
        verify_files(files, configuration.public_key_path, str(folder))
        return False
    bundle = parse_bundle(folder, files)  # not read anew: what is signed is what has the digest
    _sign_sound(bundle, configuration, bundle.evidence.get(CHAMPION, {}), checker)
    check_bundle(folder, configuration.public_key_path)
    return True


def require_evidence(bundle: Bundle, configuration: Configuration, champion: Mapping[str, Any] | None) -> None:
    """Refuses a bundle whose gates.json says that its gates hold where its evidence does not bear it. Reads alone.

    Raises:
        RefusedError: a gate does not hold, or the paired cases contradict the metrics.
    """
    report = evaluate_gates(bundle.evidence, champion, configuration.gates[bundle.contract.task])
    if failed := [f"{gate.name}: {gate.reason}" for gate in report.gates if not gate.passed]:
        rule = "gates.json must say what the evidence bears"
        raise RefusedError(f"{rule}, got passed although {'; '.join(failed)} ({bundle.folder})")
    _refuse_contradictions(bundle, champion)


def _require_keys(configuration: Configuration) -> None:
    private = configuration.private_key_path
    if not private.exists() and Ledger(configuration.ledger_path, configuration.public_key_path).is_there():
        # A new key would refuse every entry and bundle so far: never make one silently.
        raise RefusedError(
            f"private key: expected one beside the ledger, got none ({private}); restore it from a backup"
        )
    create_key_pair(private, configuration.public_key_path)


def present_failures(bundle: Bundle, configuration: Configuration) -> tuple[str, ...]:
    """Which gates of mlflow.yaml, as it is now, the evidence of a bundle does not bear, with the reason of each."""
    champion = bundle.evidence.get(CHAMPION, {})  # not recorded: its gate fails
    report = evaluate_gates(bundle.evidence, champion, configuration.gates[bundle.contract.task])
    return tuple(f"{gate.name}: {gate.reason}" for gate in report.gates if not gate.passed)


def _refuse_contradictions(bundle: Bundle, champion: Mapping[str, Any] | None) -> None:
    """Paired cases decide about the champion: where there are any, they must bear the gates' metric."""
    evidence = bundle.evidence
    if "cases" not in evidence:
        return  # nothing is compared then, and nothing replaces a champion
    whose = "the bundle"
    try:
        checked_cases(evidence["cases"], evidence.get("metrics"), evidence.get("case_counts"))
        if isinstance(champion, Mapping) and "cases" in champion:
            whose = "the champion"
            measured_cases(champion, evidence)
    except InputError as error:
        raise RefusedError(f"the evidence of {whose} contradicts itself: {error} ({bundle.folder})") from error


def _with_champion(bundle: Bundle, champion: Mapping[str, Any] | None) -> Bundle:
    """The bundle, opened again with what it was compared with in its evidence.json."""
    if CHAMPION in bundle.evidence and bundle.evidence[CHAMPION] == champion:
        return bundle
    known = None if champion is None else dict(champion)
    # Beside the bundle until it is whole: a bundle holds exactly its files.
    write_file(bundle.folder / "evidence.json", json.dumps({**bundle.evidence, CHAMPION: known}, indent=1) + "\n",
               folder=bundle.folder.parent)
    return open_bundle(bundle.folder)


def _sign_sound(bundle: Bundle, configuration: Configuration, champion: Mapping[str, Any] | None,
                checker: ProofChecker | None) -> None:
    require_evidence(bundle, configuration, champion)
    check_content(bundle)
    _refuse_external_data(bundle)
    check_leaves(bundle, checker)
    _sign(bundle, configuration.private_key_path)


def _sign(bundle: Bundle, private_key_path: Path) -> None:
    """Signs the bytes that were checked, not what may lie in the folder by now."""
    with tempfile.TemporaryDirectory(dir=bundle.folder.parent, prefix=".admission-") as temporary:
        staged = Path(temporary) / bundle.folder.name
        unsigned = {name: data for name, data in bundle.files.items() if name != SIGNATURE_FILE}
        write_folder(replace(bundle, files=unsigned), staged)
        sign_folder(staged, private_key_path).replace(bundle.folder / SIGNATURE_FILE)


def _refuse_external_data(bundle: Bundle) -> None:
    """Weights in a file beside the model would be neither proved nor signed, and looked for anywhere."""
    import onnx  # only where something is signed: controllers do without it

    for name in (MODEL_FILE, ENCODER_FILE):
        if name not in bundle.files:
            continue
        model = onnx.load_model_from_string(bundle.files[name])
        if model.functions or any(tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data
                                  for tensor in _tensors(model.graph)):
            raise RefusedError(f"{name} must hold its weights, got external data or functions ({bundle.folder})")


def _tensors(graph: Any) -> Iterator[Any]:
    """Of an ONNX graph and of all graphs in its nodes."""
    yield from graph.initializer
    for sparse in (*graph.sparse_initializer, *(s for node in graph.node for a in node.attribute
                                                for s in (a.sparse_tensor, *a.sparse_tensors))):
        yield from (sparse.values, sparse.indices)
    for attribute in (a for node in graph.node for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            if inner.node or inner.initializer:
                yield from _tensors(inner)
