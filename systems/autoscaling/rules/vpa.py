"""The Vertical Pod Autoscaler of Kubernetes: limits from decaying histograms of what was used.

github.com/kubernetes/autoscaler, vertical-pod-autoscaler: pkg/recommender/logic/recommender.go and estimator.go
(percentiles, margin, confidence), model/container.go (peaks of memory, out-of-memory kills),
model/aggregations_config.go (buckets, half-lives), pkg/updater/priority/update_priority_calculator.go (when a
recommendation is applied). Updates are in place: a pod's age counts from its last update.

    target = percentile * (1 + margin);  lower = 50 % percentile * (1 + margin) * (1 + 0.001 / confidence)^-2;
    upper = 95 % percentile * (1 + margin) * (1 + 1 / confidence);  confidence = min(age, samples * 1 minute) / interval

Symbols: N applications. CPU in cores, memory in MiB (the VPA's in bytes).
"""

from typing import ClassVar

import numpy as np

from models.control.contract.setting import Setting, Values
from systems.autoscaling.rules.histogram import DecayingHistogram
from systems.autoscaling.rules.part import Flags, Numbers, Readings

DOCUMENTATION = "https://github.com/kubernetes/autoscaler/tree/master/vertical-pod-autoscaler"
DAY_S = 86400.0
_MIB_PER_BYTE = 2.0 ** -20


def _declared(unit: str, least: float, search_least: tuple[float, float] | None) -> tuple[Setting, ...]:
    return (
        Setting("percentile", 0.9, high=1.0, meaning="of use, base of the target"),
        Setting("margin", 0.15, high=10.0, search=(0.0, 1.0), meaning="added to every percentile"),
        Setting("half_life_s", DAY_S, "s", 1.0, 1e8, (300.0, DAY_S), log=True, meaning="until a sample counts half"),
        Setting("lower_percentile", 0.5, high=1.0, meaning="below it an update is due"),
        Setting("upper_percentile", 0.95, high=1.0, meaning="above it an update is due"),
        Setting("confidence_interval_s", DAY_S, "s", 1.0, 1e8,
                meaning="history after which the bounds are taken almost as they are"),
        Setting("interval_s", 60.0, "s", 1.0, 3600.0, meaning="between recommendations, and between updates"),
        Setting("lifetime_s", DAY_S / 2, "s", 0.0, 1e8, (60.0, DAY_S / 2), log=True,
                meaning="since the last update, before one inside of the bounds"),
        Setting("change", 0.1, high=10.0, meaning="least relative change inside of the bounds"),
        Setting("least", least, unit, 0.0, 1e6, search_least, log=True, meaning="smallest recommendation"),
    )


class Recommender:
    """Target, lower and upper bound from a histogram, and whether they are applied."""

    def __init__(self, values: Values, applications: int, first: float, largest: float) -> None:
        """Empty histograms; first and largest: buckets, in the resource's unit."""
        self._values = values
        self.histogram = DecayingHistogram(applications, first, largest, values["half_life_s"])
        self._samples = np.zeros(applications)
        self._first_sample = np.full(applications, np.nan)
        self._last_sample = np.full(applications, np.nan)
        self._asked = np.full(applications, np.nan)
        self._updated: Numbers | None = None
        self._next = np.full(applications, -np.inf)

    def count(self, sampled: Numbers, seconds: float) -> None:
        """Counts a sample, where `sampled` (N,) is finite, for the confidence."""
        valid = np.isfinite(sampled)
        self._samples += valid
        self._last_sample = np.where(valid, seconds, self._last_sample)
        self._first_sample = np.where(valid & np.isnan(self._first_sample), seconds, self._first_sample)

    def confidence(self) -> Numbers:
        """(N,) getConfidence: 1 after a whole interval with a sample each minute; 0 before any sample."""
        interval = self._values["confidence_interval_s"]
        age = np.nan_to_num(self._last_sample - self._first_sample) / interval
        return np.minimum(age, self._samples * 60.0 / interval)

    def bounds(self) -> tuple[Numbers, Numbers, Numbers]:
        """(N,) target, lower and upper bound, in the resource's unit."""
        values = self._values
        percentiles = self.histogram.percentiles(
            [values["percentile"], values["lower_percentile"], values["upper_percentile"]])
        target, lower, upper = (percentile * (1.0 + values["margin"]) for percentile in percentiles)
        confidence = np.maximum(self.confidence(), 1e-12)
        lower = lower * (1.0 + 0.001 / confidence) ** -2.0
        upper = upper * (1.0 + 1.0 / confidence)
        least = values["least"]
        return np.maximum(target, least), np.maximum(lower, least), np.maximum(upper, least)

    def asked(self, current: Numbers, at_once: Flags, seconds: float) -> Numbers:
        """(N,) the limit asked for; NaN before any.

        Args:
            current: limits now.
            at_once: (N,) bool, where a recommendation is applied whatever the bounds say: after an out-of-memory kill.
            seconds: time.
        """
        if self._updated is None:
            self._updated = np.full(current.shape, seconds)
        due = (seconds >= self._next) & (self._samples > 0)
        if not due.any():
            return self._asked
        self._next = np.where(due, seconds + self._values["interval_s"], self._next)
        target, lower, upper = self.bounds()
        outside = (current < lower) | (current > upper)
        old = seconds - self._updated >= self._values["lifetime_s"]
        worth = np.abs(target - current) / current >= self._values["change"]
        update = due & (outside | at_once | (old & worth))
        self._asked = np.where(update, target, self._asked)
        self._updated = np.where(update, seconds, self._updated)
        return self._asked


class VpaCpu:
    """CPU limit by the use of CPU."""

    source: ClassVar[str] = DOCUMENTATION
    declared: ClassVar[tuple[Setting, ...]] = _declared("cores", 0.025, None)
    FIRST, LARGEST = 0.01, 32.0  # cores; use is observed up to twice the largest limit

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._recommender = Recommender(self._values, applications, self.FIRST, self.LARGEST)

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) cores."""
        limit = readings["cpu_limit_cores"]
        used = readings["cpu_used_of_replica_cores"]
        # A sample weighs as much as the limit, so that the history counts less after it was raised.
        self._recommender.histogram.add(used, np.maximum(limit, 0.1), np.asarray(seconds))
        self._recommender.count(used, seconds)
        return self._recommender.asked(limit, np.zeros(limit.shape, dtype=bool), seconds)


class VpaMemory:
    """Memory limit by the peaks of memory in windows; a kill counts as a higher peak."""

    source: ClassVar[str] = DOCUMENTATION
    declared: ClassVar[tuple[Setting, ...]] = (
        *_declared("MiB", 250.0, (32.0, 250.0)),
        Setting("window_s", DAY_S, "s", 1.0, 1e8, (300.0, DAY_S), log=True, meaning="one peak is kept of each"),
        Setting("oom_ratio", 1.2, low=1.0, high=10.0, search=(1.1, 2.0), meaning="memory after a kill, over before"),
        Setting("oom_least_mib", 100.0, "MiB", 0.0, 1e5, meaning="added at least after a kill"),
    )
    FIRST, LARGEST = 1e7 * _MIB_PER_BYTE, 65536.0  # MiB

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._recommender = Recommender(self._values, applications, self.FIRST, self.LARGEST)
        self._window_end = np.full(applications, np.nan)
        self._peak = np.zeros(applications)
        self._oom_peak = np.zeros(applications)

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) MiB."""
        limit, utilization = readings["memory_limit_mib"], readings["memory_utilization"]
        used = readings["memory_used_mib"]
        killed = utilization >= 1.0
        self._recommender.count(used, seconds)
        self._peak = self._noted(used, self._peak, seconds)
        # Without the peak of an earlier kill, so that recommendations do not run away (container.go: RecordOOM).
        before = np.maximum(limit, self._peak)
        needed = np.maximum(before + self._values["oom_least_mib"], before * self._values["oom_ratio"])
        self._oom_peak = self._noted(np.where(killed, needed, np.nan), self._oom_peak, seconds)
        return self._recommender.asked(limit, killed, seconds)

    def _noted(self, used: Numbers, peak: Numbers, seconds: float) -> Numbers:
        """addMemorySample: one peak a window is in the histogram, at the window's end; returns `peak`, renewed."""
        valid = np.isfinite(used)
        if not valid.any():
            return peak
        end = np.where(valid & np.isnan(self._window_end), seconds, self._window_end)
        over = valid & (seconds >= end)
        before = np.where(over, 0.0, np.maximum(self._peak, self._oom_peak))
        higher = over | (valid & (before > 0.0) & (used > before))
        if over.any():
            length = self._values["window_s"]
            past = np.where(over, seconds - end, 0.0)
            end = np.where(over, end + (np.floor(past / length) + 1.0) * length, end)
            self._peak, self._oom_peak = np.where(over, 0.0, self._peak), np.where(over, 0.0, self._oom_peak)
        self._window_end = end
        if not higher.any():
            return peak
        histogram = self._recommender.histogram
        histogram.add(np.where(higher & (before > 0.0), before, np.nan), np.asarray(-1.0), end)
        histogram.add(np.where(higher, used, np.nan), np.asarray(1.0), end)
        return np.where(higher, used, np.where(over, 0.0, peak))
