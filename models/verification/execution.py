"""What executing a file adds to what was proved of it, as a sentence; and whether that leaves anything of the proof.

A proof is about real arithmetic. How far the file's outputs can be from that when it is executed in its own type, with
sums in any order, is bounded over the hull of all that the claim speaks of by the checker's means
(checker/rounding.py), where the network is a chain that the checker reads. Orders that every operation keeps are kept
in execution, exactly.

Such bounds grow with the width and are far above what is seen (docs/decisions/0010). So they are said. A specification
may limit them (`rounding`): a proof is refused where execution may add more to a violation. Without a limit it is
refused only where execution may be off by the whole range of an output, or its size: then nothing is known about what
runs.

What execution adds to a violation, e being the error of an output: 0 to an order or a limit that every operation keeps,
2 e to any other order and to a change (robust), e to any other limit, the errors of both to a difference of two
outputs (that of the lower one times `factor`).

Symbols: n inputs, o outputs.
"""

from dataclasses import dataclass

import numpy as np

from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain, read_chain
from models.verification.checker.rounding import Arithmetic, chain_error, kept_limits, kept_order
from models.verification.language.amounts import amount, plain
from models.verification.language.claim import Claim
from models.verification.language.properties import Monotonicity, OutputOrder, OutputRange, Robustness, Share
from models.verification.language.specification import Specification
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


def execution_of(content: bytes, graph: Graph, claim: Claim, uncompared: str = "") -> Execution:
    """What executing the file adds to the claim.

    Args:
        graph: the same network in normal form.
        uncompared: why it could not be compared with what onnxruntime computes, "" where it was. An objection where
            execution is not bounded either.
    """
    limits = {} if claim.specification is None else claim.specification.rounding
    try:
        chain = read_chain(content)
    except Rejected as refusal:
        return Execution("What its execution adds is not bounded: that is done for chains of Gemm, MatMul, Add, Sub, "
                         "Mul and Relu alone.",
                         f"execution must be bounded where `rounding` limits it: {refusal}" if limits else
                         uncompared if claim.specification is not None else "")
    error, dtype = _error(chain, claim), chain.executed
    objection = "" if claim.specification is None else _over_the_limit(chain, claim.specification, error)
    if (kept := _kept(chain, claim)) and np.isfinite(error).all():
        return Execution(f"Its execution in {dtype.name} adds nothing: every operation keeps {kept}.", objection)
    named = [f"{name} by at most {amount(float(e), claim.units.get(name, ''))}" if np.isfinite(e) else
             f"{name} by any amount, for numbers may overflow"
             for name, e in zip(claim.output_names, error, strict=True)]
    more = f", and {len(named) - SHOWN} other outputs" if len(named) > SHOWN else ""
    sentence = (f"Executed in {dtype.name}, with sums in any order, it may differ from that: {', '.join(named[:SHOWN])}"
                f"{more}.")
    return Execution(sentence, objection or _objection(error, graph, claim, dtype))


def within_limits(content: bytes, specification: Specification, share: float = 1.0) -> bool:
    """Whether what executing the file adds to each property is within a share of the specification's limits.

    Raises Rejected where the file is no chain that the checker reads.
    """
    chain = read_chain(content)
    error = chain_error(chain, specification.lower, specification.upper)
    return not _over_the_limit(chain, specification, error, share)


def _over_the_limit(chain: Chain, specification: Specification, error: FloatArray, share: float = 1.0) -> str:
    """Of which property execution may break the specification's limit; "" where of none."""
    for rule in specification.properties:
        adds = _added(chain, rule.of if isinstance(rule, Share) else rule, error)
        for output in rule.outputs:
            limit = specification.rounding.get(output)
            if limit is not None and not adds <= limit * share:
                name = specification.output_names[output]
                unit = specification.units.get(name, "")
                most = amount(adds, unit) if np.isfinite(adds) else "any amount, for numbers may overflow"
                allowed = " ".join(filter(None, (plain(limit), unit)))
                return (f"execution in {chain.executed.name} may add at most {allowed} to a violation in {name}, got "
                        f"{most}: store the weights in float64")
    return ""


def _added(chain: Chain, rule: Monotonicity | OutputRange | OutputOrder | Robustness, error: FloatArray) -> float:
    """What execution adds to a violation of the rule at most."""
    match rule:
        case Monotonicity():
            kept = all(kept_order(chain.weights, feature, rule.sign)[rule.output] for feature in rule.features)
            return 0.0 if kept and np.isfinite(error[rule.output]) else 2 * float(error[rule.output])
        case Robustness():
            return 2 * float(error[rule.output])
        case OutputOrder():
            return float(sum(factor * error[side] for side, factor in ((rule.upper, 1.0), (rule.lower, rule.factor))
                             if isinstance(side, int)))
        case OutputRange():
            kept = _keeps_limits(chain, rule) and np.isfinite(error[rule.output])
            return 0.0 if kept else float(sum(error[output] for output in rule.outputs))


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
            if ordered and np.isfinite(error[output]) and _is_constant(graph, output):
                continue  # unless something overflows on the way, for 0 times infinity is no number
            largest = float(np.abs(y[:, output]).max())
            size = float(y[:, output].max() - y[:, output].min()) if ordered else largest
            if not error[output] <= max(MOST_SHARE * size, 2 * arithmetic.unit * largest + arithmetic.tiny):
                return (f"execution in {dtype.name} must keep {claim.output_names[output]} within its "
                        f"{'range over the box' if ordered else 'size'}, about {size:.3g}, got {error[output]:.3g}: "
                        "the proof says nothing about what runs; store the weights in float64")
    return ""


def _is_constant(graph: Graph, output: int) -> bool:
    """Whether an output depends on nothing: whoever executes it finds the same number for all inputs, in order."""
    return not any(matrix[output].any() for matrix in graph.affines[-1].matrices.values())


def _kept(chain: Chain, claim: Claim) -> str:
    """What every operation keeps, where that is the whole claim: orders and limits; "" where it is not."""
    rules = () if claim.specification is None else claim.specification.properties
    words = set()
    for rule in rules:
        match rule:
            case Monotonicity() if all(kept_order(chain.weights, feature, rule.sign)[rule.output]
                                       for feature in rule.features):
                words.add("these orders")
            case OutputRange() if _keeps_limits(chain, rule):
                words.add("these limits")
            case _:
                return ""
    return " and ".join(sorted(words, reverse=True))


def _keeps_limits(chain: Chain, rule: OutputRange) -> bool:
    """Whether no executed output is beyond the rule's limits."""
    low, high = kept_limits(chain)
    return rule.minus is None and (rule.minimum is None or bool(low[rule.output] >= rule.minimum)) and (
        rule.maximum is None or bool(high[rule.output] <= rule.maximum))


def _error(chain: Chain, claim: Claim) -> FloatArray:
    """(o,): how far executed outputs may be from the exact ones where the claim speaks of them, fed with numbers of the
    type."""
    boxes = [fed for fed in claim.fed if len(fed.lower)]
    if not boxes:
        return np.zeros(len(claim.output_names))
    lower = np.concatenate([fed.lower for fed in boxes]).min(axis=0)
    upper = np.concatenate([fed.upper for fed in boxes]).max(axis=0)
    return chain_error(chain, lower, upper)
