"""`assay promote`, `rollback`, `retire`, `history`, `adopt` and `ui`: what a reviewer does with registered versions."""

from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.console import ConfigOption, JsonOption, configuration_from, out, print_json, reported

TaskOption = Annotated[str, typer.Option(help="Name of the task.")]
WorkloadOption = Annotated[str, typer.Option("--workload", "-w", help="Name of the workload.")]
ReasonOption = Annotated[str, typer.Option(help="Why; goes into the ledger.")]


@reported
def promote(
    workload: WorkloadOption, task: TaskOption = "performance",
    version: Annotated[int | None, typer.Option(help="Version to promote; default: the challenger.")] = None,
    reason: ReasonOption = "", config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Make a version champion by your word; it must have passed all gates.

    Example: assay promote --workload redis --reason "reviewed"
    """
    made = _registry(config).promote(task, workload, version, reason)
    _moved("promoted", made, json_output)


@reported
def rollback(
    workload: WorkloadOption, task: TaskOption = "performance", reason: ReasonOption = "",
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Make the champion before the standing one champion again.

    Example: assay rollback --workload redis --reason "latency alarms since the switch"
    """
    _moved("rolled back", _registry(config).rollback(task, workload, reason), json_output)


@reported
def retire(
    workload: WorkloadOption, version: Annotated[int, typer.Option(help="Version to take out.")],
    task: TaskOption = "performance", reason: ReasonOption = "", config: ConfigOption = None,
    json_output: JsonOption = False,
) -> None:
    """Take a version out for good, also where its bundle is lost; of the champion, the one before it stands again.

    Example: assay retire --workload redis --version 1 --reason "deleted in the registry"
    """
    made = _registry(config).retire(task, workload, version, reason)
    drifts = [str(drift) for drift in made.drifts]
    if json_output:
        print_json({"model": made.model, "version": made.version, "champion": made.champion, "drifts": drifts})
        return
    for drift in drifts:
        out.print(f"note: {drift}", highlight=False, soft_wrap=True)
    now = f"version {made.champion} is champion"
    if made.champion is None:
        now = "there is no champion now: the next version that passes its gates becomes it, or `assay promote`"
    out.print(f"retired: {made.model} version {made.version}; {now}", highlight=False, soft_wrap=True)


@reported
def history(
    workload: Annotated[str | None, typer.Option("--workload", "-w", help="Only this workload.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Show every move of the promotion ledger, after checking its chain, its signatures and its end.

    Example: assay history --workload redis
    """
    entries: tuple[Any, ...] = ()
    if configuration_from(config).home.exists():  # else there is no registry either, and reading makes none
        entries = _registry(config).history(task, workload)
    rows = [entry.to_json() for entry in entries]
    if json_output:
        print_json(rows)
        return
    if not rows:
        out.print("the ledger has no entries yet")
        return
    table = Table("#", "when", "action", "task", "workload", "version", "instead of", "reason", "by")
    shown = ("sequence", "at", "action", "task", "workload", "version", "previous_version", "reason", "actor")
    for row in rows:
        table.add_row(*["" if row.get(key) is None else str(row[key]) for key in shown])
    out.print(table)
    out.print(f"{len(rows)} entries; chain, signatures and end hold; the last one's head, to pin with --least-head:\n"
              f"{entries[-1].head}", highlight=False, soft_wrap=True)


@reported
def adopt(config: ConfigOption = None, json_output: JsonOption = False) -> None:
    """Make a copied or moved state folder its own: its database names the old place until then, and is refused.

    The state folder is the configuration's ($ASSAY_HOME, or .assay beside mlflow.yaml). No run may be at work in it.
    The original, where it is still there, is left as it is.

    Example: assay adopt --config /srv/copy/mlflow.yaml
    """
    from serving.relocation import adopt as adopt_home

    made = adopt_home(configuration_from(config))
    if json_output:
        print_json({"home": str(made.home), "before": str(made.before), "paths": made.paths})
        return
    out.print(f"adopted: {made.home}; {made.paths} paths led to {made.before} before", highlight=False, soft_wrap=True)


@reported
def ui(
    port: Annotated[int, typer.Option(help="Port on loopback; 0: any free one.")] = 5000, config: ConfigOption = None,
) -> None:
    """Open MLflow's web page on loopback; Ctrl-C ends it.

    Example: assay ui --port 5000
    """
    import os
    import socket
    import subprocess
    import sys

    from serving.registry import Registry

    configuration = configuration_from(config)
    Registry(configuration)  # makes the database where it is new
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    out.print(f"http://127.0.0.1:{port}  (Ctrl-C ends it)", highlight=False)
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", configuration.tracking_uri, "--host",
               "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    raise typer.Exit(subprocess.call(command, env=environment))


def _registry(config: Any) -> Any:
    import getpass

    from serving.registry import Registry

    return Registry(configuration_from(config), actor=getpass.getuser())


def _moved(what: str, made: Any, json_output: bool) -> None:
    if json_output:
        print_json({"model": made.model, "version": made.version, "previous_version": made.previous_version,
                    "drifts": [str(drift) for drift in made.drifts]})
        return
    for drift in made.drifts:
        out.print(f"note: {drift}", highlight=False, soft_wrap=True)
    before = f" (before: {made.previous_version})" if made.previous_version else ""
    out.print(f"{what}: {made.model} version {made.version} is champion{before}", highlight=False)
