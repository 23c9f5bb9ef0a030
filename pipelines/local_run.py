"""Runs the `train` pipeline on this machine: kfp.local in a child process, its events on this side.

    <state>/runs/<name>/   train.yaml, request.json, kfp.log, events.jsonl, the steps' outputs, lock
    <state>/cache/         kfp's step cache: what makes a killed run resume where it was

The child and all its steps form one process group, which dies with this process.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import Timeout

from components.finished_learners import RESUME_VARIABLE
from components.progress import PROGRESS_VARIABLE, read_events, shard_label
from feature_store.errors import AssayError, InputError
from feature_store.file_lock import file_lock
from feature_store.whole_files import read_regular
from pipelines.process_group import start_group, stop_group
from pipelines.request import TrainRequest

KEPT_RUNS = 20  # more than stages: a run that was killed at each of them still finds its cached steps
POLL_SECONDS = 0.1
AT_WORK_NAME = "lock"  # held as long as the run is at work, so that nobody cleans beside it (pipelines/cleaning.py)
FULL_DISK_MB = 1.0  # less than any step writes


class RunFailedError(AssayError):
    """A step of the run failed; the message names the step and the log."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class RunOutcome:
    """What a finished run left: its folder, its summary (components/report.py) and all events."""

    folder: Path
    summary: dict[str, Any]
    events: tuple[dict[str, Any], ...]
    seconds: float


def run_local(
    request: TrainRequest, home: Path, on_event: Callable[[dict[str, Any]], None], resume: bool = True,
) -> RunOutcome:
    """Executes the request and waits for it.

    Args:
        home: the state folder.
        on_event: called with every event of every step, in order.
        resume: take finished steps of earlier runs with the same code and data from the cache.

    Raises:
        InputError: there is a run of that name.
        RunFailedError: a step failed. What finished before it is kept and is not computed again.
        KeyboardInterrupt: after all steps have been stopped.
    """
    began = time.monotonic()
    folder = home / "runs" / request.run_name
    try:
        _prepare(folder, request, home / "cache" if resume else None)
    except FileExistsError:  # begun by another process since the command looked
        raise InputError(f"run name must be new, got {request.run_name!r}, which another run has just taken "
                         f"({folder}); leave it out or choose another") from None
    except OSError as error:
        message = f"run: expected a folder that can be written, got {error.strerror} ({folder})"
        raise RunFailedError(message, 2) from error
    events: list[dict[str, Any]] = []
    with file_lock(folder / AT_WORK_NAME), (folder / "kfp.log").open("wb") as log:
        child = start_group(
            [sys.executable, "-m", "pipelines.local_process", str(folder / "request.json")],
            stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=_environment(folder, resume),
            cwd=folder)
        try:
            _follow(child, folder / "events.jsonl", events, on_event)
        finally:
            stop_group(child)
            shutil.rmtree(folder / "tmp", ignore_errors=True)
    if child.returncode != 0:
        raise _failure(events, folder, request.workloads)
    results = [event["summary"] for event in events if event["event"] == "result"]
    if not results:
        raise _failure(events, folder, request.workloads)
    return RunOutcome(folder, results[-1], tuple(events), time.monotonic() - began)


def _prepare(folder: Path, request: TrainRequest, cache: Path | None) -> None:
    folder.mkdir(parents=True)
    _drop_old_runs(folder.parent)
    for name in ("workspace", "tmp"):
        (folder / name).mkdir()
    specification = {
        "package": str(folder / "train.yaml"), "parallelism": request.parallelism, "arguments": request.arguments(),
        "pipeline_root": str(folder / "outputs"), "workspace_root": str(folder / "workspace"),
        "cache_root": str(cache) if cache else None}
    (folder / "request.json").write_text(json.dumps(specification, indent=1))


def _environment(folder: Path, resume: bool) -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, PROGRESS_VARIABLE: str(folder / "events.jsonl"),
            RESUME_VARIABLE: "1" if resume else "0", "PYTHONUNBUFFERED": "1",
            # kfp makes a temporary folder for every step and leaves it behind
            "TMPDIR": str(folder / "tmp"),
            "GX_ANALYTICS_ENABLED": "False", "MLFLOW_DISABLE_TELEMETRY": "true", "KFP_DISABLE_TELEMETRY": "true",
            # two steps run side by side on few cores: libraries must not each take all of them
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def _follow(child: "subprocess.Popen[bytes]", path: Path, events: list[dict[str, Any]],
            on_event: Callable[[dict[str, Any]], None]) -> None:
    offset, running = 0, True
    while running:
        running = child.poll() is None
        new, offset = read_events(path, offset)
        for event in new:
            events.append(event)
            on_event(event)
        if running:
            time.sleep(POLL_SECONDS)


def _failure(events: list[dict[str, Any]], folder: Path, workloads: Sequence[str]) -> RunFailedError:
    failed = [event for event in events if event["event"] == "failed"]
    log = folder / "kfp.log"
    free_mb = shutil.disk_usage(folder).free / 2**20
    if free_mb < FULL_DISK_MB:  # then neither events nor the log are whole
        return RunFailedError(f"disk: expected more room, got {free_mb:.1f} MB free ({folder}); nothing is "
                              "half-registered: make room and run the same command again to resume", 2)
    if failed:
        first = failed[0]
        whole = first["shard"] in ("", shard_label(workloads))
        where = f"step {first['step']}" + ("" if whole else f", shard of {first['shard']}")
        return RunFailedError(f"{first['message']} ({where}; log: {log})", first.get("exit_code", 2))
    return RunFailedError(f"the pipeline stopped without a result (log: {log}); "
                          "run the same command again to resume", 2)


def is_run(folder: Path) -> bool:
    """Whether a run of ours made it."""
    with suppress(OSError):
        return b'"pipeline_root"' in read_regular(folder / "request.json")
    return False


def _drop_old_runs(runs: Path) -> None:
    """Keeps the newest runs, and those at work; the cache treats outputs that are gone as not cached."""
    ours = (path for path in runs.iterdir() if not path.is_symlink() and is_run(path))
    folders = sorted(ours, key=lambda path: path.stat().st_mtime)
    for old in folders[:1 - KEPT_RUNS]:  # the one that begins is the newest
        with suppress(Timeout, OSError), file_lock(old / AT_WORK_NAME).acquire(blocking=False):
            shutil.rmtree(old, ignore_errors=True)
