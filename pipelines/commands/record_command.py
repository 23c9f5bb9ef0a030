"""`assay record`: telemetry of real servers on this host, for the predictor, the autoscaler or another system."""

import importlib
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feature_store.errors import InputError, nearest
from pipelines.console import JsonOption, out, print_json, reported

if TYPE_CHECKING:
    from recording.engine import ProgressEvent

COLOCATION, AUTOSCALING, APPLICATION = "colocation", "autoscaling", "application"
# Options that one task alone has.
_OWN = {
    COLOCATION: ("workloads", "theta", "combinations", "seconds_per_combination", "window_s", "environment", "profile",
                 "interference"),
    AUTOSCALING: ("servers", "utilisations", "point_s", "timeout_s", "most_disturbance_cores", "most_attempts", "trace",
                  "sweeps_only"),
    APPLICATION: ("segments", "segment_s", "requests_per_s"),
}
# Options that some tasks share, and the tasks that lack them.
_LACKING = {"warm_up_s": (APPLICATION,)}


@reported
def record(
    context: typer.Context,
    destination: Annotated[Path, typer.Argument(help="Folder of the data set.")],
    task: Annotated[str, typer.Option(
        help="colocation, autoscaling, or a system that comes with a whole application.")] = COLOCATION,
    workloads: Annotated[str, typer.Option(help="Comma-separated; default: all.")] = "",
    theta: Annotated[int, typer.Option(help="Most workloads at once.")] = 5,
    combinations: Annotated[int, typer.Option(help="Different combinations to record.")] = 75,
    seconds_per_combination: Annotated[float, typer.Option(help="Seconds each runs, warm-up included.")] = 58.0,
    window_s: Annotated[int, typer.Option(help="Seconds of a window.")] = 2,
    warm_up_s: Annotated[float | None, typer.Option(
        help="Seconds cut off at the start; default: 4, for autoscaling 2.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.", min=0)] = 0,
    environment: Annotated[str, typer.Option(help="Name of the environment.")] = "base",
    profile: Annotated[str, typer.Option(help="base or shifted: ranges of properties and interference.")] = "base",
    interference: Annotated[bool, typer.Option(help="stress-ng beside the workloads.")] = True,
    servers: Annotated[str, typer.Option(help="Autoscaling: comma-separated; default: all.")] = "",
    utilisations: Annotated[str, typer.Option(
        help="Autoscaling: offered load of the points, shares of the CPU capacity, comma-separated.")] = "",
    point_s: Annotated[float, typer.Option(help="Autoscaling: seconds in which a point is measured.")] = 6.0,
    timeout_s: Annotated[float, typer.Option(help="Autoscaling: seconds after which a client gives up.")] = 2.0,
    most_disturbance_cores: Annotated[float, typer.Option(
        help="Autoscaling: a point is repeated while other processes use more cores.")] = 0.25,
    most_attempts: Annotated[int, typer.Option(help="Autoscaling: attempts at a point.")] = 3,
    trace: Annotated[str, typer.Option(
        help="Autoscaling: CSV of invocations per minute, as in the Azure Functions trace; default: a made day.")] = "",
    sweeps_only: Annotated[bool, typer.Option(
        "--sweeps-only", help="Autoscaling: points alone, without steps, traces and resizes.")] = False,
    segments: Annotated[int, typer.Option(help="Application: parts of the recording, each kept whole.")] = 24,
    segment_s: Annotated[float, typer.Option(help="Application: seconds of a part.")] = 300.0,
    requests_per_s: Annotated[float, typer.Option(help="Application: usual rate of requests.")] = 30.0,
    write_only: Annotated[bool, typer.Option(
        "--write-only", help="Record nothing, write what a stopped campaign has.")] = False,
    raw: Annotated[Path | None, typer.Option(help="Folder of the raw data; default: DESTINATION/raw.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a campaign that was stopped.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Record real servers under real load on this host, as training telemetry.

    Starts nginx, Redis, MariaDB, a search engine (colocation: a training loop, Prometheus and its node exporter too) on
    loopback, and leaves nothing behind. Example: assay record data/mine --combinations 20 --seed 1;
    assay record --task autoscaling data/scaling-mine --servers nginx
    """
    applications = _applications()
    if task not in (known := (COLOCATION, AUTOSCALING, *applications)):
        raise InputError(f"--task must be one of {', '.join(known)}, got {task!r}: {nearest(task, known)}")
    _refuse_others(context, task, APPLICATION if task in applications else task)
    settings: Any
    chosen: dict[str, Any] = {} if warm_up_s is None else {"warm_up_s": warm_up_s}
    if task in applications:
        campaign = applications[task]()
        recorder = campaign.record
        settings = campaign.ApplicationSettings(
            segments=segments, segment_s=segment_s, requests_per_s=requests_per_s, seed=seed)
    elif task == AUTOSCALING:
        from recording.scaling.campaign import record_scaling as recorder
        from recording.scaling.settings import ScalingSettings

        if servers:
            chosen["servers"] = tuple(servers.split(","))
        if utilisations:
            chosen["utilisations"] = _numbers(utilisations, "--utilisations")
        settings = ScalingSettings(
            **chosen, point_s=point_s, timeout_s=timeout_s,
            most_disturbance_cores=most_disturbance_cores, most_attempts=most_attempts, trace=trace, seed=seed,
            sweeps_only=sweeps_only)
    else:
        from recording.campaign import record_campaign as recorder
        from recording.settings import CampaignSettings

        if workloads:
            chosen["workloads"] = tuple(workloads.split(","))
        settings = CampaignSettings(
            **chosen, theta=theta, combinations=combinations,
            seconds_per_combination=seconds_per_combination, window_s=window_s, seed=seed, environment=environment,
            profile=profile, interference=interference)
    named = [] if task == COLOCATION else ["--task", task]
    command = shlex.join(["assay", "record", *named, str(destination), *settings.options()])
    with _progress(json_output) as show:
        recorded = recorder(settings, destination, show, raw=raw, resume=resume, write_only=write_only, command=command)
    if json_output:
        print_json(vars(recorded))


def _applications() -> dict[str, Callable[[], Any]]:
    """System that comes with a whole application -> what imports its campaign."""
    from models.control.contract.systems import modules_of

    return {name: partial(importlib.import_module, module)
            for name, module in modules_of("application.campaign").items()}


def _refuse_others(context: typer.Context, task: str, kind: str) -> None:
    """Raises InputError where an option of another task was given."""
    lacked = {name: "another task" for name, kinds in _LACKING.items() if kind in kinds}
    others = {name: f"--task {other}" for other, names in _OWN.items() if other != kind for name in names}
    for name, other in (others | lacked).items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option} must go with {other}, got --task {task}: leave it out")


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} must be numbers with commas between them, got {text!r}") from None


@contextmanager
def _progress(json_output: bool) -> "Iterator[Callable[[ProgressEvent], None]]":
    """What shows the events of a campaign: lines, and a bar on a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("recording"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, refresh_per_second=1,
                  disable=json_output or not out.is_terminal) as progress:
        bar = progress.add_task("", total=None)

        def show(event: "ProgressEvent") -> None:
            progress.update(bar, completed=event.finished, total=event.total)
            if not json_output:
                progress.console.print(f"{event.kind}: {event.message}", highlight=False, markup=False)

        yield show
