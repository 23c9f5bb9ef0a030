"""The page of a check: what is to be done with each champion, why, and everything that was looked at."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.reporting.document import Badge, Cell, Document, Lines, Note, Part, Section, Table, figures, render, text
from models.reporting.formatting import count, number, percent, significant

TONES: Mapping[str, Any] = {"fine": "good", "fine-tune": "open", "retrain": "bad", "roll back": "bad", "no data": ""}
Seen = Mapping[str, Any]  # of one workload, as `assay monitor --json` has it


def page(task: str, at: str, seen: Sequence[Seen]) -> str:
    """As HTML. at: UTC, ISO 8601."""
    broken = [one["workload"] for one in seen if _incident(one)]
    asks = [one for one in seen if one["decision"] not in ("fine", "no data")]
    lead: list[Part] = []
    if broken:
        lead.append(Note(f"Incident: {', '.join(broken)}: a model that was proved breaks its specification on live "
                         "telemetry. Stop its controllers (assay stop-acting) and find out which file runs.", "bad"))
    unseen = [one for one in seen if one["decision"] == "no data"]
    verdict = "No champion needs anything."
    if asks:
        verdict = f"{count(len(asks), 'champion')} of {len(seen)} {'need' if len(asks) > 1 else 'needs'} something."
    elif unseen or not seen:
        verdict = ("No champion that was looked at needs anything." if len(unseen) < len(seen) else
                   "Nothing was looked at.")
    lead.append(Note(verdict, "statement"))
    if unseen:
        lead.append(Note(f"No data of {', '.join(one['workload'] for one in unseen)}.",
                         "bad" if any(one["exit_code"] for one in unseen) else ""))
    lead.append(_overview(seen))
    sections = [Section(f"workload-{place}", one["workload"], _workload(one)) for place, one in enumerate(seen)]
    return render(Document(f"{task}: champions", f"A check of {at}",
                           (Badge("incident", "bad"),) if broken else (), tuple(lead), tuple(sections)))


def _incident(one: Seen) -> bool:
    return any(finding["found"] and finding["what"] == "specification" for finding in one["findings"])


def _overview(seen: Sequence[Seen]) -> Table:
    rows = tuple((Cell(one["workload"], strong=True), *figures([number(one["version"]), number(one["rows"])]),
                  Cell(one["decision"], tone=TONES[one["decision"]]), text(one["reasons"][0]), text(one["done"]))
                 for one in seen)
    return Table(("Workload", "Version", "New rows", "To do", "Why", "Done"), rows)


def _workload(one: Seen) -> tuple[Part, ...]:
    parts: list[Part] = [Note(reason, "bad" if _incident(one) else "") for reason in one["reasons"]]
    if one["findings"]:
        parts.append(Lines(tuple((finding["sentence"], "bad" if finding["found"] else
                                  "open" if finding["suspect"] else "good") for finding in one["findings"])))
    parts += [Note(note, "missing") for note in one["notes"]]
    if drift := [finding["figures"] for finding in one["findings"] if finding["what"].startswith("drift")]:
        parts.append(_drift(drift[0]))
    return tuple(parts)


def _drift(found: Mapping[str, Any]) -> Table:
    rows = tuple((text(one["feature"]), *figures([
        significant(one["before"]), significant(one["now"]), percent(one["distance"]), f"{one['chance']:.2g}",
        number(one["rows"]), number(one["worth"])]),
        Cell("differs", tone="bad") if one["chance"] <= found["level"] else text("as before"))
        for one in found["features"])
    return Table(("Feature", "Median before", "Now", "Distance", "Chance", "Newest rows", "Worth", ""), rows,
                 f"Each feature against {found['reference']}",
                 "A Kolmogorov-Smirnov test; worth: how many independent rows the newest ones are worth. A feature "
                 f"differs where the chance of its distance without any drift is at most {found['level']:.2g}.",
                 sortable=True)
