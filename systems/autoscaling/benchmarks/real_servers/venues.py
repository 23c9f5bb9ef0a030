"""Where controllers of the comparison act: what a service is made of, and which of its controls change."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from recording.control_groups import ControlGroups
from recording.live.replicated_service import ReplicatedService
from recording.live.service import LiveService
from recording.processes import Guard
from recording.scaling.plan import Deployment
from serving.actuators.actuator import Actuator
from serving.actuators.cgroup import Cgroup
from systems.autoscaling.benchmarks.real_servers.replicas import Replicas
from systems.autoscaling.benchmarks.real_servers.settings import FIRST_QUOTA, MEMORY_MIB


class Venue(Protocol):
    """A kind of service."""

    @property
    def held(self) -> tuple[str, ...]:
        """Controls that stay as they are."""

    def service(self, guard: Guard, groups: ControlGroups, home: Path, server: str, name: str) -> LiveService:
        """Not yet started."""

    def actuator(self, service: Any, folder: Path) -> Actuator:
        """Of a service of this kind. folder: for what it keeps."""


@dataclass(frozen=True)
class OneInstance:
    """Implements `Venue`: one instance, whose CPU quota changes, by the cgroup actuator."""

    held: tuple[str, ...] = ("target_replicas", "target_memory_limit_mib")

    def service(self, guard: Guard, groups: ControlGroups, home: Path, server: str, name: str) -> LiveService:
        """See `Venue`."""
        return LiveService(guard, groups, home, name, Deployment(server, FIRST_QUOTA, 1, 1), MEMORY_MIB[server])

    def actuator(self, service: LiveService, folder: Path) -> Actuator:
        """See `Venue`."""
        return Cgroup(service.group, folder)


@dataclass(frozen=True)
class Several:
    """Implements `Venue`: instances behind a proxy, whose quota and number change.

    Attributes:
        most: instances, at most.
        first: instances at the beginning.
        quota: CPU quota of each at the beginning, cores.
        start_up_s: least and most time until an instance that is asked for starts, s.
        seed: of these times.
    """

    most: int
    first: int
    quota: float
    start_up_s: tuple[float, float]
    seed: int
    held: tuple[str, ...] = ("target_memory_limit_mib",)

    def service(self, guard: Guard, groups: ControlGroups, home: Path, server: str, name: str) -> LiveService:
        """See `Venue`."""
        return ReplicatedService(guard, groups, home, name, Deployment(server, self.quota, 1, self.first),
                                 MEMORY_MIB[server], self.most, self.start_up_s, self.seed)

    def actuator(self, service: ReplicatedService, folder: Path) -> Actuator:
        """See `Venue`."""
        return Replicas(service, service.memory_mib)
