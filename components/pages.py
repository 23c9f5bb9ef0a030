"""pages: one self-contained HTML page for each version of a shard, logged to MLflow beside the version."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from components.gate import CHAMPIONS
from components.kind import task_and_kind
from components.progress import step
from components.register import REGISTERED
from components.tracking import log_version, project_configuration, run_without_page
from feature_store.names import inside
from models.configuration import Configuration
from models.tasks.attempts import attempt
from models.tasks.pages import Pages

AGAIN = ("unchanged", "no new data")  # of a version that an earlier run has made
DOCUMENTS = ("contract", "evidence", "gates")


def run_pages(task_yaml: str, workloads: list[str], run_name: str, features: Path, gated: Path, registered: Path,
              output: Path) -> None:
    """Writes <workload>.html under `output` and keeps a copy in the state folder; a workload that failed has none.

    Raises:
        UnavailableError: MLflow or its artifact store is away. All pages are made; the next run with this data logs
            them.
    """
    with step("pages", workloads) as progress:
        (_, kind), configuration = task_and_kind(task_yaml), project_configuration()
        output.mkdir(parents=True, exist_ok=True)
        entries = {entry["workload"]: entry for entry in json.loads((registered / REGISTERED).read_text())["entries"]}
        shared = {name: json.loads((features / f"{name}.json").read_text()) for name in ("validation", "audit")}
        context = {"run_name": run_name, "correlation": heat_map(features)}
        champions = json.loads((gated / CHAMPIONS).read_text())
        for name in workloads:
            about = {**{key: value.get(name) for key, value in shared.items()}, "champion": champions.get(name)}
            message = attempt(partial(_page, configuration, kind.pages, entries[name], gated / name, features / name,
                                      {**context, **about}, output))
            progress.note(f"{name} has no page: {message}" if message else "")
            progress.done(name)
        for name in workloads:
            message = attempt(partial(_log, configuration, kind.pages, entries[name], gated / name,
                                      inside(output, f"{name}.html")))
            progress.note(f"the page of {name} is not in MLflow: {message}" if message else "")


def _page(configuration: Configuration, pages: Pages, entry: dict[str, Any], bundle: Path, features: Path,
          context: dict[str, Any], output: Path) -> None:
    from models.reporting.reading import role
    from models.reporting.report import render_version_report

    found = documents(bundle)
    if not found["contract"]:
        return
    page = render_version_report(found["contract"], found["evidence"], found["gates"], {
        **context, "version": entry.get("version"), "alias": entry.get("alias"), "role": role(entry),
        "scaling": scaling_of(features),
        "decision": entry.get("reason"),
        "data_quality": found["evidence"]["data"]["quality"]}, pages)
    kept = inside(configuration.home / "reports", context["run_name"])
    kept.mkdir(parents=True, exist_ok=True)
    for folder in (output, kept):
        inside(folder, f"{bundle.name}.html").write_text(page, encoding="utf-8")


def _log(configuration: Configuration, pages: Pages, entry: dict[str, Any], bundle: Path, page: Path) -> None:
    """To the version's MLflow run; also to that of a run before, which could not do it."""
    found = documents(bundle)
    if not found["contract"] or not page.is_file():
        return
    run_id = entry.get("run_id")
    if not run_id and entry["status"] in AGAIN:
        run_id = run_without_page(configuration, found["contract"], page.name)
    if run_id:
        log_version(configuration, run_id, found["evidence"], pages.parameters(found["evidence"]), page)


def documents(bundle: Path) -> dict[str, Any]:
    """The JSON files of a bundle by name; None for one that is not there."""
    return {name: json.loads((bundle / f"{name}.json").read_text()) if (bundle / f"{name}.json").is_file() else None
            for name in DOCUMENTS}


def scaling_of(features: Path) -> Any:
    """The content of scaling.json; None where the kind of task has none."""
    path = features / "scaling.json"
    return json.loads(path.read_text()) if path.is_file() else None


def heat_map(features: Path) -> dict[str, Any]:
    """Pearson coefficients as the report wants them: a row a workload, a column a metric."""
    pooled = json.loads((features / "correlation.json").read_text())["pooled"]
    metrics = list(next(iter(pooled.values()), {}))
    return {"workloads": list(pooled), "metrics": metrics,
            "pearson": [[row[metric] for metric in metrics] for row in pooled.values()]}
