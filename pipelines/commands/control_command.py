"""`assay control`: a controller that acts."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from filelock import Timeout

from feature_store.errors import InputError, RefusedError
from feature_store.file_lock import file_lock
from pipelines.commands.known_names import require_known
from pipelines.console import ConfigOption, JsonOption, configuration_from, print_line, reported, working
from serving.control.loop import ControlStep

POLL_S = 30.0  # between two looks at who is champion


@reported
def control(
    workload: Annotated[str, typer.Option("--workload", "-w", help="Whose champion acts.")],
    controller: Annotated[Path, typer.Option(help="Controller file: measurements, shield, waiting times.")],
    task: Annotated[str, typer.Option(help="Task of the champion.")] = "autoscaling",
    actuator: Annotated[str, typer.Option(help="What carries targets out: dry-run, cgroup, kubernetes.")] = "dry-run",
    every: Annotated[float | None, typer.Option(help="Seconds between two steps; default: as the policy was trained.")
                     ] = None,
    give_back: Annotated[bool | None, typer.Option(
        "--give-back/--leave", help="At the end set what was found at the beginning; default: of a cgroup alone.")
        ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="End after so many; default: never.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="A bundle folder instead of the registry's champion.")] = None,
    public_key: Annotated[Path | None, typer.Option(help="Key of the signer; default: the project's.")] = None,
    folder: Annotated[Path | None, typer.Option(
        help="Log and memory of this controller; default: controllers/<task>/<workload> in the state folder.")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Serve /metrics for Prometheus there.")
                            ] = None,
    metrics_address: Annotated[str, typer.Option(help="Address that /metrics is served at.")] = "127.0.0.1",
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Act on a workload with its proved policy: observe, check, decide, shield, act, log.

    The champion is followed while it acts. Where the policy may not decide, its fallback does, and the line says why.
    The file STOP in the controller's folder, or SIGUSR1, stops all acting; Ctrl-C ends the controller.

    Example: assay control --task autoscaling --workload nginx --controller controller.yaml --actuator dry-run
    """
    from serving.actuators.actuators import GIVES_BACK, make_actuator
    from serving.bundle import CheckedBundle, check_bundle
    from serving.control.champion import Champion, champion_of_ledger
    from serving.control.controller_file import read_controller_file
    from serving.control.last_good import LastGood
    from serving.control.made import make_loop
    from serving.control.metrics import Metrics
    from serving.control.run import KillSwitch, run, stops_on_signals

    if every is not None and not every > 0:
        raise InputError(f"every must be positive, got {every}")
    written, configuration = read_controller_file(controller), configuration_from(config)
    key = public_key or configuration.public_key_path

    def opened() -> CheckedBundle:
        if bundle is not None:
            return check_bundle(bundle, key)
        return champion_of_ledger(configuration, task, workload)

    place = folder or configuration.home / "controllers" / task / workload
    if bundle is None and configuration.ledger_path.exists():
        from serving.ledger import Ledger

        require_known(Ledger(configuration.ledger_path, configuration.public_key_path).standings(), task, workload)
    with working("loading the champion", json_output):
        if bundle is None:
            last_good = LastGood(opened, place / "champion", key)
            champion = Champion(last_good, age_s=lambda: last_good.age_s)
        else:
            champion = Champion(opened)
    contract = champion.contract
    if (contract.task, contract.workload) != (task, workload):
        raise InputError(f"bundle must be for {task}, {workload}, got one for {contract.task}, {contract.workload} "
                         f"({bundle})")
    place.mkdir(parents=True, exist_ok=True)
    lock = file_lock(place / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError("folder must be of one controller alone, got one in which another one runs "
                         f"({place})") from None
    loop = make_loop(contract, champion, written, make_actuator(actuator, contract, written), KillSwitch(place), place)
    assert contract.driving is not None
    stopped, step_s = stops_on_signals(), contract.driving.step_s
    metrics = Metrics(task, workload, champion.current)
    if metrics_port is not None:
        metrics.serve(metrics_port, metrics_address)
    champion.follow(POLL_S, stopped)

    def on_step(record: ControlStep) -> None:
        metrics.count(record)
        with suppress(OSError):  # a full disk or a closed pipe behind the output stops no controller
            (_json if json_output else _told)(record)

    gives_back = actuator in GIVES_BACK if give_back is None else give_back
    if failure := run(loop, every or step_s, stopped, on_step, steps, gives_back):
        raise RefusedError(failure)


def _json(record: ControlStep) -> None:
    sys.stdout.buffer.write(orjson.dumps(vars(record)) + b"\n")  # NaN becomes null
    sys.stdout.buffer.flush()


def _told(record: ControlStep) -> None:
    """A line a step."""
    print_line(line_of(record))


def line_of(record: ControlStep) -> str:
    """What a step came to, on one line: when, who, what is set, why."""
    done: Any = record.done if record.done is not None else record.targets
    parts = [record.at[11:19], record.actor.ljust(8),
             ", ".join(f"{name.removeprefix('target_')} {value:.4g}" for name, value in done.items())]
    why = [record.reason, *(f"shield: {change}" for change in record.changes), record.failure, *record.notes]
    return "  ".join(parts) + "".join(f"; {one}" for one in why if one)
