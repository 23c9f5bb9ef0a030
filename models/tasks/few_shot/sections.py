"""Sections about a model that learned its workload from few runs: the runs, the errors beside simpler predictions,
the recommendation and what else may be chosen.

Flow: as sections.py, of the `few_shot` part of the evidence (models/tasks/few_shot/evidence.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from models.metrics import finite_number
from models.reporting.document import Cell, Note, Part, Table, figures, text
from models.reporting.formatting import count, number, percent
from models.reporting.reading import at, mapping, mappings
from models.tasks.pages import Claim

Json = Mapping[str, Any]

ERRORS = (("the model", "test_mape"), ("the closed form that it was trained on", "closed_form_mape"),
          ("the mean of the workload's runs", "baseline_mape"))


def few_shot(evidence: Json | None) -> tuple[Part, ...]:
    """Everything, and first what the task notes of the workload's specification."""
    found, metrics = mapping(evidence, "few_shot"), mapping(evidence, "metrics")
    parts: list[Part] = [Note(str(found["note"]))] if found.get("note") else []
    similarity, threshold = (number(at(found, key)) for key in ("similarity", "threshold"))
    unlike = at(found, "out_of_distribution") is True
    parts.append(Note(
        f"The workload is {'UNLIKE' if unlike else 'like'} the pool: its runs have a similarity of {similarity} to the "
        f"nearest of {number(at(found, 'pool', 'workloads'))} workloads, the threshold is {threshold}."
        + (" Predictions of workloads like this are less sure than their intervals say." if unlike else ""),
        "bad" if unlike else ""))
    support = mappings(found, "support")
    parts.append(Table(("Configuration", "Measured"), tuple(
        (text(run.get("configuration")), *figures([number(run.get("target"))])) for run in support),
        f"The {count(len(support), 'configuration')} that it learned from, {at(found, 'bases')}"))
    parts.append(Table(("Prediction by", "Mean absolute percentage error"), tuple(
        (text(label), *figures([_percentage(metrics.get(key))])) for label, key in ERRORS),
        f"Over the other {number(at(found, 'judged_configurations'))} configurations that were measured",
        note=f"{percent(at(found, 'interval_coverage'))} of them lie in their interval."))
    return (*parts, *_options(found))


def claims(evidence: Json | None) -> tuple[Claim, ...]:
    """Beside the specification: the ends of the narrowest interval, and whether the pool has workloads like this."""
    found = mapping(evidence, "few_shot")
    crossing = mapping(found, "crossing")
    status = str(crossing.get("status") or "no verdict")
    reason = "proved" if status == "PROVED" else str(crossing.get("reason") or "the evidence does not say why")
    said = [Claim("the ends of the narrowest interval never cross", status, reason,
                  str(crossing.get("statement") or ""))]
    if found.get("out_of_distribution") is True:
        said.append(Claim("the share of intervals that hold", "UNKNOWN", "The workload is unlike those of the pool"))
    return tuple(said)


def recommended(evidence: Json | None) -> str:
    """One line for a table of workloads; "" where the task recommends nothing."""
    best = mapping(evidence, "few_shot", "recommendation")
    if not best:
        return "none" if mapping(evidence, "few_shot") else ""
    chosen = ", ".join(f"{name} {value if isinstance(value, str) else number(value)}"
                       for name, value in mapping(best, "configuration").items())
    return f"{chosen}: {_interval(best)}"


def recommendations(entries: Sequence[Json]) -> Table:
    """One row a workload."""
    rows = [(Cell(str(at(entry, "evidence", "workload"))), Cell(recommended(entry.get("evidence"))),
             *figures([number(at(entry, "evidence", "few_shot", "recommendation", "cost"))]),
             Cell("unlike the pool" if at(entry, "evidence", "few_shot", "out_of_distribution") else ""))
            for entry in entries if mapping(entry, "evidence", "few_shot")]
    deadline = next((at(entry, "evidence", "few_shot", "deadline") for entry in entries
                     if at(entry, "evidence", "few_shot", "deadline") is not None), None)
    return Table(("Workload", "Cheapest configuration: predicted (interval)", "Cost of a run", ""), tuple(rows),
                 note="No deadline was asked for." if deadline is None else
                 f"The upper end of an interval that is shown meets the deadline of {number(deadline)}.")


def _options(found: Json) -> tuple[Part, ...]:
    options = mappings(found, "options")
    if not options:
        return ()
    names = list(mapping(options[0], "configuration"))
    best = mapping(found, "recommendation")
    rows = tuple((*(Cell(value if isinstance(value, str) else number(value), strong=option == best)
                    for value in (option["configuration"][name] for name in names)),
                  *figures([number(option["predicted"]), _interval(option, False), number(option["cost"])]),
                  Cell("measured" if option.get("runs") else "")) for option in options)
    coverage = percent(at(found, "coverage"))
    priced = at(found, "priced") is not False
    parts: list[Part] = [Table((*names, "Predicted", f"{coverage} interval", "Cost of a run", ""), rows,
                               "The cheapest configurations" if priced else "The fastest configurations")]
    if not priced:
        parts.append(Note("The mapping names no cost of a run: nothing is recommended.", "missing"))
    elif not best:
        parts.append(Note("None has an interval that meets the deadline.", "missing"))
    return tuple(parts)


def _percentage(error: Any) -> str:
    """A percentage error, which is no share: it may be 100 % and more."""
    known = finite_number(error)
    return number(None if known is None else 100.0 * known, "%")


def _interval(option: Json, point: bool = True) -> str:
    ends = f"{number(option.get('lower'))} to {number(option.get('upper'))}"
    return f"{number(option.get('predicted'))} ({ends})" if point else ends
