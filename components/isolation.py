"""A step of the fan-out in a process of its own: a workload that kills it (memory, a crash) is lost alone.

The process is a fork of the step's, which has imported modules and computed nothing. A shard whose process was killed,
or ended without dealing with all of it (a library that calls exit), goes on with what is left of it, in halves; a
workload whose process ended so while it had no other is failed. An error that the step itself raises is the run's: it
is not tried again.
"""

import importlib
import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.workload_status import fail

RAISED = 1  # Python's exit code for an error that nothing caught


class StepFailedError(RuntimeError):
    """The step raised in its process; its own message is in the log and among the run's events."""


def run_isolated(step: str, workloads: Sequence[str], output: Path, arguments: Mapping[str, Any],
                 run: Callable[[list[str]], int] | None = None) -> None:
    """Calls components.<step>.run_<step>(workloads=..., output=..., **arguments), in as many processes as it takes.

    Args:
        step: name of the step.
        workloads: its shard.
        output: has a folder for each workload afterwards.
        arguments: all others: plain values and paths.
        run: starts a process for these workloads and returns its exit status; for tests.

    Raises:
        StepFailedError: the step raised.
    """
    run = run or (lambda names: _process(step, names, output, arguments))
    output.mkdir(parents=True, exist_ok=True)
    shards = [list(workloads)]
    while shards:
        shard = shards.pop(0)
        status = run(shard)
        if status == RAISED:
            raise StepFailedError(f"{step} ended with exit code {status}; its message is above")
        left = [name for name in shard if not (output / name).is_dir()]
        if len(shard) == 1 and left:
            fail(output / left[0], step, _reason(status))
        elif left:
            half = (len(left) + 1) // 2
            shards = [part for part in (left[:half], left[half:]) if part] + shards


def _reason(status: int) -> str:
    if status < 0:
        return f"its process was killed by {_signal(-status)}: most often memory ran out"
    return f"its process ended with exit code {status} before the workload was done: something in it called exit"


def _signal(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _process(step: str, workloads: Sequence[str], output: Path, arguments: Mapping[str, Any]) -> int:
    run = getattr(importlib.import_module(f"components.{step}"), f"run_{step}")
    child = multiprocessing.get_context("fork").Process(
        target=run, kwargs={**arguments, "workloads": list(workloads), "output": output})
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode
