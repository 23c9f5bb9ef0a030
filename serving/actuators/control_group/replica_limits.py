"""A control group's limits as those of one replica, and a decision about one replica as the group's next limits."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from feature_store.control_group_limits import amount, quota
from feature_store.errors import nearest
from serving.actuators.actuator import ActuatorError

CPU, MEMORY, REPLICAS = "target_cpu_limit_cores", "target_memory_limit_mib", "target_replicas"
LIMITS = {CPU: ("cpu",), MEMORY: ("memory", "memory_high")}  # control -> limits of the group; version 1 has no last one
MIB = 2**20

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LEAST_QUOTA_US = 1_000  # min_cfs_quota_period in the kernel's kernel/sched/core.c
_MEMORY_MARGIN = 0.1  # of the working set: room to live in after the limit was lowered
_LEAST_MARGIN_BYTES = 4 * MIB  # above what the kernel's counters lag behind: 64 pages a CPU (MEMCG_CHARGE_BATCH)
_MOST = {CPU: 2.0**20, MEMORY: 2.0**40}  # more than any host has; the kernel reads 2**64 bytes as 0
_SAME = 1e-9  # share by which a present value may be missed on its way through a decision
_REPLICAS_TOLERANCE = 0.01  # what a policy's single-precision output may be off a whole number


@dataclass(frozen=True)
class ReplicaLimits:
    """Of a group that holds equal instances of a service.

    Attributes:
        replicas: how many; fixed.
        name: of the group, for messages.
    """

    replicas: int
    name: str

    def require(self, targets: Mapping[str, float]) -> None:
        """Raises ActuatorError where a decision cannot be carried out as it is."""
        for control, value in targets.items():
            if control not in (*LIMITS, REPLICAS):
                raise ActuatorError("refused", f"{control}: {self.name} has no such control, "
                                               f"{nearest(control, (*LIMITS, REPLICAS))}")
            most = _MOST.get(control, math.inf) / self.replicas
            if not 0 < value <= most or math.isinf(value):
                raise ActuatorError("refused", f"{control} must be above 0 and at most {most:g}, got {value} "
                                               f"({self.name})")
        replicas = targets.get(REPLICAS, self.replicas)
        if abs(replicas - self.replicas) > _REPLICAS_TOLERANCE:
            raise ActuatorError("refused", f"{REPLICAS} must be {self.replicas}, which is fixed, got {replicas:g}; "
                                           f"nothing was set: hold replicas fixed for this policy ({self.name})")

    def values(self, controls: Iterable[str], limits: Mapping[str, str]) -> dict[str, float]:
        """Control -> what the group's limits are for one replica: cores, MiB."""
        return {control: self._value(control, limits) for control in controls}

    def planned(
        self, targets: Mapping[str, float], present: Mapping[str, str], working_set_bytes: Callable[[], int]
    ) -> tuple[dict[str, str], list[str]]:
        """What has to change.

        Args:
            targets: control -> value.
            present: limit -> text.
            working_set_bytes: asked only where memory is lowered.

        Returns:
            Limit -> text, and a note for each target that is not met as it is.
        """
        changes, notes = dict[str, str](), list[str]()
        # what is to stay as it is stays to the byte: no rounding, no limit of its own for each of two takes from it
        targets = {control: value for control, value in targets.items()
                   if not math.isclose(value, self._value(control, present), rel_tol=_SAME)}
        if CPU in targets:
            text, note = self._quota(targets[CPU], int(present["cpu"].split()[1]))
            notes += note
            changes |= _towards(text, self._cores(present), LIMITS[CPU], present)
        if MEMORY in targets:
            wanted, note = self._memory(targets[MEMORY], self._bytes(present), working_set_bytes)
            notes += note
            if wanted is not None:
                changes |= _towards(str(wanted), self._bytes(present), LIMITS[MEMORY], present)
        notes += [f"{control}: {value:g} is more than this host has; there is no limit, and none is set"
                  for control, value in targets.items() if control in LIMITS and value > self._value(control, present)
                  and all(math.isinf(amount(present[limit])) for limit in LIMITS[control] if limit in present)]
        return {limit: text for limit, text in changes.items() if text != present[limit]}, notes

    def _quota(self, target_cores: float, period_us: int) -> tuple[str, list[str]]:
        least = _LEAST_QUOTA_US / period_us
        cores = target_cores * self.replicas
        if cores >= least:
            return quota(cores, period_us), []
        return quota(least, period_us), [f"{CPU}: {target_cores:g} cores are below the least that the kernel allows, "
                                         f"set to {least / self.replicas:g}"]

    def _memory(
        self, target_mib: float, now_bytes: float, working_set_bytes: Callable[[], int]
    ) -> tuple[int | None, list[str]]:
        """Bytes, or None where the present limit has to stay."""
        target = int(target_mib * self.replicas * MIB) // _PAGE_BYTES * _PAGE_BYTES
        if target >= now_bytes:
            return target, []
        used = working_set_bytes()
        least = math.ceil((used + max(_MEMORY_MARGIN * used, _LEAST_MARGIN_BYTES)) / _PAGE_BYTES) * _PAGE_BYTES
        if target >= least:
            return target, []
        stays = least >= now_bytes
        outcome = "not lowered" if stays else f"lowered to {least / MIB / self.replicas:g} MiB only"
        note = f"{MEMORY}: {target_mib:g} MiB leaves too little above the {used / MIB:.0f} MiB in use, {outcome}"
        return None if stays else least, [note]

    def _value(self, control: str, limits: Mapping[str, str]) -> float:
        if control == REPLICAS:
            return float(self.replicas)
        return self._bytes(limits) / MIB / self.replicas if control == MEMORY else self._cores(limits) / self.replicas

    def _cores(self, limits: Mapping[str, str]) -> float:
        """What the group's processes may use; all that the host has where there is no limit."""
        cores = amount(limits["cpu"])
        return cores if math.isfinite(cores) else float(os.cpu_count() or 1)

    def _bytes(self, limits: Mapping[str, str]) -> float:
        """What the group's processes may use; the host's memory where there is no limit."""
        least = min(amount(limits[limit]) for limit in LIMITS[MEMORY] if limit in limits)
        return least if math.isfinite(least) else float(os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES)


def _towards(text: str, now: float, limits: Iterable[str], present: Mapping[str, str]) -> dict[str, str]:
    """Limit -> text. What holds now is raised by those limits alone that are less; one that is more, such as a
    memory.max far above the memory.high that holds, is not cut by that."""
    raises = amount(text) >= now
    return {limit: text for limit in limits
            if limit in present and not (raises and amount(present[limit]) > amount(text))}
