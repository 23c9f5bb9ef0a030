"""Sections about the model: what is guaranteed, the gates, how training went, how accurate it is.

Flow: report.py hands over contract, evidence and gates as they were read from JSON; each function returns the
parts of one section, in words where something is not there.
"""

from collections.abc import Mapping
from typing import Any

from models.metrics import SHARE_UNIT, finite_number
from models.reporting.document import Badge, Cell, Note, Part, Table, figures, text
from models.reporting.formatting import GAP, count, duration, number, percent, words
from models.reporting.reading import at, items, mapping, mappings
from models.reporting.witness import replayed_witness
from models.verification.language.amounts import asked

Json = Mapping[str, Any]

PROVED, REFUTED = "PROVED", "REFUTED"
MOST_ROUNDS = 14  # rounds in the table: the first half and the last half


def verdict_badge(evidence: Json | None) -> Badge:
    """The verdict in a word."""
    status = at(evidence, "verdict", "status")
    if not isinstance(status, str):
        return Badge("no verdict", "open")
    return Badge(status, "good" if status == PROVED else "bad" if status in (REFUTED, "ERROR") else "open")


def gates_badge(gates: Json | None) -> Badge:
    """How many gates hold."""
    results = mappings(gates, "gates")
    held = sum(gate.get("passed") is True for gate in results)
    if not results:
        return Badge("gates not evaluated", "open")
    if at(gates, "passed") is True:
        return Badge(f"all {len(results)} gates hold", "good")
    return Badge(f"{len(results) - held} of {count(len(results), 'gate')} failed", "bad")


def guarantee(contract: Json | None, evidence: Json | None, scaling: Json | None) -> tuple[Part, ...]:
    """The statement with its box, or what stands against it."""
    status = at(evidence, "verdict", "status")
    statement = at(contract, "specification", "statement")
    parts: list[Part] = []
    if status == PROVED:
        parts.append(Note("Proved, for every input in the box below:", ""))
    elif status is None:
        parts.append(Note("Nothing is guaranteed: there is no verdict. What was to be proved:", "bad"))
    else:
        reason = at(evidence, "verdict", "reason") or "no reason was given"
        parts.append(Note(f"Nothing is guaranteed: the verdict is {status} ({reason}). What was to be proved:", "bad"))
    parts.append(Note(statement, "good") if isinstance(statement, str) and status == PROVED else
                 Note(asked(statement), "statement") if isinstance(statement, str) else
                 Note("The contract with the statement and the box is missing.", "missing"))
    if status == REFUTED:
        parts += replayed_witness(evidence)
    parts.append(_box(contract, evidence))
    parts.append(_verdicts(evidence))
    return tuple(parts)


def directions(evidence: Json | None) -> dict[str, str]:
    """Feature -> increasing or decreasing, for the features of a monotonicity property without conditions."""
    found = {}
    for rule in mappings(evidence, "specification", "properties"):
        for feature in items(rule, "monotone", "features") if not at(rule, "monotone", "when") else ():
            found[str(feature)] = str(at(rule, "monotone", "direction"))
    return found


def _box(contract: Json | None, evidence: Json | None) -> Part:
    inputs = mappings(contract, "inputs")
    if not inputs:
        return Note("The box of inputs is missing.", "missing")
    required = directions(evidence)
    rows = tuple((Cell(str(item.get("name")), code=True), text(item.get("unit")),
                  *figures([number(item.get("minimum")), number(item.get("maximum"))]),
                  Cell(required.get(str(item.get("name")), ""), strong=True), text(_physical(item)),
                  text(item.get("description"))) for item in inputs)
    return Table(("Input", "Unit", "From", "To", "Prediction is", "Possible", "Meaning"), rows, "The box")


def _physical(item: Json) -> str:
    """The physical bounds in words."""
    low, high = finite_number(item.get("physical_minimum")), finite_number(item.get("physical_maximum"))
    if low is None and high is None:
        return "any"
    if high is None:
        return f"from {number(low)}"
    return f"up to {number(high)}" if low is None else f"{number(low)} to {number(high)}"


def _verdicts(evidence: Json | None) -> Part:
    rows = []
    for label, key in (("This model", "verdict"), ("Unverified twin", "twin_verdict")):
        verdict = mapping(evidence, key)
        if verdict:
            tone = verdict_badge({"verdict": verdict}).tone
            rows.append((text(label), Cell(str(verdict.get("status")), tone=tone), text(verdict.get("reason")),
                         *figures([percent(verdict.get("proved_share")), number(verdict.get("leaves")),
                                   number(verdict.get("boxes")), duration(verdict.get("seconds"))])))
    if not rows:
        return Note("No verdict of the verifier is in the evidence.", "missing")
    return Table(("", "Verdict", "Reason", "Proved", "Leaves", "Boxes", "Time"), tuple(rows), "Verdicts",
                 "Proved: share of the box's volume; leaves: boxes of the proof; boxes: what the search looked at.")


def gate_table(gates: Json | None, decision: str = "") -> tuple[Part, ...]:
    """Value, threshold, comparison, cases and verdict of every gate, and what registration decided.

    Args:
        gates: content of gates.json.
        decision: why the version got its alias, with interval and number of cases, as the ledger says it.
    """
    results = mappings(gates, "gates")
    if not results:
        return (Note("The gates were not evaluated: there is no gate report. Such a version is not promoted.",
                     "missing"),)
    rows = []
    for gate in results:
        passed, cases = gate.get("passed") is True, gate.get("cases")
        rows.append((Cell(words(str(gate.get("name")))), Cell(str(gate.get("metric")), code=True),
                     Cell("holds" if passed else "fails", tone="good" if passed else "bad"),
                     Cell(_with_unit(gate, "value"), numeric=True), Cell(str(gate.get("comparison"))),
                     Cell("none" if gate.get("threshold") is None else _with_unit(gate, "threshold"), numeric=True),
                     Cell("" if cases is None else number(cases), numeric=True), text(gate.get("reason"))))
    held = at(gates, "passed") is True
    parts: list[Part] = [
        Note("All gates hold." if held else "Not every gate holds: this version may not be promoted.",
             "good" if held else "bad"),
        Table(("Gate", "Metric", "Verdict", "Value", f"must{GAP}be", "Threshold", "Cases", "Reason"), tuple(rows),
              note="Cases: test rows, episodes or points that the metric is a mean of, where it is one.")]
    if decision:
        parts.append(Note(f"At registration: {decision}."))
    return tuple(parts)


def _with_unit(gate: Json, key: str) -> str:
    """Value or threshold of a gate: a share in percent, anything else in its unit."""
    unit = str(gate.get("unit") or "")
    return percent(gate.get(key)) if unit == SHARE_UNIT else number(gate.get(key), unit)
