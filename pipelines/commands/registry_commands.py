"""`assay promote`, `rollback`, `retire`, `history`, `audit-registry`, `adopt` and `ui`: registered versions."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feature_store.errors import InputError
from pipelines.commands.known_names import require_known
from pipelines.console import (
    ConfigOption,
    JsonOption,
    configuration_from,
    line_width,
    print_json,
    print_line,
    reported,
    working,
)
from pipelines.history_lines import history_lines
from pipelines.notification import Notice, notified, tell

if TYPE_CHECKING:
    from models.configuration import Configuration

SHOWN = 20  # moves

TaskOption = Annotated[str, typer.Option(help="Name of the task.")]
WorkloadOption = Annotated[str, typer.Option("--workload", "-w", help="Name of the workload.")]
ReasonOption = Annotated[str, typer.Option(help="Why; goes into the ledger.")]


@reported
@notified()
def promote(
    workload: Annotated[str | None, typer.Option("--workload", "-w", help="Name of the workload.")] = None,
    task: Annotated[
        str | None, typer.Option(help="Name of the task; default: performance; with --pending: all.")] = None,
    version: Annotated[int | None, typer.Option(help="Version to promote; default: the challenger.")] = None,
    reason: ReasonOption = "",
    override_gates: Annotated[
        bool, typer.Option("--override-gates", help="Promote although a gate fails; goes into the ledger.")] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="Do what reviewers decided by the tag assay.review in MLflow.")] = False,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Make a version champion by your word; it must pass all gates of mlflow.yaml as it is now.

    In what it promises less than the champion is shown, a line each, and written into the ledger. With --pending, for a
    schedule: every version on whose page in MLflow somebody set the tag assay.review to approve is promoted, to reject
    taken out. The exit code is 1 where one was refused.

    Example: assay promote --workload redis --reason "reviewed"
    """
    if pending:
        if version is not None or reason or override_gates:
            raise InputError("--pending must stand without --version, --reason and --override-gates: the tags say them")
        carry_out_reviews(config, task, workload, json_output)
        return
    if workload is None:
        raise InputError("--workload must be given, or --pending for what reviewers decided in MLflow")
    task = task or "performance"
    with working("promoting", json_output):
        made = open_registry(config, task, workload).promote(task, workload, version, reason, override_gates)
    _moved("promoted", made, json_output)


@reported
@notified()
def rollback(
    workload: WorkloadOption, task: TaskOption = "performance", reason: ReasonOption = "",
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Make the champion before the present one champion again.

    Example: assay rollback --workload redis --reason "latency alarms since the switch"
    """
    with working("rolling back", json_output):
        made = open_registry(config, task, workload).rollback(task, workload, reason)
    _moved("rolled back", made, json_output)


@reported
@notified()
def retire(
    workload: WorkloadOption, version: Annotated[int, typer.Option(help="Version to take out.")],
    task: TaskOption = "performance", reason: ReasonOption = "", config: ConfigOption = None,
    json_output: JsonOption = False,
) -> None:
    """Take a version out for good, also where its bundle is lost; of the champion, the one before it stands again.

    Example: assay retire --workload redis --version 1 --reason "deleted in the registry"
    """
    with working("retiring", json_output):
        made = open_registry(config, task, workload).retire(task, workload, version, reason)
    drifts = [str(drift) for drift in made.drifts]
    if json_output:
        print_json({"model": made.model, "version": made.version, "champion": made.champion, "drifts": drifts})
        return
    for drift in drifts:
        print_line(f"note: {drift}")
    now = f"version {made.champion} is champion"
    if made.champion is None:
        now = "there is no champion now: the next version that passes its gates becomes it, or `assay promote`"
    print_line(f"retired: {made.model} version {made.version}; {now}")


@reported
def history(
    workload: Annotated[str | None, typer.Option("--workload", "-w", help="Only this workload.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    rows: Annotated[int, typer.Option(help="Latest moves to show; 0: all.", min=0)] = SHOWN,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Show the moves of the promotion ledger, the latest last, after checking its chain, its signatures and its end.

    Example: assay history --workload redis
    """
    entries: tuple[Any, ...] = ()
    configuration = configuration_from(config)
    if configuration.home.exists() or isinstance(configuration.ledger_path, str):  # else reading would make them
        with working("checking the ledger", json_output):
            entries = _open(configuration).history()
    require_known(((entry.move.task, entry.move.workload) for entry in entries if entry.move.task), task, workload)
    found = [entry.to_json() for entry in entries
             if task in (None, entry.move.task) and workload in (None, entry.move.workload)]
    if json_output:
        print_json(found)
        return
    if not found:
        print_line("the ledger has no entries yet")
        return
    shown = found[-rows:]
    for line in history_lines(shown, line_width()):
        print_line(line)
    earlier = f"; the {len(found) - len(shown):,} before them: --rows 0" if len(shown) < len(found) else ""
    print_line(f"{len(shown):,} of {len(found):,} entries{earlier}")
    print_line(f"chain, signatures and end hold; head of the ledger, to pin with --least-head:\n{entries[-1].head}")


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
    print_line(f"adopted: {made.home}; {made.paths} paths led to {made.before} before")


@reported
def ui(
    port: Annotated[int, typer.Option(help="Port on loopback; 0: any free one.", min=0, max=65535)] = 5000,
    config: ConfigOption = None,
) -> None:
    """Open MLflow's web page on loopback; Ctrl-C ends it.

    Example: assay ui --port 5000
    """
    from pipelines.mlflow_page import free_port, serve
    from serving.registry import Registry

    configuration = configuration_from(config)
    chosen, why = free_port(port)
    if why:
        print_line(f"note: {why}")
    print_line(f"starting MLflow on port {chosen} ...")
    Registry(configuration)  # makes the database where it is new

    def ready(address: str) -> None:
        print_line(f"registered models: {address}/#/models\nruns: {address}  (Ctrl-C ends it)")

    raise typer.Exit(serve(configuration.tracking_uri, chosen, configuration.home / "logs" / "ui.log", ready))


@reported
@notified()
def audit_registry(
    heal: Annotated[bool, typer.Option("--heal", help="Set aliases, tags and descriptions to what the ledger and the "
                                                      "bundles say; no artifact or version is touched.")] = False,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Hold MLflow's registry against the ledger: every alias, version, tag and bundle; a line for each that is wrong.

    Safe beside a run, and to repeat. The exit code is 1 where something is wrong, after --heal where it still is.

    Example: assay audit-registry
    """
    configuration = configuration_from(config)
    healed: tuple[Any, ...] = ()
    left: tuple[Any, ...] = ()
    if configuration.home.exists() or isinstance(configuration.ledger_path, str):  # else reading would make them
        with working("auditing the registry", json_output):
            registry = _open(configuration)
            if heal:
                registry.clean_up()
                healing = registry.registry_audit.heal()
                healed, left = healing.healed, healing.left
            else:
                left = registry.registry_audit.audit()
    if json_output:
        print_json({"wrong": [_finding(one) for one in left], "healed": [_finding(one) for one in healed]})
    else:
        for one in healed:
            print_line(f"set right: {one}")
        for one in left:
            print_line(str(one))
        print_line(f"{len(left):,} wrong" if left else "the registry is as the ledger and the bundles say")
    if left:
        first, more = str(left[0]), f"; and {len(left) - 1:,} more" if len(left) > 1 else ""
        tell(configuration, "assay audit-registry",
             [Notice("incident", first + more, once="\n".join(sorted(map(str, left))))])
    raise typer.Exit(int(bool(left)))


def _finding(one: Any) -> dict[str, Any]:
    return {key: getattr(one, key) for key in ("model", "version", "what", "expected", "found", "remedy")}


def carry_out_reviews(config: Path | None, task: str | None, workload: str | None, json_output: bool) -> None:
    """Carries out what reviewers decided in MLflow, and prints a line for each; then what still waits.

    Raises:
        typer.Exit: with 1 where one was refused, or could not be done now.
    """
    with working("carrying out reviews", json_output):
        reviews = open_registry(config, task, workload).reviews
        done, waiting = reviews.carry_out(task, workload), reviews.waiting(task, workload)
    if json_output:
        print_json({"reviews": [vars(one) for one in done], "waiting": [vars(one) for one in waiting]})
    else:
        for one in done:
            by = f" by {one.by}" if one.by else ""
            print_line(f"{one.outcome}{by}: {one.model} version {one.version}: {one.message}")
        for one in waiting:
            print_line(f"waits for a review: {one.model} version {one.version}")
        if not done and not waiting:
            print_line("no version waits for a review")
    raise typer.Exit(int(any(one.outcome in ("refused", "postponed") for one in done)))


def open_registry(config: Path | None, task: str | None, workload: str | None) -> Any:
    """The registry; a name that its ledger does not know is refused first."""
    from serving.ledger import Ledger

    configuration = configuration_from(config)
    require_known(Ledger(configuration.ledger_path, configuration.public_key_path).standings(), task, workload)
    return _open(configuration)


def _open(configuration: "Configuration") -> Any:
    from serving.registry import Registry

    return Registry(configuration, actor=_person())


def _person() -> str:
    """Who gave the command; in a pod the user may have no name."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def _moved(what: str, made: Any, json_output: bool) -> None:
    if json_output:
        print_json({"model": made.model, "version": made.version, "previous_version": made.previous_version,
                    "notes": list(made.notes), "drifts": [str(drift) for drift in made.drifts]})
        return
    for drift in made.drifts:
        print_line(f"note: {drift}")
    for note in made.notes:
        print_line(note)
    before = f" (before: {made.previous_version})" if made.previous_version else ""
    print_line(f"{what}: {made.model} version {made.version} is champion{before}")
