"""Runs one combination: servers, load generators, interference; then stops them and keeps their logs."""

import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from recording.control_groups import ControlGroups
from recording.interference import MEMORY_GROUP_MB, interference_command
from recording.loopback import free_port
from recording.monitoring import Monitoring
from recording.overhead import core_shares, read_cpu
from recording.plan import Combination, PlannedWorkload
from recording.preparation import START_TIMEOUT_S, STOP_GRACE_S
from recording.processes import Guard, Running
from recording.raw_folder import Outcome
from recording.stamped_log import LogStamper
from recording.tools import ENVIRONMENT
from recording.workloads.base import Place
from recording.workloads.catalogue import WORKLOADS

_POLL_S = 0.5


@dataclass(frozen=True)
class Stage:
    """What the combinations of a campaign share.

    Attributes:
        homes: folder of each workload's prepared state.
        host_cores: CPUs of this machine, the quota where none can be set.
        host_memory_mb: memory of this machine, the limit where none can be set, MB.
        recorder_pids: processes whose CPU time is the recorder's own, by name.
    """

    guard: Guard
    groups: ControlGroups
    monitoring: Monitoring
    stamper: LogStamper
    homes: dict[str, Path]
    host_cores: float
    host_memory_mb: float
    recorder_pids: dict[str, int]


class CombinationRun:
    """One combination from the first server's start to the last process's end; a context manager."""

    def __init__(self, stage: Stage, combination: Combination) -> None:
        self._stage = stage
        self._combination = combination
        self._folder = stage.guard.folder / "run"
        self._running: list[Running] = []
        self._servers: dict[str, Running] = {}
        self._loads: dict[str, list[str | Path] | None] = {}
        self._problem = ""
        self.logs: dict[str, Path] = {}
        self._written: dict[str, Path] = {}  # by what a program is called: where its output goes

    def __enter__(self) -> Self:
        self._folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        guard = self._stage.guard
        servers = list(self._servers.values())
        # Load generators first and at once, so that no server spends its shutdown answering them.
        guard.stop([one for one in self._running if one not in servers], grace_s=0)
        guard.stop(servers, grace_s=STOP_GRACE_S)
        self._stage.groups.remove_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def record(self, seconds: float) -> Outcome:
        """Runs the combination for `seconds` after its last workload has started.

        A workload that ends by itself ends the combination: the outcome says which.
        """
        places = self._start_servers()
        self._await_ready(places)
        self._start_load()
        configurations = {one.name: self._effective(one) for one in self._combination.workloads}
        before = read_cpu(self._stage.recorder_pids)
        start_s = time.time()
        self._wait(seconds)
        end_s = time.time()
        after = read_cpu(self._stage.recorder_pids)
        return Outcome(
            identifier=self._combination.identifier,
            configurations=configurations,
            start_s=start_s,
            end_s=end_s,
            anchor_s=self._stage.monitoring.anchor_s,
            problem=self._problem,
            core_shares=core_shares(before, after),
        )

    def _start_servers(self) -> dict[str, Place]:
        places = {}
        for planned in self._combination.workloads:
            workload = WORKLOADS[planned.name]
            run_folder = self._folder / planned.name
            run_folder.mkdir()
            place = Place(self._stage.homes[planned.name], run_folder, free_port())
            limit_mb = workload.memory_limit_mb(planned.configuration)
            groups = self._stage.groups.make(planned.name, cpu=True, memory_mb=limit_mb)
            command = workload.server(planned.configuration, place)
            load = self._loads[planned.name] = workload.load(planned.configuration, place)
            self._servers[planned.name] = self._start(planned.name, command, groups, stamped=load is None)
            places[planned.name] = place
        return places

    def _await_ready(self, places: dict[str, Place]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        waiting = dict(places)
        while waiting and not self._problem:
            waiting = {name: place for name, place in waiting.items() if not WORKLOADS[name].is_ready(place)}
            self._check_alive()
            if waiting and time.monotonic() > deadline:
                self._problem = f"{', '.join(waiting)} did not start within {START_TIMEOUT_S:g} s"
            time.sleep(0.05)

    def _start_load(self) -> None:
        if self._problem:
            return
        for name, command in self._loads.items():
            if command is not None:
                self._start(name, command, (), stamped=True, called=f"{name}'s load")
        if self._combination.interference:
            folder = self._folder / "interference"
            folder.mkdir()
            groups = self._stage.groups.make("interference", cpu=False, memory_mb=MEMORY_GROUP_MB)
            command = interference_command(self._combination.interference, folder)
            self._start("interference", command, groups, stamped=False)

    def _start(
        self, name: str, command: Sequence[str | Path], groups: Sequence[Path], *, stamped: bool, called: str = ""
    ) -> Running:
        """called: in messages, where not by the name of its log."""
        log, output = self._folder / f"{name}.log", self._folder / f"{name}.out"
        running = self._stage.guard.start(
            called or name,
            command,
            output=subprocess.PIPE if stamped else output,
            groups=groups,
            environment=ENVIRONMENT,
        )
        self._running.append(running)
        self._written[running.name] = log if stamped else output
        if stamped and running.process.stdout is not None:
            log.touch()
            self._stage.stamper.add(running.process.stdout.fileno(), log)
            self.logs[name] = log
        return running

    def _effective(self, planned: PlannedWorkload) -> dict[str, float]:
        """Sets the quota; returns the configuration as it is, with the host's own size for a missing limit."""
        stage, configuration = self._stage, dict(planned.configuration)
        if not stage.groups.set_quota(planned.name, configuration["cpu_quota_cores"]):
            configuration["cpu_quota_cores"] = stage.host_cores
        limit_mb = WORKLOADS[planned.name].memory_limit_mb(planned.configuration)
        if limit_mb is not None and not stage.groups.has_memory:
            configuration["memory_mb"] = stage.host_memory_mb
        return configuration

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._problem and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, left_s))
            self._check_alive()

    def _check_alive(self) -> None:
        self._stage.stamper.require_alive()
        for running in self._running:
            # Interference that is through before the time is up is no failure.
            if not running.is_alive() and running.name != "interference" and not self._problem:
                written = self._written[running.name]
                last = written.read_text(errors="replace").strip()[-300:] if written.exists() else ""
                self._problem = (f"{running.name} ended by itself with status {running.process.returncode}"
                                 + (f": {last}" if last else ""))
