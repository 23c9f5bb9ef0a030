"""A proof about anybody's ONNX file, in one file: `assay verify --certificate` writes it, `assay check` checks it.

The file is a NumPy archive: `document`, JSON in UTF-8, and for part k of the property the split trees of its boxes,
one after the other in preorder: `dimension_k`, `value_k` (m,), as in a bundle's certificate. It is bound to the SHA-256
of the model and of the specification. It holds no claims of its own: what must be proved is compiled from the
specification's file again (compile.py, vnnlib.py, shared with the search), the network is read by checker_chain.py and
bounded by checker.py, which share nothing with the search.

Symbols: n inputs, o outputs, R roots of a part, m leaves.
"""

import hashlib
import io
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from feature_store.whole_files import new_beside
from models.verification.checker.archive import Rejected, require_limited
from models.verification.checker.chain import Chain, read_chain
from models.verification.checker.check import leaf_bounds, leaf_boxes, leaf_margins
from models.verification.execution import execution_of
from models.verification.language.claim import Part, read_claim, require_readable
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import FloatArray
from models.verification.network.onnx_reader import read_onnx
from models.verification.network.runtime_agreement import chain_stages, require_agreement
from models.verification.obligations.compile import PairObligation, RelationObligation
from models.verification.obligations.slopes import Slopes
from models.verification.search.search_result import Check
from models.verification.verdict import BoxTree

FORMAT = "assay-proof/1"
MOST_SPLITS = 4_000_000  # proofs of two minutes' search have some 100,000 boxes
LEAVES = 4096  # checked between two looks at the clock
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ProofCheck:
    """accepted, the reason if not; what was proved, in words; number of parts and of leaves; what execution adds."""

    accepted: bool
    reason: str
    statement: str = ""
    parts: int = 0
    leaves: int = 0
    execution: str = ""


def checkable(model: Path) -> Chain:
    """The network as the checker reads it. Raises InputError where no proof about it can be checked."""
    try:
        return read_chain(model.read_bytes())
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
            bounds = leaf_bounds(row.weights, row.biases, lower, upper, queries, relus=row.relus,
                                 enough=-slopes.allowed[chosen])
            holds &= (bounds >= -slopes.allowed[chosen]).all(axis=1)
            margin = np.fmin(margin, (bounds + slopes.allowed[chosen]).min(axis=1))
    return holds, margin


def _unsafe(chain: Chain, unsafe: UnsafeSet, lower: FloatArray, upper: FloatArray,
            root: Numbers) -> tuple[Mask, FloatArray]:
    """A box is safe if of every alternative one constraint stays below zero; of outputs, or of outputs and inputs."""
    coefficients, constants = -unsafe.coefficients[root], -unsafe.constants[root]
    count, alternatives, rows = constants.shape
    coefficients, outputs = coefficients.reshape(count, alternatives * rows, -1), len(chain.biases[-1])
    bounds = leaf_margins(chain.weights, chain.biases, lower, upper, coefficients[..., :outputs],
                          constants.reshape(count, -1), relus=chain.relus,
                          on_inputs=coefficients[..., outputs:] if coefficients.shape[-1] > outputs else None)
    margin = np.nan_to_num(bounds, nan=-np.inf).reshape(count, alternatives, rows).max(axis=2).min(axis=1)
    return margin > 0, margin


def write_proof(path: Path, model: Path, specification: Path, statement: str, execution: str,
                trees: Sequence[tuple[str, BoxTree]]) -> ProofCheck:
    """Writes the proof under a temporary name, checks it, and renames it; of a refused one nothing stays.

    Raises InputError where the file cannot be written.
    """
    document = {"format": FORMAT, "verdict": "PROVED", "model_sha256": _digest(model),
                "specification_sha256": _digest(specification), "statement": statement, "execution": execution,
                "parts": [{"name": name, "leaves": tree.leaves} for name, tree in trees]}
    arrays: dict[str, NDArray[Any]] = {"document": np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)}
    for k, tree in enumerate(tree for _, tree in trees):
        arrays |= {f"dimension_{k}": tree.split_dimension, f"value_{k}": tree.split_value}
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    try:
        temporary = new_beside(path)
        try:
            temporary.write_bytes(file.getvalue())
            checked = check_proof(temporary, model, specification)
            if checked.accepted:
                temporary.replace(path)
            return checked
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"certificate must be writable, got {error.strerror} ({path})") from error


def check_proof(proof: Path, model: Path, specification: Path, seconds: float = math.inf) -> ProofCheck:
    """Proves every leaf again, in time linear in their number. Never raises on a bad proof: refuses.

    A proof that is not checked within `seconds` is refused, too. Raises InputError where the model or the specification
    cannot be read.
    """
    deadline = time.monotonic() + seconds
    require_readable(model, specification)
    network = read_onnx(model, seconds)
    claim = read_claim(specification, network.graph, network.number, deadline - time.monotonic())
    chain = checkable(model)
    file, stages = model.read_bytes(), chain_stages(chain.weights, chain.biases, chain.relus)
    require_agreement(file, network.sha256, stages, claim.parts, str(model), chain.executed)
    try:
        document, trees = _read(proof)
        for name, path in (("model", model), ("specification", specification)):
            if document[f"{name}_sha256"] != _digest(path):
                raise Rejected(f"{name} must be the file that the proof is about, its SHA-256 differs ({path})")
        added = execution_of(file, network.graph, claim)
        if added.objection:
            raise Rejected(added.objection)
        facts = {"format": FORMAT, "verdict": "PROVED", "statement": claim.statement, "execution": added.sentence}
        for key, fact in facts.items():
            if document[key] != fact:
                raise Rejected(f"{key} must be {fact!r}, got {document[key]!r}")
        if [part["name"] for part in document["parts"]] != [part.name for part in claim.parts]:
            raise Rejected(f"parts must be {', '.join(part.name for part in claim.parts)}")
        leaves = [_prove(part, part_check(chain, part), tree, deadline)
                  for part, tree in zip(claim.parts, trees, strict=True)]
        if leaves != [part["leaves"] for part in document["parts"]]:
            raise Rejected(f"leaves must be counted right, got {document['parts']}")
    except Rejected as error:
        return ProofCheck(False, str(error), claim.statement)
    except InputError:
        raise
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        return ProofCheck(False, f"proof must be readable, got {type(error).__name__}: {error}", claim.statement)
    return ProofCheck(True, "", claim.statement, len(leaves), sum(leaves), added.sentence)


def _prove(part: Part, check: Check, tree: BoxTree, deadline: float) -> int:
    boxes: tuple[NDArray[Any], ...] = leaf_boxes(tree.split_dimension, tree.split_value, *part.proved)
    checked = []
    for first in range(0, len(boxes[0]), LEAVES):
        if time.monotonic() > deadline:
            raise Rejected(f"proof must be checked within the time limit, got to {first} of {len(boxes[0])} leaves "
                           f"({part.name})")
        lower, upper, root = (array[first : first + LEAVES] for array in boxes)
        checked.append(check(lower, upper, root))
    holds, margin = (np.concatenate(results) for results in zip(*checked, strict=True))
    if not holds.all():
        raise Rejected(f"every leaf must be proved, {np.count_nonzero(~holds)} of {len(holds)} are not, the worst is "
                       f"{-float(margin.min()):g} short ({part.name})")
    return len(holds)


def _read(proof: Path) -> tuple[dict[str, Any], Sequence[BoxTree]]:
    content = proof.read_bytes()
    require_limited(content, "proof")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        document = json.loads(arrays["document"].tobytes().decode())
        names = {f"{name}_{k}" for k in range(len(document["parts"])) for name in ("dimension", "value")}
        if set(arrays.files) != names | {"document"}:
            raise Rejected(f"proof must hold a tree for each part and nothing else, got {', '.join(arrays.files)}")
        trees = [BoxTree(arrays[f"dimension_{k}"], arrays[f"value_{k}"]) for k in range(len(document["parts"]))]
    if (splits := sum(tree.split_dimension.size for tree in trees)) > MOST_SPLITS:
        raise Rejected(f"proof must have at most {MOST_SPLITS:,} boxes, got {splits:,}")
    return document, trees


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
