"""The actuator of a service on this machine whose quota and number of instances both change.

What `serving/actuators/kubernetes.py` is to a Deployment: limits are of each instance, one that is asked for serves
later. Memory is fixed: its control is accepted and not carried out.
"""

from collections.abc import Mapping

from recording.live.replicated_service import ReplicatedService
from serving.actuators.actuator import Applied
from serving.actuators.control_group.replica_limits import CPU, MEMORY, REPLICAS


class Replicas:
    """Implements `Actuator` for one controller alone; nothing outlives the service, so nothing is given back."""

    def __init__(self, service: ReplicatedService, memory_mib: float) -> None:
        """memory_mib: limit of each instance, MiB."""
        self._service, self._memory_mib = service, memory_mib

    @property
    def name(self) -> str:
        """See `Actuator`."""
        return f"instances of {self._service.name}"

    def present(self) -> Mapping[str, float]:
        """See `Actuator`."""
        return {"cpu_limit_cores": self._service.quota_cores, "memory_limit_mib": self._memory_mib,
                "replicas": float(self._service.asked), "ready_replicas": float(self._service.ready)}

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """See `Actuator`."""
        self._service.set_quota(targets[CPU])
        self._service.scale(round(targets[REPLICAS]))
        return Applied({CPU: targets[CPU], MEMORY: self._memory_mib, REPLICAS: float(self._service.asked)})

    def acquire(self, holder: str) -> str:
        """Nobody else acts on it."""
        return ""

    def release(self, holder: str) -> None:
        """See `Actuator`."""

    def restore(self, *, lowering: bool = True) -> None:
        """See `Actuator`."""
