"""What executing a file adds to what was proved of it, as a sentence; and whether that leaves anything of the proof.

A proof is about real arithmetic. How far the file's outputs can be from that when it is executed in its own type, with
sums in any order, is bounded over the hull of the claim's boxes by the checker's means (checker/rounding.py), where the
network is a chain that the checker reads. Orders that every operation keeps are kept in execution, exactly.

Such bounds grow with the width and are far above what is seen (docs/decisions/0010). So they are said, and a proof is
refused only where execution may be off by the whole range of an output, or its size: then nothing is known about what
runs.

Symbols: n inputs, o outputs.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from models.verification.checker.chain import Chain, read_chain
from models.verification.checker.model_file import Rejected
from models.verification.checker.rounding import Arithmetic, execution_error, kept_order
from models.verification.language.amounts import amount
from models.verification.language.claim import Claim
from models.verification.language.properties import Monotonicity, Share
from models.verification.language.tolerance import points_of
from models.verification.network.graph import FloatArray, Graph

# Share of an output's range or size that execution may be off by before a proof is refused; points that show it.
MOST_SHARE, RANGE_POINTS = 1.0, 64
SHOWN = 3  # outputs in the sentence


@dataclass(frozen=True)
class Execution:
    """What execution adds.

    sentence: for people; objection: why a proof says nothing about what runs, "" where it does.
    """

    sentence: str
    objection: str = ""


def execution_of(content: bytes, graph: Graph, claim: Claim) -> Execution:
    """What executing the file adds to the claim. graph: the same network in normal form."""
    try:
        chain = read_chain(content)
    except Rejected:
        return Execution("What its execution adds is not bounded: that is done for chains of Gemm, MatMul, Add, Sub, "
                         "Mul and Relu alone.")
    dtype = _input_type(content)
    error = _error(chain, claim, dtype)
    if _keeps_orders(chain, claim) and np.isfinite(error).all():
        return Execution(f"Its execution in {dtype.name} adds nothing: every operation keeps these orders.")
    named = [f"{name} by at most {amount(float(e), claim.units.get(name, ''))}" if np.isfinite(e) else
             f"{name} by any amount, for numbers may overflow"
             for name, e in zip(claim.output_names, error, strict=True)]
    more = f", and {len(named) - SHOWN} other outputs" if len(named) > SHOWN else ""
    sentence = (f"Executed in {dtype.name}, with sums in any order, it may differ from that: {', '.join(named[:SHOWN])}"
                f"{more}.")
    return Execution(sentence, _objection(error, graph, claim, dtype))


def _objection(error: FloatArray, graph: Graph, claim: Claim, dtype: np.dtype[np.floating]) -> str:
    """Of a property of VNN-LIB there is none: it is about real arithmetic by its definition.

    An order is about differences of an output, which are as large as its range over the box; a limit about its values.
    """
    if claim.specification is None:
        return ""
    arithmetic, y = Arithmetic.of(dtype), graph.value(points_of(claim.specification, RANGE_POINTS))
    y = y[np.isfinite(y).all(axis=1)]
    for rule in claim.specification.properties if len(y) else ():
        ordered = isinstance(rule.of if isinstance(rule, Share) else rule, Monotonicity)
        for output in rule.outputs:
            largest = float(np.abs(y[:, output]).max())
            size = float(y[:, output].max() - y[:, output].min()) if ordered else largest
            if not error[output] <= max(MOST_SHARE * size, 2 * arithmetic.unit * largest + arithmetic.tiny):
                return (f"execution in {dtype.name} must keep {claim.output_names[output]} within its "
                        f"{'range over the box' if ordered else 'size'}, about {size:.3g}, got {error[output]:.3g}: "
                        "the proof says nothing about what runs; store the weights in float64")
    return ""


def _keeps_orders(chain: Chain, claim: Claim) -> bool:
    """Whether the claim is about orders alone, and every operation keeps each."""
    rules = () if claim.specification is None else claim.specification.properties
    return bool(rules) and all(
        isinstance(rule, Monotonicity) and all(kept_order(chain.weights, feature, rule.sign)[rule.output]
                                               for feature in rule.features) for rule in rules)


def _error(chain: Chain, claim: Claim, dtype: np.dtype[np.floating]) -> FloatArray:
    """(o,): how far executed outputs may be from the exact ones in the claim's boxes, fed with numbers of the type."""
    boxes = [part for part in claim.parts if len(part.lower)]
    if not boxes:
        return np.zeros(len(claim.output_names))
    lower = np.concatenate([part.lower for part in boxes]).min(axis=0)
    upper = np.concatenate([part.upper for part in boxes]).max(axis=0)
    with np.errstate(over="ignore"):
        low = np.nextafter(lower.astype(dtype), dtype.type(-np.inf)).astype(np.float64)
        high = np.nextafter(upper.astype(dtype), dtype.type(np.inf)).astype(np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return np.full(len(claim.output_names), np.inf)
    return execution_error(chain.weights, chain.biases, low, high, chain.relus, Arithmetic.of(dtype))


def _input_type(content: bytes) -> np.dtype[np.floating]:
    graph = onnx.load_model_from_string(content).graph
    stored = {tensor.name for tensor in graph.initializer}
    (entry,) = (entry for entry in graph.input if entry.name not in stored)
    return np.dtype(helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type))
