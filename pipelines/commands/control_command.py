"""`assay control`: a controller that acts."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.known_names import require_in_ledger
from pipelines.console import (
    GENERIC,
    ConfigOption,
    JsonOption,
    KeyOption,
    configuration_from,
    print_json,
    print_line,
    print_note,
    reported,
    working,
)
from serving.control.kill_switch import hold_signal
from serving.lines import Lines


@reported
def control(
    workload: Annotated[str, typer.Option("--workload", "-w", help="Whose champion acts.")],
    controller: Annotated[Path, typer.Option(help="Controller file: measurements, shield, waiting times.")],
    task: Annotated[str | None, typer.Option(
        help="Task of the champion; default: the bundle's, or that of the workload's one champion.")] = None,
    actuator: Annotated[str, typer.Option(help="What carries targets out: dry-run, cgroup, kubernetes, or the import "
                                               "path of a module; watch, with --shadow alone.")] = "dry-run",
    shadow: Annotated[bool, typer.Option("--shadow", help="Decide beside what sets it now, and set nothing.")] = False,
    every: Annotated[float | None, typer.Option(help="Seconds between two steps; default: as the policy was trained.")
                     ] = None,
    give_back: Annotated[bool | None, typer.Option(
        "--give-back/--leave",
        help="At the end set what was found at the beginning; default: as the actuator does: control groups, clocks "
             "and senders do, Deployments do not.")
        ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="End after so many; default: never.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="A bundle folder instead of the registry's champion.")] = None,
    generic: Annotated[bool, typer.Option("--generic", help="The policy that ships with Assay for services of all "
                                                            "kinds, with --shadow alone.")] = False,
    public_key: KeyOption = None,
    folder: Annotated[Path | None, typer.Option(
        help="Log and memory of this controller; default: controllers/<task>/<workload> in the state folder, "
             "shadow/<task>/<workload> with --shadow.")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Serve /metrics for Prometheus there.")
                            ] = None,
    metrics_address: Annotated[str, typer.Option(help="Address that /metrics is served at.")] = "127.0.0.1",
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Act on a workload with its proved policy: observe, check, decide, shield, act, log.

    The champion is followed while it acts. Where the policy may not decide, its fallback does, and the line says why.
    The file STOP in the controller's folder, SIGUSR1, or `assay stop-acting` stops all acting; Ctrl-C ends it.

    Example: assay control --task autoscaling --workload nginx --controller controller.yaml

    Example: assay control --shadow --workload shop --controller controller.yaml --actuator watch

    Before anything is trained: assay control --generic --shadow -w shop --controller controller.yaml --actuator watch
    """
    hold_signal()
    from serving.control.start import ControlRequest, json_of, keyed, line_of, was_started
    from serving.control.start import control as run_controller

    request = ControlRequest(workload, controller, task, actuator, every, give_back, steps, bundle, public_key, folder,
                             metrics_port, metrics_address, shadow, GENERIC if generic else None)
    configuration = keyed(request, configuration_from(config))
    if request.needs_ledger and not was_started(request, configuration.home):
        require_in_ledger(configuration, task, workload)
    with Lines(sys.stdout) as lines, Lines(sys.stderr) if json_output else nullcontext(lines) as notes:
        run_controller(request, configuration,
                       lambda record: lines(json_of(record) if json_output else line_of(record)), notes,
                       working("loading the champion", json_output))


@reported
def release(
    controller: Annotated[Path, typer.Option(help="Controller file: what it acted on.")],
    actuator: Annotated[str, typer.Option(help="What carried targets out: cgroup, kubernetes.")],
    json_output: JsonOption = False,
) -> None:
    """Set what a controller found before its first step, without a controller.

    For a controller that was killed and is not to start again. A limit that somebody else has set since stays. A lease
    that runs out by itself (kubernetes: lease_s) is waited for. Where nothing is known of what was found, nothing is
    set, and the exit code is 1.

    Example: assay release --controller controller.yaml --actuator cgroup
    """
    from serving.control.controller_file import read_controller_file
    from serving.control.start import release as give_back

    said = give_back(actuator, read_controller_file(controller, actuator), tell=print_note)
    if json_output:
        print_json({"released": said})
    else:
        print_line(said)
