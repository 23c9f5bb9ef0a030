"""Counterexamples in words and as tables.

Of the file that ships: inputs and outputs in raw units, as onnxruntime replayed them (models/verification/decide.py).
Of the unverified twin: two rows, the same input but for one feature, the predictions the wrong way round; they are in
the network's coordinates, 0..1 of the training range of each column (models/verification/verdict.py), and are shown in
raw units where the scaling statistics are there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feature_store.errors import InputError
from models.metrics import finite_number
from models.reporting.document import Cell, Note, Part, Table
from models.reporting.formatting import count, number
from models.reporting.reading import at, floats, items, mapping, mappings
from models.verification.language.broken import broken
from models.verification.language.specification_language import parse_file

Json = Mapping[str, Any]
Range = tuple[float, float]
UNITLESS = ("1", "count")
ROUNDING = 1e-5  # of a range: by far more than float32 needs, by far less than a reader sees


def replayed_witness(evidence: Json | None) -> list[Part]:
    """The counterexample of the model: its points, an input or an output a row."""
    found = mapping(evidence, "verdict", "witness")
    points = mappings(found, "points")
    if not points:
        return [Note("The verdict is REFUTED, but its witness was not recorded.", "missing")]
    units = mapping(found, "units")
    rows = []
    for side in ("inputs", "outputs"):
        values = [mapping(point, side) for point in points]
        for name in values[0]:
            differs = len({repr(value.get(name)) for value in values}) > 1
            rows.append((Cell(str(name), code=True), Cell(str(units.get(name) or "")),
                         *(Cell(number(value.get(name)), numeric=True, strong=differs or side == "outputs")
                           for value in values)))
    pair = len(points) > 1
    header = ("", "Unit", *(("lower input", "higher input") if pair else ("value",)))
    told = ("Of these two inputs, which are equal but for one feature, the outputs stand in the wrong order."
            if pair else "At this input the outputs are not what was to be proved.")
    return [Note(f"{told} onnxruntime shows it on the file itself."), *_broken(evidence, points, units),
            Table(header, tuple(rows), "Counterexample of the model")]


def _broken(evidence: Json | None, points: Sequence[Json], units: Json) -> list[Part]:
    """Which demands the counterexample breaks, and by how much; nothing where the evidence does not tell."""
    sides = [[mapping(point, side) for point in points] for side in ("inputs", "outputs")]
    inputs, outputs = (len(values[0]) for values in sides)
    try:
        given = parse_file(mapping(evidence, "specification"), inputs, outputs, "evidence")
    except InputError:
        return []
    names = (given.feature_names, given.output_names)
    x, y = (floats([value.get(name) for value in values for name in of]).reshape(len(points), -1)
            for values, of in zip(sides, names, strict=True))
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return []
    told = []
    for one in broken(given, x, y):
        unit = str(units.get(given.output_names[one.rule.outputs[0]]) or "")
        told.append(f"{one.rule.statement(*names)}: missed by {number(one.amount, '' if unit in UNITLESS else unit)}")
    return [Note(f"Broken: {'; '.join(told)}.", "bad")] if told else []


def witness_parts(contract: Json | None, evidence: Json | None, scaling: Json | None, key: str,
                  whose: str) -> list[Part]:
    """The worst witness of evidence[key]: a sentence and a table of two rows. Nothing where no witness was needed.

    Args:
        scaling: content of scaling.json, {"features": {name: [minimum, maximum]}, "target": {...}}.
        key: "verdict" or "twin_verdict".
        whose: the model that it refutes, in words.
    """
    witnesses = mappings(evidence, key, "witnesses")
    if not witnesses:
        refuted = at(evidence, key, "status") == "REFUTED"
        return [Note("The verdict is REFUTED, but its witness was not recorded.", "missing")] if refuted else []
    worst = max(witnesses, key=lambda witness: finite_number(witness.get("excess")) or 0.0)
    inputs = mappings(contract, "inputs")
    low, high = floats(worst.get("low")), floats(worst.get("high"))
    if not inputs or not len(inputs) == len(low) == len(high):
        return [Note("The witness was recorded, but not the inputs that it speaks of.", "missing")]
    names = [str(item.get("name")) for item in inputs]
    feature = worst.get("feature")
    varied = names[feature] if isinstance(feature, int) and 0 <= feature < len(names) else str(feature)
    ranges = [_range(mapping(scaling, "features").get(name)) for name in names]
    target = mapping(evidence, "target")
    target_range = _range(mapping(scaling, "target").get(str(target.get("name")))) or _range(
        [target.get("minimum"), target.get("maximum")])
    unit = str(target.get("unit") or "") if target_range else "scaled"
    outputs = [_raw(finite_number(worst.get(end)), target_range) for end in ("output_low", "output_high")]
    header = [f"{item.get('name')} ({item.get('unit')})" if known else f"{item.get('name')} (scaled)"
              for item, known in zip(inputs, ranges, strict=True)]
    rows = tuple(
        (Cell(label), *(Cell(number(_raw(_in_range(float(value)), known)), numeric=True, strong=name == varied)
                        for name, value, known in zip(names, point, ranges, strict=True)),
         Cell(number(output), numeric=True, strong=True))
        for label, point, output in zip(("lower input", "higher input"), (low, high), outputs, strict=True))
    table = Table(("", *header, f"prediction ({unit})"), rows, f"Worst counterexample of the {whose}")
    return [Note(_sentence(whose, varied, worst.get("sign"), outputs, unit, len(witnesses))), table]


def _sentence(whose: str, feature: str, sign: Any, outputs: list[float | None], unit: str, witnesses: int) -> str:
    rule, does = ("must not rise", "rises") if sign == -1 else ("must not fall", "falls")
    listed = "" if witnesses == 1 else f" It is the worst of the {count(witnesses, 'witness', 'witnesses')} listed."
    return (f"The {whose}'s prediction {rule} when {feature} rises and all else is equal; here it {does} from "
            f"{number(outputs[0], unit)} to {number(outputs[1], unit)}.{listed}")


def _range(pair: Any) -> Range | None:
    ends = [finite_number(end) for end in items(pair)]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return None
    return ends[0], ends[1]


def _in_range(value: float) -> float:
    """A coordinate of the training range; rounding outward put the search's box a little around it."""
    return min(max(value, 0.0), 1.0) if -ROUNDING <= value <= 1 + ROUNDING else value


def _raw(value: float | None, known: Range | None) -> float | None:
    """From 0..1 to raw units; as it is where the range is not known."""
    return value if value is None or known is None else known[0] + value * (known[1] - known[0])
