"""A command in a process group of its own that ends at a time or memory limit, and its largest memory."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from feature_store.process_end import end_with_parent

# Looking at a process costs about a millisecond.
SAMPLE_S = 0.1


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        stopped: the limit it hit.
        code: its exit code.
        peak_rss_mib: its largest resident memory, its descendants' included.
    """

    stopped: Literal["", "time", "memory"]
    code: int
    seconds: float
    peak_rss_mib: float


def run_limited(command: Sequence[str], folder: Path, environment: Mapping[str, str], errors: Path, seconds: float,
                memory_gib: float) -> Ended:
    """Runs to the end or to a limit; nothing of the group is left. `errors`: file for its standard error."""
    started, peak = time.monotonic(), 0.0
    stopped: Literal["", "time", "memory"] = ""
    with errors.open("wb") as log:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
                                 preexec_fn=end_with_parent)
    try:
        while child.poll() is None and not stopped:
            peak = max(peak, tree_resident_mib(child.pid))
            left = started + seconds - time.monotonic()
            if peak > memory_gib * 1024:
                stopped = "memory"
            elif left <= 0:
                stopped = "time"
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(min(SAMPLE_S, left))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return Ended(stopped, child.returncode, time.monotonic() - started, peak)


def tree_resident_mib(pid: int) -> float:
    """Of the process and its descendants; one that has ended counts as 0."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += one.memory_info().rss
    return total / 2**20
