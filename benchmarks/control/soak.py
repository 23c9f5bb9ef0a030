"""One hour of controller steps at 20 times the rate: memory, file handles, threads, time of a step.

    python -m benchmarks control-soak --home STATE_FOLDER [--seconds 3600] [--every 0.75]

`assay control --actuator cgroup` as an operator runs it: the champion of a state folder (`assay run`), its signed
ledger followed, a real process in a real control group, a real Prometheus server that scrapes its metrics and the
controller's own. The process sleeps and its metrics are made up (benchmarks/control/soak_service.py): the soak is of
the controller. Needs root, for the control group, and the Debian package prometheus. Begins anew with every call.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from benchmarks.control.soak_service import FIXED, exporter, idle_process, metrics
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS, write_results
from feature_store.errors import InputError
from feature_store.process_end import end_with_parent
from models.control.training.trajectory_log import read_log
from pipelines.request import code_version
from recording.live.prometheus import LivePrometheus
from recording.loopback import free_port
from recording.processes import Guard
from recording.tools import require_tools
from serving.actuators.control_group.group import ControlGroup

OUTPUT = RESULTS / "control_soak.json"
FORMAT = "assay-control-soak/1"
ROOT = Path(__file__).resolve().parents[2]
SAMPLE_S = 10.0
STEP_S = 15.0  # of the contract
LATE_S = 120.0  # after the last step is due, a controller that still runs is stuck


@dataclass
class Steps:
    """What the controller said, read in a thread. Milliseconds of the steps since the last sample."""

    stream: IO[str]
    actors: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    took_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Until the controller ends."""
        for line in self.stream:
            record = json.loads(line)
            self.actors[record["actor"]] += 1
            if record["reason"]:
                self.reasons[record["reason"]] += 1
            self.took_ms.append(1e3 * sum(record["took_s"].values()))
            if record["failure"]:
                self.failures.append(record["failure"])


def controller_file(url: str, group: ControlGroup, state: Path) -> dict[str, Any]:
    """What an operator writes."""
    return {"prometheus": url, "newest": "max(timestamp(rate_rps))", "fresh_s": 10, "timeout_s": 3, "fixed": FIXED,
            "signals": {name: f"max({name})" for name in metrics(0.0, 1.0, 1.0)},
            "shield": {"hold": ["target_replicas", "target_memory_limit_mib"]},
            "out_of_distribution": {"margin": 100},  # the metrics are made up
            "cgroup": {"group": group.name.strip("/"), "state": str(state)}}


def sample(process: psutil.Process, began: float, steps: Steps) -> dict[str, float | None]:
    """One row: seconds since the start, MiB, counts, seconds of CPU, milliseconds of the steps since the last row."""
    memory = process.memory_full_info()
    took, steps.took_ms = steps.took_ms, []
    cpu = process.cpu_times()
    return {"at_s": round(time.monotonic() - began, 1), "rss_mib": memory.rss / 2**20, "pss_mib": memory.pss / 2**20,
            "handles": process.num_fds(), "threads": process.num_threads(), "cpu_s": cpu.user + cpu.system,
            "step_ms": statistics.median(took) if took else None, "slowest_step_ms": max(took) if took else None}


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """The whole soak. Raises InputError: the controller did not run to its end; SourceError: no Prometheus came up;
    MissingToolError."""
    steps, own_port = round(options.seconds / options.every), free_port()
    require_tools(["prometheus"])
    with Guard(work) as guard, exporter(group := idle_process(guard)) as port:
        server = LivePrometheus(guard, (port, own_port), 1.0)
        server.await_value("rate_rps", 60.0)
        (work / "controller.json").write_text(json.dumps(controller_file(server.url, group, work / "state")))
        command = ["control", "--task", options.task, "--workload", options.workload, "--actuator", "cgroup",
                   "--controller", str(work / "controller.json"), "--folder", str(work / "controller"), "--every",
                   str(options.every), "--steps", str(steps), "--metrics-port", str(own_port), "--json"]
        found = group.read()
        with (work / "errors").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", "from pipelines.command_line import main; main()", *command], cwd=ROOT,
                preexec_fn=end_with_parent,
                text=True, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, "ASSAY_HOME": str(options.home)})
        try:
            rows, said = _watched(process, options.seconds)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        if process.returncode or said.actors.total() != steps:
            told = (work / "errors").read_text().strip() or f"{said.actors.total()} of {steps} steps"
            raise InputError(f"controller must run to its end, got exit code {process.returncode}: {told}")
        given_back = group.read() == found
    logged = read_log(work / "controller" / "steps")
    return {"steps": steps, "actors": dict(said.actors), "failures": len(said.failures), "given_back": given_back,
            "reasons": dict(said.reasons.most_common(5)),
            "logged": len(logged.steps), "log_lost": len(logged.lost), "samples": rows,
            "log_mib": sum(part.stat().st_size for part in (work / "controller" / "steps").iterdir()) / 2**20}


def _watched(process: "subprocess.Popen[str]", seconds: float) -> tuple[list[dict[str, float | None]], Steps]:
    """A row every ten seconds, from the controller's first step on."""
    assert process.stdout is not None
    said, began, rows = Steps(process.stdout), time.monotonic(), []
    reader = threading.Thread(target=said.read, daemon=True)
    reader.start()
    watched, due = psutil.Process(process.pid), began
    while process.poll() is None and time.monotonic() - began < seconds + LATE_S:
        if said.actors.total():
            try:
                rows.append(sample(watched, began, said))
            except psutil.Error:  # it has just ended
                break
            if len(rows) % 30 == 1:
                print(f"{rows[-1]['at_s']:.0f} s: {said.actors.total()} steps, {rows[-1]['rss_mib']:.0f} MiB",
                      file=sys.stderr, flush=True)
        due += SAMPLE_S
        try:
            process.wait(max(0.1, due - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
    reader.join(10.0)
    return rows, said


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--home", type=Path, required=True, help="state folder with a champion (ASSAY_HOME)")
    parser.add_argument("--task", default="autoscaling")
    parser.add_argument("--workload", default="nginx")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--every", type=float, default=STEP_S / 20.0, help="seconds between two steps")


def run(options: argparse.Namespace) -> None:
    """Measures and writes the whole result."""
    before = load_average()
    with tempfile.TemporaryDirectory(prefix="assay-soak-") as work:
        found = measure(options, Path(work))
    write_results(options.output, {
        "format": FORMAT, "machine": {**describe_machine(), "date": now_utc()}, "code": code_version(),
        "seconds": options.seconds, "every_s": options.every, "load_average": [before, load_average()], **found})
