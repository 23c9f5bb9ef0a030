"""One `assay run` as a user starts it, watched from outside: wall time, its steps' own reports, its memory.

    step_times   what each step said of itself (components/progress.py): when its process started, when its
                 own work began and ended (Unix s), its peak memory
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.isolation import ROOT
from benchmarks.harness.limited_process import tree_resident_mib
from components.progress import read_events
from feature_store.errors import AssayError
from feature_store.process_end import end_with_parent

SAMPLE_SECONDS = 0.5
STOP_SECONDS = 12.0
COMMAND = [sys.executable, "-c", "from pipelines.command_line import main; main()"]


@dataclass(frozen=True)
class StepTimes:
    """One step of one run: Unix times in s, peak memory in GB (10^9 bytes)."""

    step: str
    shard: str
    process_started: float
    began: float
    ended: float
    peak_gb: float

    @property
    def seconds(self) -> float:
        """The step's own work."""
        return self.ended - self.began

    @property
    def start_seconds(self) -> float:
        """Process start and imports before it."""
        return self.began - self.process_started


@dataclass(frozen=True)
class AssayRun:
    """A finished run: began and ended in Unix s, seconds by the monotonic clock, peak of all its processes in GB."""

    began: float
    ended: float
    seconds: float
    exit_code: int
    summary: dict[str, Any]
    steps: tuple[StepTimes, ...]
    all_processes_peak_gb: float


def run_assay(options: Sequence[str], home: Path, configuration: Path = ROOT / "mlflow.yaml") -> AssayRun:
    """Runs `assay run --json` with `home` as its state folder and waits for it.

    Raises:
        AssayError: the run failed; a workload that does not pass its gates is no failure.
    """
    home.mkdir(parents=True, exist_ok=True)
    command = [*COMMAND, "run", "--json", "--name", "benchmark", *options]
    began, clock = time.time(), time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=home, env=_environment(home, configuration),
                             preexec_fn=end_with_parent)
    try:
        with _MemoryWatch(child.pid) as memory:
            output, _ = child.communicate()
    finally:
        _stop(child)
    seconds, ended = time.perf_counter() - clock, time.time()
    try:
        summary = json.loads(output)
    except json.JSONDecodeError:
        summary = {"error": output.decode(errors="replace")[-300:]}
    if "error" in summary or child.returncode not in (0, 1):
        raise AssayError(f"assay run must finish, got exit code {child.returncode}: {summary.get('error')}")
    events, _ = read_events(home / "runs" / "benchmark" / "events.jsonl")
    return AssayRun(began, ended, seconds, child.returncode, summary, step_times(events), memory.peak_gb)


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """As Ctrl-C does: the run stops its steps."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def run_command(options: Sequence[str], home: Path, configuration: Path = ROOT / "mlflow.yaml") -> float:
    """Seconds of another `assay` command, its start-up included. Raises CalledProcessError where it fails."""
    clock = time.perf_counter()
    subprocess.run([*COMMAND, *options], check=True, stdout=subprocess.DEVNULL, cwd=home,
                   env=_environment(home, configuration))
    return time.perf_counter() - clock


def step_times(events: Sequence[Mapping[str, Any]]) -> tuple[StepTimes, ...]:
    """The steps that ended, in that order."""
    times = []
    for event in events:
        if event["event"] == "end":
            began = event["at"] - event["seconds"]
            times.append(StepTimes(event["step"], event["shard"], began - event["startup_s"], began, event["at"],
                                   event["peak_mb"] * 2**20 / 1e9))
    return tuple(times)


def bundles(home: Path) -> list[Path]:
    """The signed bundles that a run left in its state folder, first versions first."""
    return sorted((home / "bundles").glob("*/*/*")) if (home / "bundles").is_dir() else []


def _environment(home: Path, configuration: Path) -> dict[str, str]:
    return {**os.environ, "ASSAY_HOME": str(home), "ASSAY_CONFIG": str(configuration), "PYTHONPATH": str(ROOT)}


class _MemoryWatch:
    """Largest sum of the resident memory of a process and its descendants; shared pages count more than once."""

    def __init__(self, pid: int) -> None:
        self.peak_gb = 0.0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.peak_gb = max(self.peak_gb, tree_resident_mib(self._pid) * 2**20 / 1e9)
