"""Proofs that anyone can check again, of bundles and of anybody's ONNX file: one format, one check.

`assay verify --certificate` and the export of a bundle write them, `assay check` checks them. A proof
(proof_document.py) is bound to the SHA-256 of the model and of the specification. It holds no claims of its own: what
must be proved is compiled from the specification's file again (claim.py, compile.py, shared with the search), the
network is read by checker/chain.py and bounded by checker/check.py, which share nothing with the search.

Symbols: n inputs, o outputs, R roots of a part, m leaves.
"""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain, read_chain
from models.verification.checker.check import LEAVES, leaf_bounds, leaf_boxes, leaf_margins
from models.verification.checker.time_limit import OutOfTime, time_limit
from models.verification.execution import Execution, execution_of
from models.verification.language.claim import Claim, Part, read_claim, require_readable
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import FloatArray
from models.verification.network.onnx_reader import model_bytes, read_onnx
from models.verification.network.runtime_agreement import chain_stages, require_agreement
from models.verification.obligations.compile import PairObligation, RelationObligation
from models.verification.obligations.slopes import Slopes
from models.verification.proof_document import (
    FORMAT,
    KEYS,
    PROVED,
    proof_bytes,
    read_document,
    read_trees,
    trees_digest,
)
from models.verification.search.search_result import Check
from models.verification.trees.decide_forest import forest_and_claim
from models.verification.trees.forest_check import execution_of_forest
from models.verification.trees.forest_query import ForestQuery
from models.verification.trees.forest_reader import has_forest
from models.verification.verdict import BoxTree

MOST_SHOWN = 500  # characters of what a proof says, in a refusal
ELEMENTS = 2**22  # numbers of one kind of the leaves that are checked at a time, 32 MB
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ProofCheck:
    """accepted, the reason if not; what was proved, in words; number of parts and of leaves; what execution adds.

    model_sha256, specification_sha256: of the files that it is about; counted: name and leaves of each part.
    """

    accepted: bool
    reason: str
    statement: str = ""
    parts: int = 0
    leaves: int = 0
    execution: str = ""
    model_sha256: str = ""
    specification_sha256: str = ""
    counted: tuple[dict[str, Any], ...] = ()


def checkable(model: Path) -> Chain:
    """The network as the checker reads it. Raises InputError where no proof about it can be checked."""
    try:
        return read_chain(model_bytes(model), curves=True)
    except Rejected as error:
        raise InputError(f"certificate is not to be had for this network: {error}") from error
    except Exception as error:  # the reader of the search has accepted the file
        raise InputError(f"certificate is not to be had for this network: {type(error).__name__}: {error}") from error


def part_check(chain: Chain, part: Part) -> Check:
    """The checker's judgement of boxes of this part. Raises InputError for a part that is counted, not proved."""
    match part.obligation:
        case Slopes() as slopes:
            return partial(_slopes, chain, slopes)
        case UnsafeSet() as unsafe:
            return partial(_unsafe, chain, unsafe)
        case RelationObligation() as relation:
            return partial(_unsafe, chain, relation.unsafe)
        case PairObligation() as pair:
            return partial(_unsafe, chain.step(pair.feature, pair.output, pair.low, pair.high), pair.unsafe)
        case _:
            raise InputError(f"certificate must be about properties that are proved, got {part.name}: it is counted")


def _slopes(chain: Chain, slopes: Slopes, lower: FloatArray, upper: FloatArray,
            root: Numbers) -> tuple[Mask, FloatArray]:
    holds, margin = np.full(len(lower), True), np.full(len(lower), np.inf)
    for output in range(slopes.rows.shape[1]):
        row, chosen = chain.row(output), np.flatnonzero(slopes.rows[:, output])
        if len(chosen):
            queries = [(slopes.features[f], int(slopes.rows[f, output])) for f in chosen]
            bounds = leaf_bounds(row.weights, row.biases, lower, upper, queries, kinds=row.kinds,
                                 enough=-slopes.allowed[chosen])
            holds &= (bounds >= -slopes.allowed[chosen]).all(axis=1)
            margin = np.fmin(margin, (bounds + slopes.allowed[chosen]).min(axis=1))
    return holds, margin


def _unsafe(chain: Chain, unsafe: UnsafeSet, lower: FloatArray, upper: FloatArray,
            root: Numbers) -> tuple[Mask, FloatArray]:
    """A box is safe if at every point one constraint of each alternative is below zero; of outputs, or inputs too."""
    coefficients, constants, outputs = -unsafe.coefficients[root], -unsafe.constants[root], len(chain.biases[-1])
    bounds = leaf_margins(chain.weights, chain.biases, lower, upper, coefficients[..., :outputs], constants,
                          kinds=chain.kinds,
                          on_inputs=coefficients[..., outputs:] if coefficients.shape[-1] > outputs else None)
    margin = np.nan_to_num(bounds, nan=-np.inf).min(axis=1)
    return margin > 0, margin


@dataclass(frozen=True)
class _Question:
    """What must be proved of a file, read from the files alone.

    check: of a part, how boxes of it are judged; execution: what executing the file adds.
    """

    file: bytes
    specification: bytes
    claim: Claim
    check: Callable[[Part], Check]
    execution: Callable[[], Execution]


def write_proof(path: Path, model: Path, specification: Path, trees: Sequence[BoxTree],
                seconds: float = math.inf) -> ProofCheck:
    """Checks the trees of a property's parts, as `check_proof` does, and writes the proof if it is accepted.

    The file appears whole. Raises InputError where it cannot be written, and as `check_proof` does.
    """
    with time_limit(seconds):
        checked = _judged(_question(model, specification, seconds), trees)
    if not checked.accepted:
        return checked
    document = {"format": FORMAT, "verdict": PROVED, "model_sha256": checked.model_sha256,
                "specification_sha256": checked.specification_sha256, "statement": checked.statement,
                "execution": checked.execution, "parts": list(checked.counted), "trees_sha256": trees_digest(trees)}
    content = proof_bytes(document, trees)
    if read_document(content) != document or trees_digest(read_trees(content, len(trees))) != trees_digest(trees):
        return replace(checked, accepted=False, reason="proof must be stored as it was made")
    try:
        write_file(path, content)
    except OSError as error:
        raise InputError(f"certificate must be writable, got {error.strerror} ({path})") from error
    return checked


def check_proof(proof: Path, model: Path, specification: Path, seconds: float = math.inf) -> ProofCheck:
    """Proves every leaf again, in time linear in their number. Never raises on a bad proof: refuses.

    A proof that is not checked within `seconds` is refused, too. Raises InputError where the model or the specification
    cannot be read, or no proof can be about them.
    """
    with time_limit(seconds):
        question = _question(model, specification, seconds)
        return _checked(proof, model, specification, question)


def _checked(proof: Path, model: Path, specification: Path, question: _Question) -> ProofCheck:
    statement = question.claim.statement
    try:
        content = proof.read_bytes()
        document = read_document(content)
        if set(document) != set(KEYS):
            raise Rejected(f"document must hold {', '.join(KEYS)}, got {', '.join(sorted(document))[:MOST_SHOWN]}")
        for name, path, own in (("model", model, question.file), ("specification", specification,
                                                                  question.specification)):
            if document[f"{name}_sha256"] != _digest(own):
                raise Rejected(f"{name} must be the file that the proof is about, its SHA-256 differs ({path})")
        trees = read_trees(content, len(document["parts"]))
        if document["trees_sha256"] != trees_digest(trees):
            raise Rejected("trees must be the ones that were proved, their SHA-256 differs")
        checked = _judged(question, trees)
        if not checked.accepted:
            return checked
        facts = {"format": FORMAT, "verdict": PROVED, "statement": statement, "execution": checked.execution}
        for key, fact in facts.items():
            if document[key] != fact:
                raise Rejected(f"{key} must be {fact!r}, got {document[key]!r:.{MOST_SHOWN}}")
        if document["parts"] != list(checked.counted):
            raise Rejected(f"parts must be named and their leaves be counted right, got "
                           f"{str(document['parts'])[:MOST_SHOWN]}")
    except Rejected as error:
        return ProofCheck(False, str(error), statement)
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        return ProofCheck(False, f"proof must be readable, got {type(error).__name__}: {error}", statement)
    return checked


def _question(model: Path, specification: Path, seconds: float) -> _Question:
    """Raises InputError where the files cannot be read, or onnxruntime computes something else than was read."""
    require_readable(model, specification)
    try:
        file, text = model_bytes(model), specification.read_bytes()
        if has_forest(file):
            forest, claim = forest_and_claim(file, specification, seconds, str(model))
            return _Question(file, text, claim, lambda part: ForestQuery.of_part(forest, part).check,
                             partial(execution_of_forest, forest, claim))
        return _of_network(model, specification, seconds, file, text)
    except OutOfTime:
        raise InputError("model and property must be read within the time limit, got no further in "
                         f"{seconds:.3g} s ({model})") from None


def _of_network(model: Path, specification: Path, seconds: float, file: bytes, text: bytes) -> _Question:
    began = time.monotonic()
    network = read_onnx(model, seconds)
    claim = read_claim(specification, network.graph, network.number, seconds - (time.monotonic() - began))
    chain = checkable(model)
    uncompared = require_agreement(file, network.sha256, chain_stages(chain.weights, chain.biases, chain.kinds),
                                   claim.fed, str(model), chain.executed)
    return _Question(file, text, claim, partial(part_check, chain),
                     partial(execution_of, file, network.graph, claim, uncompared))


def _judged(question: _Question, trees: Sequence[BoxTree]) -> ProofCheck:
    """Whether these trees, one for each part of the property, prove it. `decide` says PROVED only where this does."""
    claim = question.claim
    try:
        added = question.execution()
        if added.objection:
            raise Rejected(added.objection)
        if len(trees) != len(claim.parts):
            raise Rejected(f"parts must be {', '.join(part.name for part in claim.parts)}, got {len(trees)} trees")
        leaves = [_prove(part, question.check(part), tree) for part, tree in zip(claim.parts, trees, strict=True)]
    except Rejected as error:
        return ProofCheck(False, str(error), claim.statement)
    except OutOfTime:
        return ProofCheck(False, "proof must be checked within the time limit, got no further", claim.statement)
    except Exception as error:  # a malformed tree of any kind is a refusal, not a crash
        return ProofCheck(False, f"proof must be readable, got {type(error).__name__}: {error}", claim.statement)
    counted = tuple({"name": part.name, "leaves": count} for part, count in zip(claim.parts, leaves, strict=True))
    return ProofCheck(True, "", claim.statement, len(leaves), sum(leaves), added.sentence, _digest(question.file),
                      _digest(question.specification), counted)


def _prove(part: Part, check: Check, tree: BoxTree) -> int:
    lower, upper = part.proved
    unsafe = getattr(part.obligation, "unsafe", part.obligation)
    numbers = max(lower.shape[1], unsafe.coefficients[0].size if isinstance(unsafe, UnsafeSet) else 1)
    count, failed, worst = 0, 0, math.inf
    try:
        for boxes in leaf_boxes(tree.split_dimension, tree.split_value, lower, upper,
                                int(np.clip(ELEMENTS // numbers, 1, LEAVES))):
            holds, margin = check(*boxes)
            count, failed = count + len(holds), failed + int(np.count_nonzero(~holds))
            worst = min(worst, float(margin.min()))
    except OutOfTime:
        raise Rejected(f"proof must be checked within the time limit, got to {count} of "
                       f"{np.count_nonzero(tree.split_dimension == -1)} leaves ({part.name})") from None
    if failed:
        raise Rejected(f"every leaf must be proved, {failed} of {count} are not, the worst is {-worst:g} short "
                       f"({part.name})")
    return count


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
