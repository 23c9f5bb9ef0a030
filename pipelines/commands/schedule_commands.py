"""`assay schedule create | list | delete`: recurring runs on a cluster; runs and monitors in this user's crontab."""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from feature_store.errors import InputError
from pipelines.commands.compile_command import ValuesOption, read_values
from pipelines.commands.train_commands import (
    BudgetOption,
    EndpointOption,
    MappingOption,
    MethodOption,
    ParallelismOption,
    SeedOption,
    ShardsOption,
    TaskOption,
    TelemetryOption,
    WorkloadOption,
)
from pipelines.console import (
    CommandLine,
    ConfigOption,
    JsonOption,
    configuration_from,
    print_json,
    print_line,
    print_table,
    reported,
    working,
)
from pipelines.request import Fanout, check_run_name, make_request
from pipelines.schedules.schedule_info import ScheduleInfo

app = CommandLine(no_args_is_help=True, help="Run the train pipeline, or look at its champions, at set times.")
LocalOption = Annotated[bool, typer.Option("--local", help="This user's crontab (or systemd timers), no cluster.")]
NameOption = Annotated[str | None, typer.Option(help="Name of the schedule; default: train-<task>, monitor-<task>.")]


class Job(StrEnum):
    """What is started at set times."""

    TRAIN = "train"
    MONITOR = "monitor"


@app.command()
@reported
def create(
    cron: Annotated[str, typer.Option(help="Five fields: minute hour day month weekday; of a cluster's time (UTC "
                                           "by default), with --local of this machine's.")],
    job: Annotated[Job, typer.Argument(help="assay run --scheduled, or assay monitor (--local alone).")] = Job.TRAIN,
    act: Annotated[bool, typer.Option("--act", help="For monitor: also do what is decided.")] = False,
    task: TaskOption = "performance", telemetry: TelemetryOption = None,
    mapping: MappingOption = None, workload: WorkloadOption = None, seed: SeedOption = 0, method: MethodOption = None,
    name: NameOption = None, local: LocalOption = False, endpoint: EndpointOption = None, values: ValuesOption = None,
    shards: ShardsOption = None, parallelism: ParallelismOption = None, budget: BudgetOption = None,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Create a schedule, or replace the one of the same name; shows the next three run times.

    Example: assay schedule create --task performance --cron "0 2 * * *" --local
    """
    import tempfile

    from models.tasks.task import load_task
    from pipelines.cluster import create_schedule
    from pipelines.compiled import compile_train
    from pipelines.kfp_connection import resolve_endpoint
    from pipelines.monitor import monitored
    from pipelines.schedules.cron import parse_cron
    from pipelines.schedules.local import create_local_schedule
    from pipelines.schedules.local_job import assay_job, left_out

    parsed, placed = parse_cron(cron), read_values(values)
    if local and placed:
        raise InputError("values: expected a cluster, which they are about, got --local (--values)")
    given = {"method": method, "shards": shards, "parallelism": parallelism, "budget": budget}
    training = [word for option, value in given.items() if value is not None for word in (f"--{option}", str(value))]
    _check(job, act, local, training)
    if job is Job.MONITOR:
        monitored(load_task(task), task)
    request = make_request(task, telemetry, mapping, workload or (), seed, name or "", method, scheduled=True,
                           config=config, fanout=Fanout(shards, parallelism), budget=budget)
    if job is Job.MONITOR:  # a mapping may have a task of its own
        monitored(request.task, task)
    chosen = name or f"{job}-{request.task.name}"
    if local:
        configuration = configuration_from(config)
        # the job runs in another folder and environment: all paths are absolute, and it says which mlflow.yaml
        options = ["--task", str(Path(task).resolve()) if Path(task).suffix else task, "--telemetry", request.telemetry,
                   "--seed", str(seed), "--config", os.environ["ASSAY_CONFIG"],
                   *(["--mapping", str(mapping.resolve())] if mapping else []),
                   *(word for one in workload or () for word in ("--workload", one))]
        command = ["run", *options, *training, "--scheduled"] if job is Job.TRAIN else [
            "monitor", *options, *(["--act"] if act else [])]
        made = create_local_schedule(
            assay_job(chosen, command, directory=Path(__file__).resolve().parents[2], home=configuration.home,
                      environment=os.environ), parsed)
        made = replace(made, notes=(*made.notes, *left_out(os.environ)))
    else:
        arguments = {**request.arguments(), "run_name": check_run_name(chosen)}
        del arguments["data_version"]  # create_schedule makes one
        with working("compiling the pipeline", json_output), tempfile.TemporaryDirectory() as folder:
            package = compile_train(Path(folder) / "train.yaml", request.parallelism, values=placed)
            made = create_schedule(chosen, cron, package, arguments, resolve_endpoint(endpoint, os.environ),
                                   service_account=placed.service_account if placed else None, now=datetime.now(UTC))
    _show([made], json_output)


def _check(job: Job, act: bool, local: bool, training: Sequence[str]) -> None:
    """Raises InputError: options that do not go together."""
    if job is Job.MONITOR:
        if not local:
            raise InputError("monitor: expected this machine (--local), got a cluster; there it is the CronJob "
                             "assay-monitor (docs/recipes/run-on-a-cluster.md)")
        if training:
            raise InputError(f"monitor: expected no option of training alone, got {training[1]} ({training[0]})")
    elif act:
        raise InputError("act: expected `assay schedule create monitor`, got train, which always acts (--act)")


@app.command("list")
@reported
def list_all(local: LocalOption = False, endpoint: EndpointOption = None, json_output: JsonOption = False) -> None:
    """List the schedules.

    Example: assay schedule list --local
    """
    from pipelines.cluster import list_schedules
    from pipelines.kfp_connection import resolve_endpoint
    from pipelines.schedules.local import list_local_schedules

    schedules = list_local_schedules() if local else list_schedules(resolve_endpoint(endpoint, os.environ))
    _show(list(schedules), json_output)


@app.command()
@reported
def delete(
    name: Annotated[str, typer.Argument(help="Name of the schedule.")], local: LocalOption = False,
    endpoint: EndpointOption = None, json_output: JsonOption = False,
) -> None:
    """Delete a schedule.

    Example: assay schedule delete train-performance --local
    """
    from pipelines.cluster import delete_schedule
    from pipelines.kfp_connection import resolve_endpoint
    from pipelines.schedules.local import delete_local_schedule

    gone = delete_local_schedule(name) if local else delete_schedule(name, resolve_endpoint(endpoint, os.environ))
    if json_output:
        print_json({"deleted": gone.name})
    else:
        print_line(f"deleted {gone.name}")


def _show(schedules: list[ScheduleInfo], json_output: bool) -> None:
    if json_output:
        print_json([asdict(one) for one in schedules])
        return
    if not schedules:
        print_line("no schedules")
        return
    table = Table("name", "cron", "next runs", "where", "enabled")
    for one in schedules:
        times = "\n".join(time.strftime("%a %Y-%m-%d %H:%M %Z") for time in one.next_runs)
        table.add_row(one.name, one.cron + (f"\nKFP: {one.kfp_cron}" if one.kfp_cron else ""), times, one.target,
                      "yes" if one.enabled else "no")
    print_table(table)
    for note in dict.fromkeys(note for one in schedules for note in one.notes):
        print_line(f"note: {note}")
