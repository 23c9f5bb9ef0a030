"""The two reports: of one model version, and of a run over all workloads.

Flow: the report step reads contract.json, evidence.json and gates.json of each bundle and what the run
recorded, calls these, and logs the HTML beside the version. Whatever is None or absent is said in words.
What a kind of task shows of its models comes from its `Pages` (models/tasks/pages.py). Source: vPALs, figure 2
(correlation).
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from models.gates import finite_number
from models.reporting import data_sections, plots, sections
from models.reporting.decision import first_screen
from models.reporting.document import (
    Badge,
    Cell,
    Document,
    Facts,
    Note,
    Part,
    Plot,
    Section,
    Table,
    render,
)
from models.reporting.formatting import count, duration, number, words
from models.reporting.promises import PROVED, REFUTED
from models.reporting.reading import at, column, items, mapping, mappings, role
from models.reporting.witness import replayed_witness
from models.tasks.pages import Pages

Json = Mapping[str, Any]

BEFORE, AFTER = ("Workload", "Status"), ("Verdict", "Time", "Gates", "Version")  # columns around the kind's own


def render_version_report(contract: Json | None, evidence: Json | None, gates: Json | None, context: Json,
                          pages: Pages) -> str:
    """One HTML page about one model version.

    Args:
        contract: content of contract.json.
        evidence: content of evidence.json.
        gates: content of gates.json; None where the gates were not evaluated.
        context: of the run; every key may be absent. `version` and `alias` in the registry, `role` in the ledger
            ("champion", "challenger" or None; absent: as the alias says); `decision`: why it got that role;
            `champion` as the gate step measured it, None where there was none (absent: that of the evidence);
            `correlation` {"workloads", "metrics", "pearson": rows of a workload each}; `data_quality`, free in form;
            `validation` {"passed", "failures"}; `audit`, free in form; `scaling`, the content of scaling.json,
            without which a counterexample is shown in scaled units.
        pages: of the task's kind.
    """
    workload = _workload({"contract": contract, "evidence": evidence})
    if isinstance(evidence, Mapping) and "champion" in context:
        evidence = {**evidence, "champion": context["champion"]}
    scaling = mapping(context, "scaling")
    parts = (
        *([("counterexample", "The counterexample", tuple(replayed_witness(evidence)))]
          if at(evidence, "verdict", "status") == REFUTED else []),
        ("gates", "Gates", sections.gate_table(gates, evidence)),
        *pages.sections(contract, evidence, scaling, "v"),
        *([("audit", "Audit", data_sections.audit(context["audit"]))] if context.get("audit") else []),
        ("data", "Data", data_sections.data_quality(contract, evidence, context)),
        ("reproduce", "How to reproduce", data_sections.reproduce(contract, evidence)),
        *([("correlation", "Correlation", data_sections.correlation(context, workload, "v"))]
          if has_correlation(context) else []),
    )
    task = at(contract, "task") or at(evidence, "task") or "unknown task"
    return render(Document(f"{task} / {workload}", f"Report of a model version: {_version(context)}", (),
                           first_screen(contract, evidence, gates, context, pages),
                           tuple(Section(*part) for part in parts)))


def render_run_report(entries: Sequence[Json], context: Json, pages: Pages) -> str:
    """One HTML page about a run over all workloads.

    Args:
        entries: one a workload: `contract`, `evidence`, `gates` as above or None, `workload` (needed where
            contract and evidence are None), `version`, `alias`, `role`, `status` (one word), `message` (why it
            stopped), `report_path` (of its version report, relative to this page).
        context: as above, and `run_id`, `started`, `seconds`, `stages` [{"name", "seconds", "peak_mb"}].
        pages: of the task's kind.
    """
    parts: list[tuple[str, str, tuple[Part, ...]]] = [
        ("overview", "Workloads", (_overview(entries, pages),)),
        *pages.run_sections(entries),
    ]
    if context.get("audit"):
        parts.append(("audit", "Audit", data_sections.audit(context["audit"])))
    if isinstance(at(context, "validation", "passed"), bool) or context.get("data_quality"):
        every = {side: [item for entry in entries for item in mappings(entry, "contract", side)]
                 for side in ("inputs", "outputs")}
        parts.append(("data", "Data", data_sections.data_quality(every, None, context)))
    if has_correlation(context):
        parts.append(("correlation", "Correlation", data_sections.correlation(context, "", "run")))
    parts.append(("stages", "Stages", _stages(context)))
    proved = sum(at(entry, "evidence", "verdict", "status") == PROVED for entry in entries)
    passed = sum(at(entry, "gates", "passed") is True for entry in entries)
    started = context.get("started")
    facts = Facts((("Started", str(started) if started else number(None), ""),
                   ("Took", duration(context.get("seconds")), ""),
                   ("Proved", f"{proved} of {len(entries)}", "workloads"),
                   ("Let through by the gates", f"{passed} of {len(entries)}", "workloads")))
    tasks = sorted({str(task) for entry in entries for task in [at(entry, "contract", "task") or
                                                                at(entry, "evidence", "task")] if task})
    badge = Badge(f"{passed} of {count(len(entries), 'workload')} let through",
                  "good" if entries and passed == len(entries) else "open" if passed else "bad")
    return render(Document(f"Run {context.get('run_id') or 'without an id'}",
                           f"Task {', '.join(tasks) or 'not recorded'}", (badge,), (facts,),
                           tuple(Section(*part) for part in parts), wide=True))


def has_correlation(context: Json) -> bool:
    """Whether the kind of task correlates anything; a context that says nothing of it misses it."""
    return "correlation" not in context or bool(items(context, "correlation", "metrics"))


def _overview(entries: Sequence[Json], pages: Pages) -> Part:
    if not entries:
        return Note("The run has no workload.", "missing")
    columns = pages.columns(entries)
    names = (*BEFORE, *columns.names, *AFTER)
    groups = (("", len(BEFORE)), *columns.groups, ("Verification", 2), ("", len(AFTER) - 2))
    rows: list[tuple[Cell, ...]] = []
    for entry in entries:
        rows.append(_overview_row(entry, pages, len(columns.names)))
        new_champion = role(entry) == "champion" and entry.get("status") != "unchanged"
        if entry.get("message") and not new_champion:  # that one speaks for itself
            rows.append((Cell(""), Cell(_why(entry), span=len(names) - 1)))
    return Table(names, tuple(rows), groups=groups, sortable=len(entries) > 1,
                 note=f"A workload's name leads to its report. {columns.note}")


def _why(entry: Json) -> str:
    """The message of an entry; of a version that was let through it is the reason for its alias."""
    message = str(entry["message"])
    return f"{entry['alias']}: {message}" if entry.get("alias") else message


def _overview_row(entry: Json, pages: Pages, columns: int) -> tuple[Cell, ...]:
    evidence, gates = entry.get("evidence"), entry.get("gates")
    metrics = mapping(evidence, "metrics")
    verdict, gate = sections.verdict_badge(evidence), sections.gates_badge(gates)
    results = mappings(gates, "gates")
    held = f"{sum(g.get('passed') is True for g in results)} of {len(results)}" if results else "none"
    alias = f" {entry['alias']}" if entry.get("alias") else ""
    version = "none" if entry.get("version") is None else f"{entry['version']}{alias}"
    seconds = metrics.get("verification_seconds", at(evidence, "verdict", "seconds"))
    name = Cell(_workload(entry), strong=True, link=_link(entry.get("report_path")))
    status = Cell(words(entry.get("status") or "not recorded"))
    if not metrics:
        return name, status, Cell("no evidence", span=columns + 2), Cell(held, tone=gate.tone), Cell(version)
    return (name, status, *pages.cells(evidence), Cell(verdict.text, tone=verdict.tone),
            Cell(duration(seconds), numeric=True, sort=finite_number(seconds)),
            Cell(held, tone=gate.tone), Cell(version))


def _stages(context: Json) -> tuple[Part, ...]:
    stages = mappings(context, "stages")
    if not stages:
        return (Note("The times of the stages were not recorded.", "missing"),)
    seconds = column(stages, "seconds")
    hidden = len(stages) - plots.MOST_STAGES
    return (Plot(plots.stage_times(stages, seconds, "run-stages"), plots.FULL_WIDTH,
                 "Wall time and peak memory of each stage."
                 + (f" The {hidden} shortest are left out." if hidden > 0 else "")),)


def _workload(entry: Json) -> str:
    named = entry.get("workload") or at(entry, "contract", "workload") or at(entry, "evidence", "workload")
    return str(named or "unknown workload")


def _version(context: Json) -> str:
    version, alias = context.get("version"), context.get("alias")
    return "no version yet" if version is None else f"version {version}" + (f", {alias}" if alias else "")


def _link(path: Any) -> str:
    """The path as an address; empty where there is none, or where it would be another thing than a page."""
    if not path:
        return ""
    scheme = urlsplit(str(path)).scheme
    if scheme:
        return str(path) if scheme in ("http", "https", "file") else ""
    return quote(str(path))
