"""Autopilot's moving-window recommenders, for limits and for replicas.

Rzadca et al., Autopilot: workload autoscaling at Google, EuroSys 2020. Limits, section 3.2.2: over samples that fade by
half in a half-life (12 h of CPU, 48 h of memory)

    peak        the largest of the last samples
    average     their weighted mean
    percentile  of the load-adjusted histogram, in which a sample counts its weight times its value: core seconds

plus a safety margin of 10 to 15 %, and the largest recommendation of the last hour. CPU of serving jobs takes the 95th
percentile, memory the 98th, of the peaks of 5 minutes. Replicas, section 3.3: the largest use, averaged over a window,
of a horizon, over target utilisation; fewer by one task in 5 minutes.

Other than there: windows and half-lives are settings (an episode of hours does not see 48 h); the average of a window
is an exponential one; a recommendation is made each minute; memory also holds the peak of the 5 minutes that run, and a
limit that was reached counts as a peak of `oom_ratio` times it, so that a killed task is answered at once.

Symbols: N applications.
"""

from typing import ClassVar

import numpy as np

from models.control.contract.setting import Setting, Values
from systems.autoscaling.rules.histogram import DecayingHistogram
from systems.autoscaling.rules.part import Numbers, Readings
from systems.autoscaling.rules.vpa import VpaCpu, VpaMemory
from systems.autoscaling.rules.windows import SlidingMaximum

PAPER = "Rzadca et al., EuroSys 2020, sections 3.2 and 3.3, doi 10.1145/3342195.3387524"
HOUR_S = 3600.0


def _declared(statistic: str, percentile: float, half_life_h: float) -> tuple[Setting, ...]:
    return (
        Setting("statistic", statistic, "", choices=("peak", "average", "percentile"), searched=True,
                meaning="of the samples"),
        Setting("percentile", percentile, high=1.0, search=(0.5, 1.0), meaning="of the load-adjusted histogram"),
        Setting("half_life_s", half_life_h * HOUR_S, "s", 1.0, 1e8, (120.0, 12 * HOUR_S), log=True,
                meaning="until a sample counts half"),
        Setting("peak_window_s", HOUR_S, "s", 1.0, 1e8, (300.0, 4 * HOUR_S), log=True, meaning="of the statistic peak"),
        Setting("margin", 0.1, high=10.0, search=(0.0, 1.0), meaning="added to the statistic"),
        Setting("hold_s", HOUR_S, "s", 1.0, 1e8, (15.0, 2 * HOUR_S), log=True,
                meaning="the largest recommendation of this time holds"),
        Setting("interval_s", 60.0, "s", 1.0, 3600.0, meaning="between two looks at the samples"),
    )


class _Limit:
    """A limit from samples."""

    def __init__(self, values: Values, applications: int, first: float, largest: float) -> None:
        self._values = values
        self._histogram = DecayingHistogram(applications, first, largest, values["half_life_s"])
        self._sum, self._weight = np.zeros(applications), np.zeros(applications)
        self._peaks, self._held = SlidingMaximum(applications), SlidingMaximum(applications)
        self._statistic = np.full(applications, np.nan)
        self._next = -np.inf
        self._seconds = 0.0

    def add(self, sample: Numbers, seconds: float) -> None:
        """Takes samples (N,), NaN where there is none."""
        valid = np.isfinite(sample)
        value = np.where(valid, sample, 0.0)
        fade = np.exp2(-(seconds - self._seconds) / self._values["half_life_s"])
        self._seconds = seconds
        self._sum, self._weight = self._sum * fade + value, self._weight * fade + valid
        self._histogram.add(sample, value, np.asarray(seconds))
        self._largest = self._peaks.add(seconds, sample, self._values["peak_window_s"])

    def recommended(self, least: Numbers, seconds: float) -> Numbers:
        """(N,) the limit; NaN before any sample. `least`: (N,) what the statistic is at least, NaN: nothing."""
        values = self._values
        if seconds >= self._next:
            self._next = seconds + float(values["interval_s"].min())
            self._statistic = self._of_samples()
        limit = np.fmax(self._statistic, least) * (1.0 + values["margin"])
        return self._held.add(seconds, limit, values["hold_s"])

    def _of_samples(self) -> Numbers:
        average = self._sum / np.maximum(self._weight, 1e-300)
        percentile, = self._histogram.percentiles([self._values["percentile"]])
        statistic = np.where(self._values["statistic"] == "peak", self._largest,
                             np.where(self._values["statistic"] == "average", average, percentile))
        return np.where((self._weight > 0) & (statistic > 0), statistic, np.nan)


class AutopilotCpu:
    """CPU limit."""

    source: ClassVar[str] = PAPER
    declared: ClassVar[tuple[Setting, ...]] = _declared("percentile", 0.95, 12)

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._limit = _Limit(self._values, applications, VpaCpu.FIRST, VpaCpu.LARGEST)

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) cores."""
        used = readings["cpu_used_of_replica_cores"]
        self._limit.add(used, seconds)
        return self._limit.recommended(np.full_like(used, np.nan), seconds)


class AutopilotMemory:
    """Memory limit."""

    source: ClassVar[str] = PAPER
    declared: ClassVar[tuple[Setting, ...]] = (
        *_declared("percentile", 0.98, 48),
        Setting("aggregation_s", 300.0, "s", 1.0, 1e8, meaning="one sample, the peak, of each"),
        Setting("oom_ratio", 1.2, low=1.0, high=10.0, search=(1.0, 2.0), meaning="peak that a reached limit counts as"),
    )

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._limit = _Limit(self._values, applications, VpaMemory.FIRST, VpaMemory.LARGEST)
        self._peak = np.full(applications, np.nan)
        self._end = np.full(applications, np.nan)

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) MiB."""
        utilization = readings["memory_utilization"]
        used = readings["memory_used_mib"]
        used = np.where(utilization >= 1.0, used * self._values["oom_ratio"], used)
        over = seconds >= np.where(np.isnan(self._end), -np.inf, self._end)
        self._limit.add(np.where(over, self._peak, np.nan), seconds)
        self._end = np.where(over, seconds + self._values["aggregation_s"], self._end)
        self._peak = np.fmax(np.where(over, np.nan, self._peak), used)
        return self._limit.recommended(self._peak, seconds)


class AutopilotReplicas:
    """Replicas by the use of CPU."""

    source: ClassVar[str] = PAPER
    declared: ClassVar[tuple[Setting, ...]] = (
        Setting("cpu_target", 0.7, low=0.01, high=2.0, search=(0.2, 0.95), meaning="CPU used, of the limit"),
        Setting("average_s", 300.0, "s", 1.0, 86400.0, (15.0, 600.0), log=True, meaning="use is averaged over it"),
        Setting("horizon_s", 72 * HOUR_S, "s", 1.0, 1e8, (60.0, 2 * HOUR_S), log=True,
                meaning="the largest use of it counts"),
        Setting("decay_s", 300.0, "s", 0.0, 86400.0, (0.0, 300.0), meaning="between removals of one replica"),
        Setting("min_replicas", 1.0, "count", 1.0, 1000.0, (1.0, 3.0), whole=True, meaning="never fewer"),
    )

    def __init__(self, values: Values) -> None:
        self._values = values

    def start(self, applications: int) -> None:
        """Forgets everything."""
        self._average = np.full(applications, np.nan)
        self._peaks = SlidingMaximum(applications)
        self._removed = np.zeros(applications)
        self._seconds = 0.0

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) replicas; the average is an exponential one of that mean age."""
        values, current = self._values, readings["replicas"]
        used = readings["cpu_used_cores"]
        share = 1.0 - np.exp(-(seconds - self._seconds) / values["average_s"])
        self._seconds = seconds
        started = np.where(np.isnan(self._average), used, self._average)
        self._average = np.where(np.isfinite(used), started + share * (used - started), started)
        largest = self._peaks.add(seconds, self._average, values["horizon_s"])
        wanted = np.maximum(np.ceil(largest / (values["cpu_target"] * readings["cpu_limit_cores"]) - 1e-9),
                            values["min_replicas"])
        slow = values["decay_s"] > 0
        may = seconds - self._removed >= values["decay_s"]
        lower = np.where(slow, np.where(may, current - 1.0, current), wanted)
        self._removed = np.where((wanted < current) & may, seconds, self._removed)
        return np.maximum(wanted, np.minimum(lower, current))
