"""Resize in place: the CPU limit that the demand of the last minutes needs, at a target utilisation.

What an engineer runs since containers are resized without a restart (KEP-1287, kubernetes.io/docs/tasks/
configure-pod-container/resize-container-resources): the formula of the Horizontal Pod Autoscaler on the limit in place
of the replicas, without its rounding to whole replicas.

    limit = limit now * max(utilisation / target, (p99 / SLO) / target), the largest of a window

Symbols: N applications.
"""

from typing import ClassVar

import numpy as np

from models.control.contract.setting import Setting, Values
from systems.autoscaling.rules.part import Numbers, Readings
from systems.autoscaling.rules.windows import History


class VerticalCpu:
    """CPU limit by utilisation."""

    source: ClassVar[str] = "KEP-1287: in-place update of pod resources; the formula of the HPA on the limit"
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("cpu_target", 0.7, low=0.01, high=2.0, search=(0.2, 0.95), meaning="CPU used, of the limit"),
        Setting("down_window_s", 300.0, "s", 0.0, 3600.0, (0.0, 600.0), meaning="the largest limit of this time holds"),
        Setting("tolerance_up", 0.0, high=1.0, search=(0.0, 0.2), meaning="relative change up that is not made"),
        Setting("tolerance_down", 0.05, high=1.0, search=(0.0, 0.3), meaning="relative change down that is not made"),
    )

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._wanted = History(self._values["down_window_s"].max())

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) cores of each replica that was asked for, also of those that do not serve yet."""
        values, limit = self._values, readings["cpu_limit_cores"]
        wanted = self._limit(readings)
        largest = np.fmax(wanted, self._wanted.maximum(seconds, values["down_window_s"]))
        self._wanted.add(seconds, wanted)
        ratio = largest / limit
        moves = (ratio > 1.0 + values["tolerance_up"]) | (ratio < 1.0 - values["tolerance_down"])
        return np.where(moves, largest, limit)

    def _limit(self, readings: Readings) -> Numbers:
        return readings["cpu_used_cores"] / readings["replicas"] / self._values["cpu_target"]


class VerticalCpuP99(VerticalCpu):
    """CPU limit by utilisation and by latency over the objective."""

    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("p99_target", 0.8, low=0.01, high=10.0, search=(0.2, 1.2), meaning="p99 over the objective"),
        Setting("p99_exponent", 0.5, high=4.0, search=(0.1, 1.0), meaning="of p99 over its target, in the new limit"),
        *VerticalCpu.declared,
    )

    def _limit(self, readings: Readings) -> Numbers:
        ratio = readings["p99_ms"] / readings["slo_ms"] / self._values["p99_target"]
        by_latency = readings["cpu_limit_cores"] * ratio ** self._values["p99_exponent"]
        return np.fmax(super()._limit(readings), np.where(ratio > 1.0, by_latency, np.nan))
