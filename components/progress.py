"""What a step says while it runs, for whoever shows it: one JSON line an event.

The local runner sets $ASSAY_PROGRESS to a file and draws progress bars from it; elsewhere events go to
the step's own log. Every step reports its seconds, peak memory and start-up time, so that the report
can show where a run spends its time.
"""

import json
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from feature_store.errors import AssayError

PROGRESS_VARIABLE = "ASSAY_PROGRESS"
PROGRESS_SECONDS = 0.05  # between two events of progress: a display draws ten times a second


def emit(event: dict[str, Any]) -> None:
    """Appends one event; a single write below the pipe limit is atomic, so parallel steps do not mix lines."""
    line = json.dumps({"at": time.time(), **event}) + "\n"
    path = os.environ.get(PROGRESS_VARIABLE)
    if not path:
        print(line, end="", flush=True)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


class Reporter:
    """Reports what goes on within a step."""

    def __init__(self, identity: dict[str, Any]) -> None:
        self._identity = identity
        self._last = 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        """Progress, as a flat mapping; of many in a moment one is written."""
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            emit({**self._identity, "event": "progress", **event})

    def done(self, workload: str) -> None:
        """A workload of the shard is dealt with."""
        emit({**self._identity, "event": "workload", "workload": workload})

    def note(self, sentence: str) -> None:
        """What a reader of the log should know: why a stage did nothing."""
        if sentence:
            emit({**self._identity, "event": "note", "message": sentence})


def shard_label(workloads: Sequence[str]) -> str:
    """A shard in a few words: its first workload, and how many more there are."""
    return "" if not workloads else workloads[0] + (f" and {len(workloads) - 1:,} more" if len(workloads) > 1 else "")


@contextmanager
def step(name: str, workloads: Sequence[str] = ()) -> Iterator[Reporter]:
    """Reports the start and the end of a step.

    Args:
        workloads: of the shard, in the fan-out.
    """
    startup_s, began = _age_s(), time.time()
    identity = {"step": name, "shard": shard_label(workloads)}
    emit({**identity, "event": "start"})
    try:
        yield Reporter(identity)
    except BaseException as error:
        known = isinstance(error, AssayError)
        emit({**identity, "event": "failed", "message": str(error) if known else f"{type(error).__name__}: {error}",
              "exit_code": error.exit_code if isinstance(error, AssayError) else 2})
        raise
    # startup_s: process start and imports before the step's own work; peak memory of this process
    emit({**identity, "event": "end", "seconds": time.time() - began, "startup_s": startup_s,
          "workloads": len(workloads), "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def _age_s() -> float:
    """Seconds since this process was started. By one clock: the time of day at which the system was started, to which
    others add, is told in whole seconds."""
    ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]  # proc_pid_stat(5), field 22
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")


def read_events(path: Path, offset: int = 0, strict: bool = False) -> tuple[list[dict[str, Any]], int]:
    """Complete events from byte `offset` on, and the offset after them.

    A line that is no JSON, as a full disk tears them, is passed over; where `strict`, raises ValueError.
    """
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1
    events: list[dict[str, Any]] = []
    for line in data[:end].splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            if strict:
                raise
    return events, offset + end
