"""Starts the installed `assay` command as a user does, follows its events, and looks for what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from components.progress import read_events
from models.configuration import Configuration, load_configuration
from tests.e2e import tiny

PROGRAM = Path(sys.executable).with_name("assay")
# A run takes half a minute on two idle cores; on a busy machine many times as long.
RUN_TIMEOUT_S = 600.0
END_S = 20.0  # until all processes of a killed run are gone; it takes milliseconds on an idle machine


@dataclass(frozen=True)
class Project:
    """A project of a user: a folder with configuration, task and telemetry, and a state folder."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def configuration(self) -> Configuration:
        return load_configuration(self.folder / "mlflow.yaml", {"ASSAY_HOME": str(self.home)})

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "ASSAY_HOME": str(self.home), "ASSAY_CONFIG": str(self.folder / "mlflow.yaml"),
                "PYTHONPATH": str(tiny.ROOT), "COLUMNS": "80"}

    def start(self, *arguments: str | Path) -> "subprocess.Popen[str]":
        """The command in the background, in the user's folder."""
        return subprocess.Popen([PROGRAM, *map(str, arguments)], env=self.environment, cwd=self.folder, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                # a test run in the background of a script inherits "ignore"
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None)

    def call(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        """The command, to its end."""
        return finish(self.start(*arguments))

    def json(self, *arguments: str | Path) -> Any:
        """What the command prints with --json; it must succeed."""
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def run_folder(self, name: str) -> Path:
        return self.home / "runs" / name

    def events(self, name: str) -> list[dict[str, Any]]:
        return read_events(self.run_folder(name) / "events.jsonl")[0]

    def started(self, name: str) -> set[str]:
        """The steps that a run has begun (those taken from the cache do not begin)."""
        return {event["step"] for event in self.events(name) if event["event"] == "start"}

    def unfinished(self) -> list[Path]:
        """Tickets of registrations that are under way, or were when their process died."""
        return list((self.home / "ledger/unfinished").glob("[!.]*.json"))


def new_project(folder: Path, workloads: Sequence[str] = tiny.WORKLOADS, approval: str = "auto") -> Project:
    folder.mkdir(parents=True, exist_ok=True)
    tiny.write_yaml(tiny.configuration(approval), folder / "mlflow.yaml")
    tiny.write_yaml(tiny.task(workloads), folder / "tiny.yaml")
    tiny.telemetry(workloads).to_parquet(folder / "samples.parquet", index=False)
    return Project(folder)


def finish(process: "subprocess.Popen[str]", timeout_s: float = RUN_TIMEOUT_S) -> "subprocess.CompletedProcess[str]":
    try:
        out, error = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        raise AssertionError(f"command must end within {timeout_s:g} s: {process.args}\n{out}\n{error}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes whose command line or environment names `folder`: the runner of a run and all of its steps."""
    text, found = os.fsencode(folder), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError, psutil.Error):
                if text in (entry / "environ").read_bytes() or text in (entry / "cmdline").read_bytes():
                    found.append(psutil.Process(int(entry.name)))
    return found


def wait_until(condition: Any, timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"must happen within {timeout_s:g} s: {what}")
        time.sleep(0.01)


def kill_command(process: "subprocess.Popen[str]") -> None:
    """`assay run` alone, as by `kill -9` or by the kernel: its children have to notice.

    The step is stopped first, so that it cannot come to its end by itself: in a real run it has minutes to go.
    """
    for runner in psutil.Process(process.pid).children():
        for step in runner.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                step.suspend()
    process.kill()
