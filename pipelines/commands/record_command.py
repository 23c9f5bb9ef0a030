"""`assay record`: a colocation campaign on this host."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pipelines.console import JsonOption, out, print_json, reported


@reported
def record(
    destination: Annotated[Path, typer.Argument(help="Folder of the data set.")],
    workloads: Annotated[str, typer.Option(help="Comma-separated; default: all.")] = "",
    theta: Annotated[int, typer.Option(help="Most workloads at once.")] = 5,
    combinations: Annotated[int, typer.Option(help="Different combinations to record.")] = 75,
    seconds_per_combination: Annotated[float, typer.Option(help="Seconds each runs, warm-up included.")] = 58.0,
    window_s: Annotated[int, typer.Option(help="Seconds of a window.")] = 2,
    warm_up_s: Annotated[float, typer.Option(help="Seconds cut off at the start.")] = 4.0,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.", min=0)] = 0,
    environment: Annotated[str, typer.Option(help="Name of the environment.")] = "base",
    profile: Annotated[str, typer.Option(help="base or shifted: ranges of properties and interference.")] = "base",
    interference: Annotated[bool, typer.Option(help="stress-ng beside the workloads.")] = True,
    raw: Annotated[Path | None, typer.Option(help="Folder of the raw data; default: DESTINATION/raw.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a campaign that was stopped.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Record real servers under real load on this host, as training telemetry.

    Starts nginx, Redis, MariaDB, a search engine, a training loop, Prometheus and its node exporter on loopback, and
    leaves nothing behind. Example: assay record data/mine --combinations 20 --seed 1
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from recording.campaign import ProgressEvent, record_campaign
    from recording.settings import CampaignSettings

    chosen = {"workloads": tuple(workloads.split(","))} if workloads else {}
    settings = CampaignSettings(
        **chosen, theta=theta, combinations=combinations, seconds_per_combination=seconds_per_combination,
        window_s=window_s, warm_up_s=warm_up_s, seed=seed, environment=environment, profile=profile,
        interference=interference)
    columns = (TextColumn("recording"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, refresh_per_second=1,
                  disable=json_output or not out.is_terminal) as progress:
        bar = progress.add_task("", total=settings.combinations)

        def show(event: ProgressEvent) -> None:
            progress.update(bar, completed=event.finished)
            if not json_output:
                progress.console.print(f"{event.kind}: {event.message}", highlight=False, markup=False)

        command = shlex.join(["assay", "record", str(destination), *settings.options()])
        summary = record_campaign(settings, destination, show, raw=raw, resume=resume, command=command)
    if json_output:
        print_json(vars(summary))
