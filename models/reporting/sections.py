"""Badges, the table of all gates, the counterexample: what version and run report share.

Flow: report.py hands over evidence and gates as they were read from JSON; each function returns parts, in words where
something is not there.
"""

from collections.abc import Mapping
from typing import Any

from models.reporting.document import Badge, Cell, Note, Part, Table, text
from models.reporting.formatting import count, number
from models.reporting.gate_words import amount, limit, measured, remark
from models.reporting.promises import tone_of
from models.reporting.reading import at, mappings

Json = Mapping[str, Any]


def verdict_badge(evidence: Json | None) -> Badge:
    """The verdict in a word."""
    status = at(evidence, "verdict", "status")
    return Badge(status, tone_of(status)) if isinstance(status, str) else Badge("no verdict", "open")


def gates_badge(gates: Json | None) -> Badge:
    """How many gates hold."""
    results = mappings(gates, "gates")
    held = sum(gate.get("passed") is True for gate in results)
    if not results:
        return Badge("gates not evaluated", "open")
    if at(gates, "passed") is True:
        return Badge(f"all {len(results)} gates hold", "good")
    return Badge(f"{len(results) - held} of {count(len(results), 'gate')} failed", "bad")


def gate_table(gates: Json | None, evidence: Json | None) -> tuple[Part, ...]:
    """What every gate measures, the value, the limit, and whether it holds."""
    results = mappings(gates, "gates")
    if not results:
        return (Note("The gates were not evaluated: there is no gate report. Such a version is not promoted.",
                     "missing"),)
    rows = []
    for gate in results:
        passed, cases = gate.get("passed") is True, gate.get("cases")
        rows.append((Cell(str(gate.get("name")), code=True), text(measured(str(gate.get("metric")))),
                     Cell("holds" if passed else "fails", tone="good" if passed else "bad"),
                     Cell(amount(gate, "value", evidence), numeric=True), text(limit(gate, evidence) or "none"),
                     Cell("" if cases is None else number(cases), numeric=True), text(remark(gate))))
    return (Table(("Gate", "What is measured", "Result", "Value", "Limit", "Cases", "Remark"), tuple(rows),
                  "What each gate asks",
                  "Gate: its name in `mlflow.yaml`. Cases: test rows, episodes or points behind a mean."),)
