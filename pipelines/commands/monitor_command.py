"""`assay monitor`: whether the champions of a task still do what they were promoted for."""

import os
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feature_store.errors import RefusedError
from pipelines.commands.train_commands import MappingOption, SeedOption, TelemetryOption, WorkloadOption
from pipelines.console import (
    ConfigOption,
    JsonOption,
    configuration_from,
    out,
    print_json,
    print_line,
    reported,
    working,
)
from pipelines.notification import Notice, notified, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from models.configuration import Configuration
    from pipelines.monitor import MonitorRequest, Seen


@reported
@notified()
def monitor(
    task: Annotated[str, typer.Option(help="Name of a task, or the path of its YAML.")] = "performance",
    telemetry: TelemetryOption = None, mapping: MappingOption = None, workload: WorkloadOption = None,
    act: Annotated[bool, typer.Option("--act", help="Also do what is decided: train, or roll back.")] = False,
    output: Annotated[Path | None, typer.Option(help="The page; default: monitor/<task>.html in the state "
                                                     "folder.")] = None,
    seed: SeedOption = 0, config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Look at every champion of a task: drift, errors, rewards, its specification on live telemetry; say what to do.

    Reads what is new since the last time: telemetry of predictions, logs of controllers. For cron, every few minutes.
    Exit codes: 0 nothing to do, 1 something is to be done (with --act: it failed), 2 bad usage or input, 3 an
    incident: a proved model broke its specification.

    Example: assay monitor --task performance --telemetry http://prometheus:9090 --mapping map.yaml
    """
    from feature_store.whole_files import require_writable, write_whole
    from models.monitoring.page import page as page_of
    from pipelines.monitor import MonitorRequest
    from pipelines.monitor import monitor as check
    from pipelines.run_lock import LOCK_NAME, MONITOR, BusyError, acquire_run_lock
    from serving.relocation import require_own_home

    configuration = configuration_from(config)
    require_own_home(configuration)
    request = MonitorRequest(task, telemetry, mapping, tuple(workload or ()), act, seed, config)
    now = datetime.now(UTC)
    if output is not None:
        require_writable(output, "page", ())
    with ExitStack() as held:
        try:
            held.enter_context(acquire_run_lock(configuration.home / LOCK_NAME, MONITOR))
        except BusyError as error:  # whatever runs will be over by a later look
            print_json({"status": "busy", "message": str(error)}) if json_output else print_line(str(error))
            return
        with working("looking at the champions", json_output):
            name, seen = check(request, configuration, now, partial(_trained, request, configuration))
    entries = [one.to_json() for one in seen]
    page = output or configuration.home / "monitor" / f"{name}.html"
    write_whole(page, page_of(name, now.isoformat(timespec="seconds"), entries), "page")
    tell(configuration, "assay monitor", _notices(name, seen, str(page)), str(page))
    code = max((one.exit_code for one in seen), default=1)  # no data is never fine
    _show(entries, page, code, now, json_output)
    raise typer.Exit(code)


def _notices(task: str, seen: "Sequence[Seen]", page: str) -> list[Notice]:
    """Incidents, of one version once a day; and what --act tried in vain."""
    from models.monitoring.findings import incidents

    broken = [(one, "; ".join(finding.sentence for finding in incidents(one.looked.findings))) for one in seen]
    found = [Notice("incident", why, task, one.workload, one.version, "specification", page)
             for one, why in broken if why]
    return found + [Notice("run_failed", one.done, task, one.workload, one.version, page=page)
                    for one in seen if one.failed and one.done.startswith("failed: ")]


def _show(entries: list[dict[str, Any]], page: Path, code: int, now: datetime, json_output: bool) -> None:
    if json_output:
        print_json({"status": "looked", "at": now.isoformat(timespec="seconds"), "champions": entries,
                    "page": str(page), "exit_code": code})
        return
    for one in entries:
        version = f" version {one['version']}" if one["version"] is not None else ""
        print_line(f"{one['workload']}{version}: {one['decision']}: {'; '.join(one['reasons'])}")
        for note in one["notes"]:
            print_line(f"  note: {note}")
        if one["done"]:
            print_line(f"  {one['done']}")
    if not entries:
        print_line("no workload of this task is in the ledger yet: run the train pipeline")
    if code == 3:
        print_line("incident: a proved model broke its specification; `assay stop-acting` stops its controllers")
    print_line(f"page: {page}")


def _trained(request: "MonitorRequest", configuration: "Configuration", workloads: tuple[str, ...]) -> str:
    """One run of the train pipeline, as `assay run` makes it. Raises RefusedError: a workload failed, or its gates."""
    from pipelines.local_run import run_local
    from pipelines.request import make_request
    from pipelines.run_display import RunDisplay
    from pipelines.run_summary import run_exit_code

    name = datetime.now(UTC).strftime("monitor-%Y%m%d-%H%M%S-") + f"{os.getpid():05d}"
    run = make_request(request.task, request.telemetry, request.mapping, workloads, request.seed, name,
                       config=request.config)
    with RunDisplay(out, run.workloads, quiet=True) as display:
        outcome = run_local(run, configuration.home, display.show)
    became = ", ".join(f"{entry['workload']}: {entry['alias'] or entry['status']}"
                       for entry in outcome.summary["entries"])
    said = f"trained in run {name} ({became})"
    if run_exit_code(outcome.summary):
        raise RefusedError(said)
    return said
