"""KEDA on the request rate: a threshold of requests a second for each replica, over a Horizontal Pod Autoscaler.

keda.sh/docs/latest/reference/scaledobject-spec and /concepts/scaling-deployments: the metric is of type AverageValue,
replicas = ceil(rate / threshold); while the rate is at most the activation threshold for a whole cooldown, asked each
polling interval, the replicas are the idle ones. The environment's floor is one replica: nothing scales to zero there.

An engineer sets the threshold by a load test of the application. Where `threshold_rps` is 0, the rule does the same as
it runs: the rate at which a replica would use `cpu_target` of its limit, by the cores that a request was seen to take.

Symbols: N applications.
"""

from typing import ClassVar

import numpy as np

from models.control.contract.setting import Setting, Values
from systems.autoscaling.rules import replica_proposals
from systems.autoscaling.rules.demand import CoresPerRequest
from systems.autoscaling.rules.forecast import FORECAST, HoltWinters
from systems.autoscaling.rules.hpa import BEHAVIOR, Behavior
from systems.autoscaling.rules.part import Flags, Numbers, Readings


class KedaRate:
    """Replicas by the request rate."""

    source: ClassVar[str] = "https://keda.sh/docs/latest/reference/scaledobject-spec/"
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("threshold_rps", 0.0, "1/s", 0.0, 1e6, meaning="requests a second of a replica; 0: by cpu_target"),
        Setting("cpu_target", 0.7, low=0.01, high=2.0, search=(0.2, 0.95),
                meaning="CPU of a replica at the threshold, where that is 0"),
        Setting("load_test_half_life_s", 1800.0, "s", 1.0, 1e8, (120.0, 7200.0), log=True,
                meaning="of the cores a request takes, where the threshold is 0"),
        Setting("activation_rps", 0.0, "1/s", 0.0, 1e6, meaning="above it the application is active"),
        Setting("cooldown_s", 300.0, "s", 0.0, 86400.0, meaning="without activity, before the idle replicas"),
        Setting("polling_s", 30.0, "s", 1.0, 3600.0, meaning="between two looks at the activity"),
        Setting("idle_replicas", 0.0, "count", 0.0, 1000.0, meaning="while not active"),
        *BEHAVIOR,
    )

    def __init__(self, values: Values) -> None:
        self._values = values
        self._behavior = Behavior(values)

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._behavior.start()
        self._cores_per_request = CoresPerRequest(applications, self._values["load_test_half_life_s"])
        self._active = np.zeros(applications)
        self._polled = np.full(applications, -np.inf)

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) replicas."""
        current = readings["replicas"]
        proposal = replica_proposals.from_total(
            current, self._rate(readings, seconds), self._threshold(readings, seconds), self._values["tolerance_up"],
            self._values["tolerance_down"])
        asked = self._behavior.replicas(current, proposal, seconds)
        return np.where(self._idle(readings["rate_rps"], seconds), self._values["idle_replicas"], asked)

    def _rate(self, readings: Readings, seconds: float) -> Numbers:
        return readings["rate_rps"]

    def _threshold(self, readings: Readings, seconds: float) -> Numbers:
        cores = np.maximum(self._cores_per_request(readings, seconds), 1e-9)
        by_cpu = self._values["cpu_target"] * self._limit(readings) / cores
        return np.where(self._values["threshold_rps"] > 0, self._values["threshold_rps"], by_cpu)

    def _limit(self, readings: Readings) -> Numbers:
        return readings["cpu_limit_cores"]

    def _idle(self, rate: Numbers, seconds: float) -> Flags:
        """(N,) whether a whole cooldown went by since the rate was last above the activation; NaN is activity."""
        values = self._values
        polled = seconds >= self._polled + values["polling_s"]
        self._polled = np.where(polled, seconds, self._polled)
        active = polled & ~(rate <= values["activation_rps"])
        self._active = np.where(active, seconds, self._active)
        return seconds - self._active >= np.maximum(values["cooldown_s"], 1e-9)


class KedaRateOfDeployed(KedaRate):
    """Replicas by the request rate, with the threshold of the limit that was deployed: another part moves the limit."""

    def start(self, applications: int) -> None:
        """Forgets everything."""
        super().start(applications)
        self._deployed = np.full(applications, np.nan)

    def _limit(self, readings: Readings) -> Numbers:
        self._deployed = np.where(np.isnan(self._deployed), readings["cpu_limit_cores"], self._deployed)
        return self._deployed


class KedaForecast(KedaRate):
    """Replicas by the larger of the rate and its forecast, as predictive scalers for KEDA do (PredictKube)."""

    source: ClassVar[str] = "https://keda.sh/docs/latest/scalers/predictkube/; Holt-Winters in place of its model"
    declared: ClassVar[tuple[Setting, ...]] = (*FORECAST, *KedaRate.declared)

    def start(self, applications: int) -> None:
        """Forgets everything."""
        super().start(applications)
        self._forecast = HoltWinters(self._values, applications)

    def _rate(self, readings: Readings, seconds: float) -> Numbers:
        return np.fmax(readings["rate_rps"], self._forecast(readings["rate_rps"], seconds))
