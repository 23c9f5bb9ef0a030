"""Agents of a shared node, live: their policy, trained once by `assay run`, their programs, and what these decided.

For the benchmarks of systems in which each of several services has a controller of its own.
"""

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.control import live_rules
from benchmarks.harness.isolation import ROOT
from benchmarks.pipeline.assay_run import COMMAND, bundles, run_assay
from feature_store.errors import AssayError, InputError
from feature_store.whole_files import write_file
from models.control.simulation.made_load import made_load
from recording.control_groups import find_hierarchy
from recording.processes import Guard, Running
from recording.scaling.generator import python_environment
from recording.scaling.meters import process_cpu_s
from serving.contract import MODEL_FILE
from serving.model_function import function_digest

CONFIGURATION, TASK_FILE = "mlflow.yaml", "task.yaml"
START_S = 120.0  # until all of them work
OWN = ", own"  # of a rule that was tuned to the workload, in the evidence


def require_control_groups() -> None:
    """Raises InputError where limits of CPU cannot be set here."""
    if os.geteuid() != 0 or find_hierarchy().cpu is None:
        raise InputError("control groups of CPU must be writable, got none (run as root)")


def made_telemetry(windows: int, window_s: float, mean_rps: float) -> pd.DataFrame:
    """Telemetry of a load that moves as made loads do."""
    load = np.exp(made_load(np.random.default_rng(0), windows, 1, np.array([60.0]), 0.02)[:, 0])
    moments = pd.date_range("2026-01-05T00:00:00Z", periods=windows, freq=f"{window_s:g}s").as_unit("ms")
    return pd.DataFrame({"window_start": moments, "window_s": window_s, "rate_rps": mean_rps * load})


def trained(task: str, workload: str, load: pd.DataFrame, home: Path, settings: Mapping[str, float],
            saves: float = 0.0) -> Mapping[str, Any]:
    """The champion of a workload: its verdict, gates, the digest of its function, and the settings of each rule that
    was tuned to the workload. Trained where there is none yet.

    Args:
        load: telemetry of the workload.
        home: state folder, which keeps it.
        settings: of the workload, where they differ from the environment's.
        saves: of the cost of the best rule, also of those tuned to the workload, what it must save at least.

    Raises:
        AssayError: it did not become champion.
        InputError: the one that is there was trained for something else.
    """
    told = home / "policy.json"
    written = yaml.safe_load((ROOT / "systems" / task / f"{task}.yaml").read_text())
    written["workloads"] = {workload: {"settings": dict(settings)}}
    if not told.exists():
        home.mkdir(parents=True, exist_ok=True)
        configuration = yaml.safe_load((ROOT / CONFIGURATION).read_text())
        for gate in ("saves_cores", "saves_cores_own"):
            configuration["gates"][task][gate]["at_least"] = saves
        write_file(home / CONFIGURATION, yaml.safe_dump(configuration))
        write_file(home / TASK_FILE, yaml.safe_dump(written))
        load.assign(workload=workload).to_csv(home / "load.csv", index=False)
        done = run_assay(["--task", str(home / TASK_FILE), "--telemetry", str(home / "load.csv")], home,
                         home / CONFIGURATION)
        (entry,) = done.summary["entries"]
        gates = {} if entry["gates"] is None else {one["name"]: one["passed"] for one in entry["gates"]["gates"]}
        if entry["alias"] != "champion":
            raise AssayError(f"the policy must become champion, got {entry['status']}: {entry['message']} {gates}; "
                             f"remove {home} to train anew")
        bundle = bundles(home)[-1]
        evidence = json.loads((bundle / "evidence.json").read_text())
        rules = {name.removesuffix(OWN): one["settings"] for name, one in evidence["controllers"].items()
                 if name.endswith(OWN)}
        write_file(told, json.dumps({
            "verdict": entry["verdict"], "gates": gates, "rules": rules,
            "function": function_digest((bundle / MODEL_FILE).read_bytes())}))
    if not (home / TASK_FILE).exists() or yaml.safe_load((home / TASK_FILE).read_text()) != written:
        raise InputError(f"the policy must be of {task}'s task file and settings as they are now, got others; remove "
                         f"{home} to train anew")
    found: Mapping[str, Any] = json.loads(told.read_text())
    if not {"rules", "function"} <= set(found):
        raise InputError(f"the policy must say its rules and function, got {', '.join(found)}; remove {home} to train "
                         "anew")
    return found


class Agents:
    """The programs beside an application that see it and set its limits; their guard ends them."""

    def __init__(self, guard: Guard, shared: Path, host_cores: float = 1.0) -> None:
        """Args:
        shared: folder of what they tell each other; in memory, as /run is, where services use the disk.
        host_cores: cores of this machine that count as one.
        """
        self._guard, self.shared, self._host_cores = guard, shared, host_cores
        self._running, self._controllers = list[Running](), list[Path]()

    def start(self, name: str, arguments: Sequence[str | Path], **environment: str) -> Path:
        """Starts a program of Python's. Returns where it writes its log."""
        log = self._log(name)
        self._running.append(self._guard.start(name, [sys.executable, *arguments], output=log,
                                               environment={**python_environment(), **environment}))
        return log

    def coordinate(self, module: str, cores: float, status: Path, groups: Mapping[str, str]) -> Path:
        """Starts a coordinator of all services' groups. Returns its file."""
        node = self.written("node", {"cores": cores, "host_cores": self._host_cores, "status": str(status),
                                     "look": str(self.shared / "look.json"), "groups": dict(groups)})
        self.start("coordinator", ["-m", module, node])
        return node

    def control(self, task: str, workload: str, home: Path, actuator: str, called: str,
                groups: Mapping[str, str]) -> None:
        """Starts `assay control` with the champion of a state folder for each.

        Args:
            called: what one is called in the controller's file: service.
        """
        for name, group in groups.items():
            file = self.written(f"{name}-agent", {called: {
                "name": name, "group": group, "look": str(self.shared / "look.json"),
                "host_cores": self._host_cores, "state": str(self.found)}})
            self._controllers.append(self.start(f"agent of {name}", [
                *COMMAND[1:], "control", "--task", task, "--workload", workload, "--actuator", actuator,
                "--controller", file, "--folder", self._guard.folder / "agents" / name, "--json"],
                ASSAY_HOME=str(home), ASSAY_CONFIG=str(home / CONFIGURATION)))

    def decide_by_rule(self, system: str, rule: str, settings: Mapping[str, float], node: Path) -> None:
        """Starts the rule of a system for all (live_rules.py). node: of `coordinate`."""
        self.start("rule", ["-m", live_rules.__name__, self.written("rule", {
            "system": system, "rule": rule, "settings": dict(settings), "node": str(node), "state": str(self.found)})])

    @property
    def found(self) -> Path:
        """Folder of the limits that agents found."""
        return self.shared / "found"

    def written(self, name: str, content: Mapping[str, Any]) -> Path:
        """A file of settings."""
        write_file(path := self._guard.folder / f"{name}.yaml", yaml.safe_dump(dict(content)))
        return path

    def wait_until(self, holds: Callable[[], bool], what: str, name: str, within_s: float = START_S) -> None:
        """Raises AssayError where something does not hold in time, or one of them has ended."""
        deadline = time.monotonic() + within_s
        while not holds():
            self.require_alive()
            if time.monotonic() > deadline:
                raise AssayError(f"{name} must {what} within {within_s:g} s, and does not: "
                                 f"{self._log(name).read_text()[-500:]}")
            time.sleep(0.2)

    def steps(self) -> Sequence[int]:
        """Of each controller that decides by the champion."""
        return [log.read_text().count('{"number"') for log in self._controllers]

    def cpu_s(self) -> float:
        """CPU time that all of them have used, s. Raises AssayError where one has ended."""
        self.require_alive()
        return sum(process_cpu_s(one.session) for one in self._running)

    def end(self, first: int, end: int) -> dict[str, Any] | None:
        """Ends them. Returns what controllers decided from one step to before another; None: there are none."""
        self.require_alive()
        self._guard.stop(self._running, grace_s=20.0)
        return decisions(self._controllers, first, end) if self._controllers else None

    def require_alive(self) -> None:
        """Raises AssayError where one has ended."""
        if gone := [one.name for one in self._running if not one.is_alive()]:
            raise AssayError(f"what sets limits must run to the end, but these ended: {', '.join(gone)}: "
                             f"{self._log(gone[0]).read_text()[-500:]}")

    def _log(self, name: str) -> Path:
        return self._guard.folder / f"{name.replace(' ', '-')}.log"


def promises(entries: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any] | None:
    """What the arms of a run that are there were promised; all arms of a run are promised the same."""
    return next((one["promised"] for one in entries if one["run"] == number), None)


def decisions(logs: Sequence[Path], first: int, end: int) -> dict[str, Any]:
    """From step `first` on, before `end`: steps of all agents; share of them by who decided and why, without numbers;
    how often a signal was beyond what training saw.

    Args:
        logs: what `assay control --json` printed, one of each agent.
    """
    steps = [json.loads(line) for log in logs for line in log.read_text().splitlines() if line.startswith('{"number"')]
    counted = [one for one in steps if first <= one["number"] < end]
    if not counted:
        raise AssayError(f"agents must have decided, got {logs[0].read_text()[-500:]!r}")
    by = Counter(": ".join(filter(None, [one["actor"], re.sub(r"[\d.]+", "n", one["reason"].split(":")[0])]))
                 for one in counted)
    return {"steps": len(counted), "by": {name: count / len(counted) for name, count in by.most_common()},
            "strange": dict(Counter(name for one in counted for name in one["strange"]).most_common())}
