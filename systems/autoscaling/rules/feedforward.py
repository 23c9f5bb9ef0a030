"""Feed-forward of the load and integral feedback of the latency: what an autoscaler's engineer would write by hand.

    needed cores = cost of a request * max(trended rate, share of the last peak) * headroom

The cost of a request is measured as it runs: the service demand of operational analysis, D = U / X (Denning and Buzen
1978, section 4). What the load will be until replicas have started is extrapolated, and never less than a share of the
last peak (AutoScale: Gandhi et al., TOCS 2012). The headroom is what no model of an application tells: one number each,
integrated from p99 over the objective (Hellerstein et al., Feedback Control of Computing Systems, chapter 9). Replicas
follow the needed cores; while they start, the limits of those that serve are raised in place, so that they have
what is needed. Memory is the recent maximum over a target utilisation.

Symbols: N applications.
"""

from typing import ClassVar

import numpy as np

from models.control.contract.setting import Setting, Values
from systems.autoscaling.equations import LOST
from systems.autoscaling.rules.demand import CoresPerRequest
from systems.autoscaling.rules.part import Numbers, Readings
from systems.autoscaling.rules.windows import History, SlidingMaximum

MEAN_S = 60.0  # of the exponential mean `rate_1min_rps`: behind a steady ramp by what a minute brings
MOST_MISS = 1.0  # logarithm of p99 over its target, beyond which a step counts no more


class FeedforwardDemand:
    """Cores that all replicas need together: feed-forward of the load, integral feedback of the latency."""

    source: ClassVar[str] = ("Denning and Buzen 1978; Gandhi et al., AutoScale, TOCS 2012; Hellerstein et al., "
                             "Feedback Control of Computing Systems")
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("request_half_life_s", 900.0, "s", 1.0, 1e8, (60.0, 7200.0), log=True,
                meaning="of the cores that a request takes"),
        Setting("lead_s", 60.0, "s", 0.0, 3600.0, (0.0, 240.0), meaning="by which a rising rate is extrapolated"),
        Setting("peak_share", 0.7, high=1.0, search=(0.0, 1.0), meaning="of the last peak that is always provided for"),
        Setting("peak_window_s", 1800.0, "s", 1.0, 1e8, (300.0, 14400.0), log=True, meaning="of the last peak"),
        Setting("p99_target", 0.5, low=0.01, high=10.0, search=(0.2, 1.0), meaning="p99 over the objective"),
        Setting("gain_up", 0.2, high=10.0, search=(0.01, 0.5), log=True,
                meaning="rise of the headroom's logarithm a minute, a unit of the logarithm of p99 over its target"),
        Setting("gain_down", 0.01, high=10.0, search=(0.002, 0.2), log=True, meaning="the same on the way down"),
        Setting("headroom", 2.0, low=0.1, high=100.0, search=(1.0, 4.0), log=True,
                meaning="needed cores over those that are used, where an application is not known yet"),
        Setting("least_headroom", 1.5, low=0.1, high=100.0, search=(1.0, 2.0), log=True, meaning="never less"),
        Setting("most_headroom", 6.0, low=0.1, high=100.0, search=(2.0, 16.0), log=True, meaning="never more"),
    )

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        values = self._values
        self._cores_per_request = CoresPerRequest(applications, values["request_half_life_s"])
        self._peaks = SlidingMaximum(applications)
        self._log_headroom = np.broadcast_to(np.log(values["headroom"]), (applications,))
        self._seconds: float | None = None

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) cores; NaN while the load, or what a request takes, is not known."""
        values, rate = self._values, readings["rate_rps"]
        peak = self._peaks.add(seconds, rate, values["peak_window_s"])
        trend = np.fmax(rate - readings["rate_1min_rps"], 0.0) / MEAN_S
        load = np.maximum(rate + values["lead_s"] * trend, values["peak_share"] * peak)
        return self._cores_per_request(readings, seconds) * load * np.exp(self._headroom(readings, seconds))

    def _headroom(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) its logarithm. It rests while replicas start: that latency says nothing about what was asked for."""
        values = self._values
        minutes = 0.0 if self._seconds is None else (seconds - self._seconds) / 60.0
        self._seconds = seconds
        over = np.log(readings["p99_ms"] / readings["slo_ms"] / values["p99_target"])
        missed = np.where(readings["served_share"] < 1.0 - LOST, MOST_MISS, np.clip(over, -MOST_MISS, MOST_MISS))
        rests = ~np.isfinite(missed) | (readings["ready_replicas"] < readings["replicas"])
        change = np.where(missed > 0, values["gain_up"], values["gain_down"]) * missed * minutes
        moved = self._log_headroom + np.where(rests, 0.0, change)
        self._log_headroom = np.fmin(np.fmax(moved, np.log(values["least_headroom"])), np.log(values["most_headroom"]))
        return self._log_headroom


class FeedforwardReplicas:
    """Replicas of so many cores each as are needed; fewer once a window has asked for no more."""

    source: ClassVar[str] = "systems/autoscaling/rules/feedforward.py; Gandhi et al., AutoScale, TOCS 2012"
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("cores", 1.0, "cores", 0.01, 1024.0, (0.5, 4.0), log=True, meaning="of a replica"),
        Setting("down_window_s", 300.0, "s", 0.0, 3600.0, (0.0, 1200.0), meaning="the largest proposal of it holds"),
    )

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._wanted = History(float(np.max(self._values["down_window_s"])))

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) replicas."""
        values = self._values
        wanted = np.ceil(readings["needed_cores"] / values["cores"])
        self._wanted.add(seconds, wanted)
        largest = np.fmax(wanted, self._wanted.maximum(seconds, values["down_window_s"]))
        return np.where(np.isnan(wanted), np.nan, largest)


class FeedforwardCpu:
    """The needed cores over the replicas that serve: limits are raised in place while others start."""

    source: ClassVar[str] = "KEP-1287: in-place update of pod resources"
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("least", 0.6, "cores", 0.0, 1024.0, (0.125, 1.0), log=True, meaning="smallest limit"),
        Setting("most", 2.0, "cores", 0.0, 1024.0, (1.0, 8.0), log=True, meaning="largest limit"),
    )

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) cores."""
        serving = np.maximum(np.minimum(readings["ready_replicas"], readings["target_replicas"]), 1.0)
        least, most = self._values["least"], np.maximum(self._values["most"], self._values["least"])
        return np.minimum(np.maximum(readings["needed_cores"] / serving, least), most)


class PeakMemory:
    """Memory limit: the largest use of a window over a target utilisation."""

    source: ClassVar[str] = "Autopilot's peak (Rzadca et al., EuroSys 2020, section 3.2.2) over a target"
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("memory_target", 0.7, low=0.01, high=1.0, search=(0.4, 0.9), meaning="largest use over the limit"),
        Setting("window_s", 1800.0, "s", 1.0, 1e8, (120.0, 14400.0), log=True, meaning="of the largest use"),
    )

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._peaks = SlidingMaximum(applications)

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) MiB; a replica that is killed at its limit shows more than that, and gets more over the target."""
        used = readings["memory_used_mib"]
        largest = self._peaks.add(seconds, used, self._values["window_s"])
        return np.where(np.isnan(used), np.nan, largest / self._values["memory_target"])
