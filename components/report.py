"""report: the page of the run, an index of its versions' pages, and its summary."""

import json
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.kind import task_and_kind
from components.pages import documents, heat_map
from components.progress import PROGRESS_VARIABLE, emit, read_events, step
from components.register import REGISTERED
from components.tracking import project_configuration
from feature_store.names import inside
from models.export.json_file import write_json
from models.tasks.pages import Pages

# Of a workload the run's page shows figures; its curves stand in its own page.
IN_ITS_OWN_PAGE = ("curves", "history", "cases", "champion")


def run_report(task_yaml: str, run_name: str, features: Path, gated: Path, registered: Path, pages: list[Path],
               output: Path) -> Path:
    """Writes index.html, every version's page and summary.json under `output`; keeps a copy in the state folder.

    Args:
        pages: what the `pages` step left, a folder a shard.

    Returns:
        Path of index.html as the user will open it.
    """
    from models.reporting.report import render_run_report

    with step("report"):
        (_, kind), configuration = task_and_kind(task_yaml), project_configuration()
        kept = inside(configuration.home / "reports", run_name)
        kept.mkdir(parents=True, exist_ok=True)
        output.mkdir(parents=True, exist_ok=True)
        record = json.loads((registered / REGISTERED).read_text())
        made = {page.stem for folder in pages for page in folder.glob("*.html")}
        for folder in pages:
            shutil.copytree(folder, output, dirs_exist_ok=True)
        entries = []
        for registration in record["entries"]:
            name = registration["workload"]
            entry = {**registration, **documents(gated / name)}
            if entry["evidence"]:
                entry["evidence"] = {key: value for key, value in entry["evidence"].items()
                                     if key not in IN_ITS_OWN_PAGE}
            if name in made:
                entry["report_path"] = f"{name}.html"
            entries.append(entry)
        page = render_run_report(entries, {
            "run_id": run_name, "correlation": heat_map(features), "source": record["source"],
            "validation": json.loads((features / "validation.json").read_text()), **_times()}, kind.pages)
        for folder in (output, kept):
            (folder / "index.html").write_text(page, encoding="utf-8")
        summary = {"report": str(kept / "index.html"), "entries": [_summary(entry, kind.pages) for entry in entries]}
        write_json(output / "summary.json", summary)
        emit({"event": "result", "summary": summary})
        return kept / "index.html"


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


def _summary(entry: dict[str, Any], pages: Pages) -> dict[str, Any]:
    """What the command line prints about a workload."""
    from models.reporting.reading import role

    evidence = entry["evidence"] or {}
    figures = [vars(figure) for figure in pages.figures(evidence)] if evidence else []
    keys = ("workload", "status", "message", "model", "version", "alias", "bundle", "report_path")
    return {**{key: entry.get(key) for key in keys}, "role": role(entry),
            "metrics": evidence.get("metrics"), "figures": figures, "badness": pages.badness(evidence),
            "verdict": evidence.get("verdict", {}).get("status"), "gates": entry["gates"]}
