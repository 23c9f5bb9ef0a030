"""The Horizontal Pod Autoscaler of Kubernetes, autoscaling/v2: from proposals of metrics to replicas.

kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, "Configurable scaling behavior", and
pkg/controller/podautoscaler/horizontal.go: stabilizeRecommendationWithBehaviors and
convertDesiredReplicasWithBehaviorRate.

Symbols: N applications; a window or period holds what is younger than its seconds.
"""

from typing import ClassVar

import numpy as np

from models.control.contract.setting import Setting, Values
from systems.autoscaling.rules import replica_proposals
from systems.autoscaling.rules.part import Numbers, Readings
from systems.autoscaling.rules.windows import History

DOCUMENTATION = "https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/"
SELECT = ("Max", "Min", "Disabled")

BEHAVIOR = (
    Setting("tolerance_up", 0.1, low=0.0, high=1.0, search=(0.0, 0.2), meaning="ratio above 1 that is let pass"),
    Setting("tolerance_down", 0.1, low=0.0, high=1.0, search=(0.0, 0.3), meaning="ratio below 1 that is let pass"),
    Setting("down_window_s", 300.0, "s", 0.0, 3600.0, (0.0, 600.0),
            meaning="stabilisation: the largest proposal of this time holds"),
    Setting("up_window_s", 0.0, "s", 0.0, 3600.0,
            meaning="stabilisation: the smallest proposal of this time holds"),
    Setting("down_percent", 100.0, "%", 0.0, 100.0, (5.0, 100.0), meaning="policy: replicas removed a period; 0: none"),
    Setting("down_percent_period_s", 15.0, "s", 1.0, 1800.0, meaning="periodSeconds of the policy"),
    Setting("down_pods", 0.0, "count", 0.0, 1000.0, meaning="policy: replicas removed a period; 0: no such policy"),
    Setting("down_pods_period_s", 15.0, "s", 1.0, 1800.0, meaning="periodSeconds of the policy"),
    Setting("down_select", "Max", "", choices=SELECT, meaning="which policy counts on the way down"),
    Setting("up_percent", 100.0, "%", 0.0, 1000.0, meaning="policy: replicas added a period; 0: none"),
    Setting("up_percent_period_s", 15.0, "s", 1.0, 1800.0, meaning="periodSeconds of the policy"),
    Setting("up_pods", 4.0, "count", 0.0, 1000.0, (1.0, 8.0), whole=True,
            meaning="policy: replicas added a period; 0: none"),
    Setting("up_pods_period_s", 15.0, "s", 1.0, 1800.0, meaning="periodSeconds of the policy"),
    Setting("up_select", "Max", "", choices=SELECT, meaning="which policy counts on the way up"),
    Setting("min_replicas", 1.0, "count", 1.0, 1000.0, (1.0, 3.0), whole=True, meaning="never fewer"),
    Setting("max_replicas", 64.0, "count", 1.0, 1000.0, meaning="never more"),
)


class Behavior:
    """Stabilisation windows, scaling policies and bounds; remembers proposals and changes."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._floor = values["min_replicas"]
        self._ceiling = np.maximum(values["max_replicas"], values["min_replicas"])

    def start(self) -> None:
        """Forgets everything."""
        values = self._values
        periods = [values[f"{way}_{kind}_period_s"].max() for way in ("up", "down") for kind in ("percent", "pods")]
        self._changes = History(max(periods))
        self._for_up = History(values["up_window_s"].max())
        self._for_down = History(values["down_window_s"].max())
        self._last: tuple[float, Numbers] | None = None

    def replicas(self, current: Numbers, desired: Numbers, seconds: float) -> Numbers:
        """What to ask for.

        Args:
            current: (N,) replicas asked for now, whole.
            desired: (N,) proposal of the metrics; NaN: none, which leaves the replicas as they are.
            seconds: time.

        Returns:
            (N,) whole numbers between the bounds.
        """
        if self._last is None:  # the first recommendation is what runs (recordInitialRecommendation)
            self._for_up.add(seconds, current)
            self._for_down.add(seconds, current)
        else:
            self._changes.add(self._last[0], current - self._last[1])
        self._last = (seconds, current)
        lowest = np.fmin(desired, self._for_up.minimum(seconds, self._values["up_window_s"]))
        highest = np.fmax(desired, self._for_down.maximum(seconds, self._values["down_window_s"]))
        self._for_up.add(seconds, desired)
        self._for_down.add(seconds, desired)
        stabilized = np.minimum(np.maximum(current, lowest), highest)
        most = np.minimum(self._ceiling, np.maximum(self._limit(current, seconds, "up"), current))
        fewest = np.maximum(self._floor, np.minimum(self._limit(current, seconds, "down"), current))
        up, down = np.minimum(stabilized, most), np.maximum(stabilized, fewest)
        moved = np.where(stabilized > current, up, np.where(stabilized < current, down, current))
        asked = np.where(np.isnan(desired), current, moved)
        return np.minimum(np.maximum(asked, self._floor), self._ceiling)

    def _limit(self, current: Numbers, seconds: float, way: str) -> Numbers:
        """(N,) calculateScaleUpLimitWithScalingRules and calculateScaleDownLimitWithBehaviors."""
        percent, pods = self._values[f"{way}_percent"], self._values[f"{way}_pods"]
        select = self._values[f"{way}_select"]
        before_percent = self._before(current, seconds, self._values[f"{way}_percent_period_s"])
        before_pods = self._before(current, seconds, self._values[f"{way}_pods_period_s"])
        if way == "up":
            limits = np.ceil(before_percent * (1.0 + percent / 100.0)), before_pods + pods
        else:
            limits = np.trunc(before_percent * (1.0 - percent / 100.0)), before_pods - pods
        least = (select == "Min") == (way == "up")  # the smaller number: the smaller change up, the larger one down
        nothing = np.where(least, np.inf, -np.inf)
        first = np.where(percent > 0, limits[0], nothing)
        second = np.where(pods > 0, limits[1], nothing)
        limit = np.where(least, np.minimum(first, second), np.maximum(first, second))
        disabled = (select == "Disabled") | ((percent <= 0) & (pods <= 0))
        return np.where(disabled, current, limit)

    def _before(self, current: Numbers, seconds: float, period: Numbers) -> Numbers:
        """(N,) replicas at the start of the period."""
        added, removed = self._changes.sums(seconds, period)
        return current - added + removed


class HpaCpu:
    """Replicas by CPU utilisation."""

    source: ClassVar[str] = DOCUMENTATION
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("cpu_target", 0.8, low=0.01, high=2.0, search=(0.2, 0.95), meaning="CPU used, of the limit"),
        *BEHAVIOR,
    )

    def __init__(self, values: Values) -> None:
        self._values = values
        self._behavior = Behavior(values)

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._behavior.start()

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) replicas."""
        current = readings["replicas"]
        desired = replica_proposals.largest(current, self._proposals(readings))
        return self._behavior.replicas(current, desired, seconds)

    def _proposals(self, readings: Readings) -> list[Numbers]:
        values, current, measured = self._values, readings["replicas"], readings["measured_replicas"]
        return [replica_proposals.from_utilization(
            current, measured, current - measured, np.zeros_like(current), readings["cpu_utilization"],
            values["cpu_target"], values["tolerance_up"], values["tolerance_down"])]


class HpaCpuP99(HpaCpu):
    """Replicas by CPU utilisation and by the 99th percentile of latency over its objective, an external metric."""

    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("p99_target", 0.8, low=0.01, high=10.0, search=(0.2, 1.2),
                meaning="99th percentile of latency over the objective"),
        *HpaCpu.declared,
    )

    def _proposals(self, readings: Readings) -> list[Numbers]:
        values = self._values
        latency = replica_proposals.from_value(
            readings["replicas"], readings["ready_replicas"], readings["p99_ms"] / readings["slo_ms"],
            values["p99_target"], values["tolerance_up"], values["tolerance_down"])
        return [*super()._proposals(readings), latency]
