"""The specification on live telemetry: does the model that ships obey, where it is asked, what was proved of it?

Ranges and orders of outputs are looked at in live rows, monotonicity between pairs: a live row, and the same row with
another live row's value of one feature. Two rows that were measured hardly ever differ in one feature alone
(models/audit/ matches near ones, of which nothing is proved). Only rows that the proof is about are asked. A proved
model breaks nothing: one broken pair says that another file runs than was proved, or that a proof was wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.monitoring.findings import Finding
from models.reporting.formatting import count
from models.verification.language.broken import broken
from models.verification.language.properties import Monotonicity
from models.verification.language.specification import Specification
from models.verification.network.runtime_session import open_session

FloatArray = NDArray[np.float64]

NEWEST = 200  # rows that are asked about
_ROUNDING = 64 * float(np.finfo(np.float32).eps)  # of the largest answer, beside what the specification allows


@dataclass(frozen=True)
class LivePairs:
    """What was asked, and what broke: a sentence for each property, the worst first.

    Attributes:
        rows: that the proof is about.
        pairs: made of them.
    """

    rows: int = 0
    pairs: int = 0
    broken: tuple[str, ...] = ()


def live_pairs(model: bytes, specification: Specification, rows: FloatArray) -> LivePairs:
    """Asks the model about the newest rows.

    Args:
        model: an ONNX file with one input.
        rows: (N, n) raw inputs, in the specification's order; may hold NaN.
    """
    x = _admitted(specification, rows)
    if not len(x):
        return LivePairs()
    session = open_session(model)
    name = session.get_inputs()[0].name

    def answers(points: FloatArray) -> FloatArray:
        return np.asarray(session.run(None, {name: points.astype(np.float32)})[0], dtype=np.float64)

    y = answers(x)
    pairs = [pair for moved in _moved(specification, x) for pair in _ordered(x, moved, y, answers(moved))]
    worst: dict[str, tuple[float, str]] = {}
    for points, said in [(x[[row]], y[[row]]) for row in range(len(x))] + pairs:
        for one in broken(specification, points, said):
            output = next(iter(one.rule.outputs))
            if one.amount <= specification.rounding.get(output, 0.0) + _ROUNDING * float(np.abs(y[:, output]).max()):
                continue
            statement = one.rule.statement(specification.feature_names, specification.output_names)
            if one.amount > worst.get(statement, (0.0, ""))[0]:
                unit = specification.units.get(specification.output_names[output], "")
                worst[statement] = one.amount, f"{statement}: missed by {one.amount:.4g} {unit}".rstrip()
    return LivePairs(len(x), len(pairs), tuple(text for _, text in sorted(worst.values(), reverse=True)))


def _admitted(specification: Specification, rows: FloatArray) -> FloatArray:
    """The newest rows in the proved box, as the model is fed with them."""
    x = rows.astype(np.float32).astype(np.float64)
    inside = ((x >= specification.lower) & (x <= specification.upper)).all(axis=1)
    for feature, values in specification.choices.items():
        inside &= np.isin(x[:, feature], np.asarray(values, dtype=np.float32).astype(np.float64))
    return np.asarray(x[inside][-NEWEST:])


def _moved(specification: Specification, x: FloatArray) -> Iterator[FloatArray]:
    """The rows with one feature's values exchanged among them, for each that something is monotone in."""
    random, grouped = np.random.default_rng(0), {feature for group in specification.one_hot for feature in group}
    monotone = {feature for rule in specification.properties if isinstance(rule, Monotonicity)
                for feature in rule.features}
    for feature in sorted(monotone - grouped):
        moved = x.copy()
        moved[:, feature] = random.permutation(x[:, feature])
        yield moved


def _ordered(x: FloatArray, moved: FloatArray, y: FloatArray, after: FloatArray
             ) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Pairs that differ, the lower point first, with their answers."""
    for row in np.flatnonzero((x != moved).any(axis=1)):
        order = [0, 1] if (moved[row] >= x[row]).all() else [1, 0]
        yield np.stack([x[row], moved[row]])[order], np.stack([y[row], after[row]])[order]


def specification_finding(model: bytes, specification: Specification, rows: FloatArray, what: str) -> Finding:
    """Whether a proved model keeps its specification on live rows (m, n). what: it is called in the sentence."""
    found = live_pairs(model, specification, rows)
    asked = f"{count(found.pairs, 'live pair')} and {count(found.rows, 'live row')}"
    sentence = (f"the {what} breaks what was proved of it, on {asked}: {'; '.join(found.broken)}" if found.broken else
                f"the {what} keeps its specification on {asked}")
    return Finding("specification", bool(found.broken), sentence, {"pairs": found.pairs, "rows": found.rows})
