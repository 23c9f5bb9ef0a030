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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.finished_learners import RESUME_VARIABLE
from components.progress import PROGRESS_VARIABLE, read_events, shard_label
from feature_store.errors import AssayError, InputError
from feature_store.file_lock import file_lock
from pipelines.process_group import start_group, stop_group
from pipelines.request import TrainRequest
from pipelines.run_folders import AT_WORK_NAME, TRASH, is_reached_without_links, is_run, moved_to_trash, runs_held

KEPT_RUNS = 20  # more than stages: a run that was killed at each of them still finds its cached steps
POLL_SECONDS = 0.1
FULL_DISK_MB = 1.0  # less than any step writes


class RunFailedError(AssayError):
    """A step of the run failed; the message names the step and the log."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class RunOutcome:
    """What a finished run left: its folder and its summary (components/report.py)."""

    folder: Path
    summary: dict[str, Any]
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
    events: list[dict[str, Any]] = []
    with (_begun(folder, request, home, home / "cache" if resume else None),
          open(folder / "kfp.log", "wb", opener=_for_its_owner) as log):
        child = start_group(
            [sys.executable, "-m", "pipelines.local_process", str(folder / "request.json")],
            stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=_environment(folder, resume),
            cwd=folder)
        try:
            _follow(child, folder / "events.jsonl", events, on_event)
        finally:
            stop_group(child)
            shutil.rmtree(folder / "tmp", ignore_errors=True)
    results = [event["summary"] for event in events if event["event"] == "result"]
    if child.returncode or not results:
        raise _failure(events, folder, request.workloads)
    return RunOutcome(folder, results[-1], time.monotonic() - began)


@contextmanager
def _begun(folder: Path, request: TrainRequest, home: Path, cache: Path | None) -> Iterator[None]:
    """The run's folder with all that its child is told, and its lock for the length of the block."""
    with ExitStack() as at_work:
        try:
            folder.mkdir(parents=True)
            at_work.enter_context(file_lock(folder / AT_WORK_NAME))  # first: of two that begin at once, neither drops
            _drop_old_runs(home, folder)
            _prepare(folder, request, cache)
        except FileExistsError:  # begun by another process since the command looked
            raise InputError(f"run name must be new, got {request.run_name!r}, which another run has just taken "
                             f"({folder}); leave it out or choose another") from None
        except OSError as error:
            message = f"run: expected a folder that can be written, got {error.strerror} ({folder})"
            raise RunFailedError(message, 2) from error
        yield


def _prepare(folder: Path, request: TrainRequest, cache: Path | None) -> None:
    for name in ("workspace", "tmp"):
        (folder / name).mkdir()
    specification = {
        "package": str(folder / "train.yaml"), "parallelism": request.parallelism, "arguments": request.arguments(),
        "pipeline_root": str(folder / "outputs"), "workspace_root": str(folder / "workspace"),
        "cache_root": str(cache) if cache else None}
    with open(folder / "request.json", "w", opener=_for_its_owner) as file:
        json.dump(specification, file, indent=1)


def _for_its_owner(path: str, flags: int) -> int:
    """An opener: steps are told the whole address of their telemetry, and a password may be in it."""
    return os.open(path, flags, 0o600)


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


def _drop_old_runs(home: Path, begun: Path) -> None:
    """Keeps the newest runs; the cache treats outputs that are gone as not cached.

    Beside another run, which may be reading them, nothing goes: a later run that begins alone drops them. What a kill
    leaves in the trash goes with `assay clean`.
    """
    trash = home / TRASH
    with suppress(OSError), runs_held(home, but=begun) as other:
        if other is not None or not is_reached_without_links(trash, home):
            return
        ours = (path for path in begun.parent.iterdir() if is_reached_without_links(path, home) and is_run(path))
        old = sorted(ours, key=lambda path: path.stat().st_mtime)[:1 - KEPT_RUNS]  # the one that begins is the newest
        if not old:
            return
        trash.mkdir(exist_ok=True)
        for path in old:
            with suppress(OSError):  # it is somebody else's by now, say; the others go
                if moved := moved_to_trash(path, trash):
                    shutil.rmtree(moved, ignore_errors=True)
        trash.rmdir()  # unless there is more in it
