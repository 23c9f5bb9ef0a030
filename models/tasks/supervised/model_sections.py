"""Sections about a supervised model: the numbers asked for first, how training went, how accurate it is.

Flow: pages.py hands over contract and evidence as they were read from JSON; each function returns the parts of one
section, in words where something is not there. Sources: vPALs, figures 5 (loss and verification) and 6 (accuracy),
equation 2 (accuracy).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.metrics import finite_number
from models.reporting import plots
from models.reporting.document import Cell, Facts, Fold, Note, Part, Plot, Table, figures, text
from models.reporting.formatting import GAP, count, duration, number, percent, points
from models.reporting.gate_words import limit_of
from models.reporting.reading import at, column, mapping, mappings, together
from models.reporting.witness import witness_parts
from models.tasks.supervised.task_error import task_error

Json = Mapping[str, Any]

MOST_ROUNDS = 14  # rounds in the table: the first half and the last half


def headline_facts(evidence: Json | None, gates: Json | None) -> Facts:
    """The numbers a reviewer asks for first, each with the limit of its gate."""
    metrics = mapping(evidence, "metrics")
    half, unit = tolerance(evidence), str(at(evidence, "target", "unit") or "")

    def remark(metric: str, *more: str) -> str:
        return "; ".join(filter(None, (*more, limit_of(metric, gates, evidence))))

    right = f"Test rows within {number(accuracy_tolerance(evidence)) if half is None else number(half, unit)}"
    return Facts((
        *_errors(evidence, remark("test_mape", "on test rows")),
        (right, percent(metrics.get("test_accuracy")),
         remark("test_accuracy", f"baseline {percent(metrics.get('baseline_accuracy'))}")),
        ("An answer takes", number(metrics.get("latency_us"), "µs"), remark("latency_us", "in onnxruntime, median"))))


def _errors(evidence: Json | None, remark: str) -> tuple[tuple[str, str, str], ...]:
    """The error, that of the baseline, and by how much the error of the twin, which has no proof, is another."""
    found = task_error(evidence)
    if found is None:
        mse, twin = (at(evidence, "metrics", key) for key in ("test_mse", "twin_test_mse"))
        return (("Test MSE (scaled)", number(mse), f"without the verifier {number(twin)}"),)
    value, twin, baseline = (number(found[key], found["unit"]) for key in ("value", "twin", "baseline"))
    shown = ((found["name"][:1].upper() + found["name"][1:], value, remark),
             ("The baseline's", baseline, str(at(evidence, "baseline") or "")))
    if not found["twin"] or found["value"] is None:
        return shown
    price = f"{100 * (found['value'] / found['twin'] - 1):+.1f}{GAP}%"
    return (*shown, ("Price of the proof", price, f"error against {twin} without the verifier"))


def worst(evidence: Json | None) -> tuple[Part, ...]:
    """The test rows with the largest errors, their inputs on demand, and the rows outside of the box."""
    found = mapping(evidence, "worst")
    rows, outside = mappings(found, "rows"), finite_number(found.get("rows_outside_box"))
    if not rows:
        return ()
    unit, tested = str(at(evidence, "target", "unit") or ""), at(evidence, "metrics", "test_rows")
    names = list(mapping(rows[0], "inputs"))
    table = Table(("Row", "Measured", "Predicted"), tuple(
        figures([number(row.get("row")), *(number(row.get(key), unit) for key in ("measured", "predicted"))])
        for row in rows), "Worst test rows, counted in order of time",
        "" if outside is None else f"{number(outside)} of {number(tested)} test rows lie outside of the box: there "
        "nothing is guaranteed.")
    inputs = Table(("Input", *(f"Row {number(row.get('row'))}" for row in rows)), tuple(
        (Cell(str(name), code=True), *figures([number(at(row, "inputs", name)) for row in rows])) for name in names),
        "Inputs of these rows")
    return table, Fold("The inputs of these rows", (inputs,))


def training(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """Loss curve with the verifier's activations, and the table of these."""
    history = mappings(evidence, "history", "epochs")
    rounds = mappings(evidence, "history", "rounds")
    parts: list[Part] = []
    epochs, loss, twin = together(*(column(history, key) for key in ("epoch", "loss", "twin_loss")))
    known = np.isfinite(epochs)
    if known.any():
        active = [plots.Activation(float(epoch), str(r.get("status")), None if np.isnan(found) else int(found))
                  for r, epoch, found in zip(rounds, column(rounds, "epoch"), column(rounds, "counterexamples"),
                                             strict=True) if np.isfinite(epoch)]
        markup = plots.loss_curve(epochs[known], loss[known], twin[known], active, f"{page}-loss")
        parts.append(Plot(markup, plots.FULL_WIDTH, "Mean squared error on the training rows after each epoch. Bands: "
                          "the verifier was active after that epoch; above them its outcome and how many "
                          "counterexamples it found."))
    else:
        parts.append(Note("The loss of each epoch was not recorded.", "missing"))
    parts.append(_rounds(rounds))
    return tuple(parts)


def _rounds(rounds: list[Json]) -> Part:
    if not rounds:
        return Note("No activation of the verifier was recorded.", "missing")
    half = MOST_ROUNDS // 2
    shown = rounds if len(rounds) <= MOST_ROUNDS else rounds[:half] + rounds[-half:]
    rows = tuple((*figures([number(item.get("epoch"))]), text(item.get("status")),
                  *figures([number(item.get("counterexamples")), number(item.get("twin_counterexamples")),
                            number(item.get("lower_bound")), duration(item.get("seconds"))])) for item in shown)
    left_out = len(rounds) - len(shown)
    return Table(("After epoch", "Outcome", "Counterexamples", "of the twin", "Slope bound", "Time"), rows,
                 "Activations of the verifier", f"{left_out:,} in the middle are left out." if left_out else "")


def accuracy(contract: Json | None, evidence: Json | None, scaling: Json | None) -> tuple[Part, ...]:
    """Verified against unverified and the baseline, on training, test and counterexample sets."""
    metrics = mapping(evidence, "metrics")
    if not metrics:
        return (Note("No metric was recorded.", "missing"),)
    sets = (("training rows", "train"), ("test rows", "test"), ("counterexamples", "counterexample"))
    rows = [_compared(f"Accuracy, {label}", metrics, f"{key}_accuracy", "baseline_accuracy" if key == "test" else "")
            for label, key in sets]
    rows += [_compared(f"MSE, {label} (scaled)", metrics, f"{key}_mse", "baseline_mse" if key == "test" else "")
             for label, key in sets[:2]]
    rows += _error_row(evidence)
    table = Table(("Measure", "Verified", "Unverified", "Difference", "Baseline"), tuple(rows),
                  "Verified, unverified twin and baseline", f"Baseline: {at(evidence, 'baseline') or 'not recorded'}.")
    return (Note(_what_is_right(evidence, metrics)), table,
            *witness_parts(contract, evidence, scaling, "twin_verdict", "unverified twin"))


def _compared(label: str, metrics: Json, key: str, baseline: str) -> tuple[Cell, ...]:
    """A row: verified, unverified, difference, baseline."""
    mine, twin = metrics.get(key), metrics.get(f"twin_{key}")
    share = key.endswith("accuracy")
    shown = percent if share else number
    known = finite_number(mine), finite_number(twin)
    if share:
        difference = points(mine, twin)
    elif known[0] is None or not known[1]:
        difference = number(None)
    else:
        difference = f"{100 * (known[0] / known[1] - 1):+.1f} %"
    reference = shown(metrics.get(baseline)) if baseline else ""
    return text(label), *figures([shown(mine), shown(twin), difference, reference])


def _error_row(evidence: Json | None) -> list[tuple[Cell, ...]]:
    """The error that matters for the task, in its unit."""
    found = task_error(evidence)
    if found is None:
        return []
    shown = ["" if found[key] is None else number(found[key], found["unit"]) for key in ("value", "twin", "baseline")]
    difference = f"{100 * (found['value'] / found['twin'] - 1):+.1f} %" if found["twin"] else ""
    name = found["name"][0].upper() + found["name"][1:]
    return [(text(f"{name}, test rows"), *figures([*shown[:2], difference, shown[2]]))]


def _what_is_right(evidence: Json | None, metrics: Json) -> str:
    """When a prediction counts as right, in target units where they are known."""
    half = tolerance(evidence)
    unit = at(evidence, "target", "unit") or ""
    raw = "" if half is None else f", which is {number(half, str(unit))}"
    found = finite_number(metrics.get("counterexamples"))
    share = number(accuracy_tolerance(evidence))
    sentence = (f"A prediction is right when it is within {share} of the scaled target (equation 2 of vPALs){raw}. A "
                "counterexample, two inputs that differ in one feature, is right when the two predictions stand in the "
                "specified order. ")
    if found is None:
        return sentence + "How many counterexamples there were was not recorded."
    return sentence + (f"The set holds {count(int(found), 'counterexample')} found on the way, of the learner and of "
                       "its twin." if found else "None was found on the way, of the learner or of its twin.")


def accuracy_tolerance(evidence: Json | None) -> float:
    """Half width of what counts as right, as a share of the range of the training target; vPALs, equation 2: 0.05."""
    found = finite_number(at(evidence, "target", "accuracy_tolerance"))
    return 0.05 if found is None else found


def tolerance(evidence: Json | None) -> float | None:
    """Half width of what counts as right, in target units: that share of the range of the training target."""
    low, high = (finite_number(at(evidence, "target", key)) for key in ("minimum", "maximum"))
    return None if low is None or high is None or high <= low else accuracy_tolerance(evidence) * (high - low)
