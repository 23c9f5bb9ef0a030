"""What a run ends with: a table of 80 columns, the reasons, and where bundles and report are.

With many workloads the table holds those that need a look first; the report has all of them.
"""

from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from models.reporting.formatting import significant
from models.reporting.reading import role
from pipelines.console import shortened

MOST_ROWS = 20  # workloads that a table shows in full
WORST = 10  # of more workloads: those that are shown
NAME_WIDTH = 48  # a longer name is cut; the report and --json have it whole
HOW_TO_REVIEW = ("`assay promote`; or in MLflow (`assay ui`): set the version's tag assay.review to approve or reject, "
                 "then `assay promote --pending`")
SETTLED = ("registered", "unchanged", "no new data")


def summary_table(summary: dict[str, Any]) -> Table:
    """One row a workload, or the worst of many."""
    entries = shown_entries(summary)
    title = "Workloads" if len(entries) == len(summary["entries"]) else f"The {len(entries)} that need a look first"
    columns = _columns(entries)
    table = Table(title=title, title_justify="left", header_style="bold", pad_edge=False, box=SIMPLE_HEAD,
                  padding=(0, 1, 0, 0))
    table.add_column("workload", overflow="fold", min_width=12)
    for name, unit in columns.items():
        table.add_column(f"{name}\n{unit or ''}", justify="right", no_wrap=True)
    for name in ("verdict", "gates", "version"):
        table.add_column(name, no_wrap=True)
    for entry in entries:
        table.add_row(Text(shortened(entry["workload"], NAME_WIDTH)), *_cells(entry, columns))
    return table


def _columns(entries: list[dict[str, Any]]) -> dict[str, str | None]:
    """Names of the figures that any workload has, with their unit where it is one for all; else None."""
    units: dict[str, set[str]] = {}
    for entry in entries:
        for figure in entry["figures"]:
            units.setdefault(figure["name"], set()).add(figure["unit"])
    return {name: of_figure.pop() if len(of_figure) == 1 else None for name, of_figure in units.items()}


def _cells(entry: dict[str, Any], columns: dict[str, str | None]) -> list[Text]:
    gates = entry["gates"]
    if gates is None:
        return [*(Text("") for _ in columns), Text(entry["status"], style="red"), Text(""), Text("")]
    held = sum(gate["passed"] for gate in gates["gates"])
    version = " ".join(str(part) for part in (entry["version"], entry["alias"] or entry["status"]) if part)
    figures = {figure["name"]: figure for figure in entry["figures"]}
    return [*(Text(_quantity(figures.get(name), unit is not None)) for name, unit in columns.items()),
            Text(str(entry["verdict"]), style="" if entry["verdict"] == "PROVED" else "red"),
            Text(f"{held} of {len(gates['gates'])}", style="" if held == len(gates["gates"]) else "red"),
            Text(version)]


def _quantity(figure: dict[str, Any] | None, unit_is_said: bool) -> str:
    if figure is None or figure["value"] is None:
        return ""
    value = significant(figure["value"])
    return value if unit_is_said else f"{value} {figure['unit']}"


def shown_entries(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """All, or of many the worst: what was not let through, then what its kind of task calls worst."""
    entries: list[dict[str, Any]] = summary["entries"]
    if len(entries) <= MOST_ROWS:
        return entries
    return sorted(entries, key=lambda entry: (entry["status"] in SETTLED, -_badness(entry)))[:WORST]


def _badness(entry: dict[str, Any]) -> float:
    return -1.0 if entry.get("badness") is None else float(entry["badness"])


def summary_notes(summary: dict[str, Any]) -> list[str]:
    """Lines below the table: what its columns are, counts, what went wrong, where the bundles and the report are."""
    entries, shown = summary["entries"], shown_entries(summary)
    meanings = {figure["name"]: figure["meaning"] for entry in entries for figure in entry["figures"]}
    lines = ["columns: " + "; ".join(f"{name}, {meaning}" for name, meaning in meanings.items())] if meanings else []
    if len(shown) < len(entries):
        lines += _counts(entries)
    said = [entry for entry in shown if _needs_a_reason(entry)]
    lines += [line for entry in said for line in _reason(entry)]
    unsaid = sum(map(_needs_a_reason, entries)) - len(said)
    lines += [f"{unsaid:,} more reasons: in the report"] if unsaid else []
    return [*lines, *_waiting(entries), *_bundles(entries), f"report: {summary['report']}"]


def _needs_a_reason(entry: dict[str, Any]) -> bool:
    """A champion speaks for itself."""
    return bool(entry["status"] != "registered" or role(entry) == "challenger")


def _reason(entry: dict[str, Any]) -> list[str]:
    """Of a challenger, a line for each thing that keeps it from being champion; of a rejected one for each gate."""
    is_new = entry["status"] == "registered" and role(entry) == "challenger"
    first, *others = entry["message"].split("; ") if is_new else [entry["message"]]
    others += [f"{gate['name']}: {gate['reason']}" for gate in (entry.get("gates") or {}).get("gates", ())
               if not gate["passed"]]
    return [f"{shortened(entry['workload'], NAME_WIDTH)}: {first}", *(f"  {other}" for other in others)]


def _waiting(entries: list[dict[str, Any]]) -> list[str]:
    """What a person has to decide, and how."""
    names = [f"{shortened(entry['workload'], NAME_WIDTH)} version {entry['version']}" for entry in entries
             if role(entry) == "challenger"]
    if not names:
        return []
    more = f" and {len(names) - WORST:,} more" if len(names) > WORST else ""
    return [f"wait for a review: {', '.join(names[:WORST])}{more}", "  " + HOW_TO_REVIEW]


def _counts(entries: list[dict[str, Any]]) -> list[str]:
    said = Counter(" as ".join(part for part in (entry["status"], entry["alias"]) if part) for entry in entries)
    lines = [f"{len(entries):,} workloads: " + ", ".join(f"{count:,} {what}" for what, count in said.most_common())]
    first = [entry["figures"][0] for entry in entries if entry["figures"] and entry["figures"][0]["value"] is not None]
    if first:
        name, unit, values = first[0]["name"], first[0]["unit"], [figure["value"] for figure in first]
        lines.append(f"median {name} {significant(median(values))} {unit}, largest {significant(max(values))} {unit}")
    return lines


def _bundles(entries: list[dict[str, Any]]) -> list[str]:
    bundles = [Path(entry["bundle"]) for entry in entries if entry.get("bundle")]
    if len(bundles) <= MOST_ROWS:
        return [f"bundle: {bundle}" for bundle in bundles]
    return [f"bundles: {len(bundles):,} in {bundles[0].parents[1]}, each as WORKLOAD/VERSION"]


def run_exit_code(summary: dict[str, Any]) -> int:
    """0 if every workload was registered with all gates (or had nothing new), else 1."""
    return int(any(entry["status"] not in SETTLED for entry in summary["entries"]))
