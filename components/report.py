"""report: one self-contained HTML a version, logged to MLflow, and one for the run."""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.kind import task_and_kind
from components.progress import PROGRESS_VARIABLE, emit, read_events, step
from components.register import REGISTERED
from components.tracking import log_version, project_configuration
from feature_store.names import inside
from models.export.json_file import write_json
from models.tasks.pages import Pages


def run_report(task_yaml: str, run_name: str, features: Path, gated: Path, registered: Path, output: Path) -> Path:
    """Writes <workload>.html, index.html and summary.json under `output` and keeps a copy in the state folder.

    Returns:
        Path of index.html as the user will open it.
    """
    from models.reporting.report import render_run_report, render_version_report

    with step("report"):
        (_, kind), configuration = task_and_kind(task_yaml), project_configuration()
        pages = kind.pages
        kept = inside(configuration.home / "reports", run_name)
        kept.mkdir(parents=True, exist_ok=True)
        output.mkdir(parents=True, exist_ok=True)
        validation = json.loads((features / "validation.json").read_text())
        audits = json.loads((features / "audit.json").read_text())
        correlation = _heat_map(json.loads((features / "correlation.json").read_text()).get("pooled", {}))
        record = json.loads((registered / REGISTERED).read_text())
        entries = []
        for made in record["entries"]:
            name = made["workload"]
            scaling = features / name / "scaling.json"
            entry = {**made, **_documents(gated / name),
                     "scaling": json.loads(scaling.read_text()) if scaling.is_file() else None}
            if entry["contract"]:
                context = {"correlation": correlation, "validation": validation.get(name), "run_name": run_name,
                           "version": made.get("version"), "alias": made.get("alias"), "scaling": entry["scaling"],
                           "data_quality": entry["evidence"]["data"]["quality"], "audit": audits.get(name)}
                page = render_version_report(entry["contract"], entry["evidence"], entry["gates"], context, pages)
                for folder in (output, kept):
                    inside(folder, f"{name}.html").write_text(page, encoding="utf-8")
                entry["report_path"] = f"{name}.html"
                if made.get("run_id"):
                    log_version(configuration, made["run_id"], entry["evidence"], pages.parameters(entry["evidence"]),
                                output / f"{name}.html")
            entries.append(entry)
        page = render_run_report(entries, {"run_id": run_name, "correlation": correlation, "validation": validation,
                                           "source": record["source"], **_times()}, pages)
        for folder in (output, kept):
            (folder / "index.html").write_text(page, encoding="utf-8")
        summary = {"report": str(kept / "index.html"), "entries": [_summary(entry, pages) for entry in entries]}
        write_json(output / "summary.json", summary)
        emit({"event": "result", "summary": summary})
        return kept / "index.html"


def _heat_map(pooled: dict[str, dict[str, float | None]]) -> dict[str, Any]:
    """Pearson coefficients as the report wants them: a row a workload, a column a metric."""
    metrics = list(next(iter(pooled.values()), {}))
    return {"workloads": list(pooled), "metrics": metrics,
            "pearson": [[row[metric] for metric in metrics] for row in pooled.values()]}


def _times() -> dict[str, Any]:
    """When the run started and what its steps took, where the local runner keeps their events."""
    path = os.environ.get(PROGRESS_VARIABLE)
    events = read_events(Path(path))[0] if path else []
    if not events:
        return {}
    stages = [{"name": f"{event['step']} {event['shard']}".strip(), "seconds": event["seconds"],
               "peak_mb": event["peak_mb"]} for event in events if event["event"] == "end"]
    started = datetime.fromtimestamp(events[0]["at"], UTC)
    return {"stages": stages, "started": started.strftime("%Y-%m-%d %H:%M:%S UTC"),
            "seconds": time.time() - events[0]["at"]}


def _documents(folder: Path) -> dict[str, Any]:
    return {name: json.loads((folder / f"{name}.json").read_text()) if (folder / f"{name}.json").is_file() else None
            for name in ("contract", "evidence", "gates")}


def _summary(entry: dict[str, Any], pages: Pages) -> dict[str, Any]:
    """What the command line prints about a workload."""
    evidence = entry["evidence"] or {}
    figures = [vars(figure) for figure in pages.figures(evidence)] if evidence else []
    keys = ("workload", "status", "message", "model", "version", "alias", "bundle", "report_path")
    return {**{key: entry.get(key) for key in keys}, "metrics": evidence.get("metrics"), "figures": figures,
            "badness": pages.badness(evidence),
            "verdict": evidence.get("verdict", {}).get("status"), "gates": entry["gates"]}
