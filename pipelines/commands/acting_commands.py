"""`assay stop-acting` and `resume-acting`: the kill switch that is an entry of the signed ledger."""

from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.registry_commands import ReasonOption, WorkloadOption, open_registry
from pipelines.console import ConfigOption, JsonOption, print_json, print_line, reported, working

if TYPE_CHECKING:
    from serving.ledger_entry import Entry

TaskOption = Annotated[str, typer.Option("--task", "-t", help="Name of the task.")]


@reported
def stop_acting(
    workload: WorkloadOption, task: TaskOption = "autoscaling", reason: ReasonOption = "", config: ConfigOption = None,
    json_output: JsonOption = False,
) -> None:
    """Stop all controllers of a workload by your word: neither policy nor fallback acts, until resume-acting.

    Every controller that follows this ledger obeys within 30 s, and goes on doing so after a restart.

    Example: assay stop-acting --workload nginx --reason "migration tonight"
    """
    with working("writing the ledger", json_output):
        entry = open_registry(config, task, workload).stop_acting(task, workload, reason)
    _told("no controller may act", entry, json_output)


@reported
def resume_acting(
    workload: WorkloadOption, task: TaskOption = "autoscaling", reason: ReasonOption = "", config: ConfigOption = None,
    json_output: JsonOption = False,
) -> None:
    """Let the controllers of a workload act again, after stop-acting; their fallback begins.

    Example: assay resume-acting --workload nginx --reason "migration done"
    """
    with working("writing the ledger", json_output):
        entry = open_registry(config, task, workload).resume_acting(task, workload, reason)
    _told("controllers may act", entry, json_output)


def _told(what: str, entry: "Entry", json_output: bool) -> None:
    if json_output:
        print_json(entry.to_json())
        return
    print_line(f"{what} on {entry.move.task}, {entry.move.workload}: entry {entry.sequence} of the ledger")
