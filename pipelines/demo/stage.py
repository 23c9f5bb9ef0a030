"""Equal services under the same load: one that `assay control` acts on, one that is left as it is, and one that has
all the time what the controlled one has on average.

Everything is real: nginx, requests over loopback, Prometheus, control groups, the controller's own process with a
signed bundle that was trained for this service (data/demo). Everything ends with the guard.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from feature_store.errors import SourceError
from recording.control_groups import ControlGroups, find_hierarchy
from recording.live.prometheus import LivePrometheus
from recording.live.queries import newest, signals
from recording.live.service import LiveService, Load, monitored, prepared
from recording.processes import Guard, Running
from recording.scaling.generator import python_environment
from recording.scaling.plan import Deployment
from recording.tools import require_tools

TASK, WORKLOAD = "autoscaling", "nginx"
ACTED, LEFT, CONSTANT = "controlled", "left-alone", "constant"
STEP_S, SCRAPE_S, WINDOW = 5.0, 1.0, "5s"
QUOTA, MEMORY_MIB = 0.3, 64.0  # cores that two of them begin with
MEAN_QUOTA = 0.43  # cores that the controller gave on average, in earlier demos of two minutes
QUOTAS = {ACTED: QUOTA, LEFT: QUOTA, CONSTANT: MEAN_QUOTA}
TOOLS = ("nginx", "prometheus")
# Requests a second as a share of the way through: calm, a wave, a burst at its top, calm again.
WARM_UP_S = 10.0  # at the first rate: a controller that first looks while it begins sees a load that grows fivefold
COURSE = ((0.15, 120.0), (0.15, 180.0), (0.15, 240.0), (0.25, 330.0), (0.15, 200.0), (0.15, 100.0))


@dataclass
class Stage:
    """What runs.

    Attributes:
        prometheus: scrapes both services.
        start_s: Unix time at which the load began to change.
        records: what the controller did so far, a JSON record a step.
    """

    prometheus: LivePrometheus
    start_s: float
    services: Sequence[LiveService]
    controller: Running
    output: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    _read: int = 0

    def look(self) -> None:
        """Reads what the controller has written since. Raises SourceError: something ended by itself."""
        for service in self.services:
            service.require_alive()
        text = self.output.read_text(encoding="utf-8", errors="replace")
        lines = text[self._read:].splitlines(keepends=True)
        for line in lines:
            if line.endswith("\n"):
                self._read += len(line)
                if line.startswith('{"'):  # a step; a refusal is JSON over several lines
                    self.records.append(json.loads(line))
        if not self.controller.is_alive():
            raise SourceError(f"controller must keep running, but it ended: {text[-400:]}")


@contextmanager
def staged(bundle: Path, public_key: Path, seconds: float, folder: Path) -> Iterator[Stage]:
    """Starts everything.

    Args:
        bundle: signed, of the task and workload above.
        public_key: of its signer.
        seconds: how long the load lasts.
        folder: for the controller's log.

    Raises:
        MissingToolError: a Debian package is missing.
        SourceError: control groups cannot be written here, or something does not start.
    """
    require_tools(TOOLS)
    with Guard() as guard, ExitStack() as stack:
        groups = ControlGroups(guard, find_hierarchy())
        if not (groups.has_cpu and groups.has_memory):
            raise SourceError("control groups for CPU and memory must be writable, got ones that are not: run as root "
                              "on a host, or in a container with its own control groups")
        home = prepared(guard, WORKLOAD)
        services = [stack.enter_context(LiveService(guard, groups, home, name, Deployment(WORKLOAD, quota, 1, 1),
                                                    MEMORY_MIB)) for name, quota in QUOTAS.items()]
        prometheus = monitored(guard, services, SCRAPE_S)
        first = COURSE[0][1]
        load = Load([first, *(rate for _, rate in COURSE)],
                    [WARM_UP_S, *(share * seconds for share, _ in COURSE)], seed=1)
        begin = time.monotonic() + 2.0
        start = begin + WARM_UP_S
        for service in services:
            service.start_load(load, lead_s=begin - time.monotonic())
        prometheus.await_value(f'{signals(ACTED, WINDOW)["rate_rps"]} > {0.8 * first:g}')
        output, written = guard.folder / "controller.log", folder / "controller.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        written.write_text(controller_file(prometheus.url, services[0].group, folder), encoding="utf-8")
        controller = guard.start("controller", [
            sys.executable, "-c", "from pipelines.command_line import main; main()", "control", "--task", TASK,
            "--workload", WORKLOAD, "--controller", written, "--actuator", "cgroup", "--bundle", bundle,
            "--public-key", public_key, "--folder", folder / "controller", "--every", f"{STEP_S:g}", "--json"],
            output=output, environment=python_environment())
        try:
            yield Stage(prometheus, time.time() + start - time.monotonic(), services, controller, output)
        finally:
            if controller.is_alive():  # it gives back what it found
                controller.process.terminate()
                with_grace(controller)


def with_grace(controller: Running, seconds: float = 10.0) -> None:
    """Waits for the controller to end."""
    with suppress(subprocess.TimeoutExpired):  # the guard kills it
        controller.process.wait(seconds)


def controller_file(url: str, group: str, folder: Path) -> str:
    """As an operator writes it (docs/reference/control.md)."""
    return yaml.safe_dump({
        "prometheus": url, "timeout_s": 2, "newest": newest(ACTED), "fresh_s": 4,
        "signals": signals(ACTED, WINDOW), "fixed": {"io_utilization": 0, "network_utilization": 0},
        "shield": {"hold": ["target_replicas", "target_memory_limit_mib"]}, "hand_back_after": 2,
        # a working set grows by page cache and kernel memory, which the environment lacks; memory is not set here
        "out_of_distribution": {"ignore": ["memory_used_mib", "memory_utilization"]},
        "cgroup": {"group": group, "state": str(folder / "limits")}}, sort_keys=False)
