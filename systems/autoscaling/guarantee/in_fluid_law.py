"""An autoscaling policy in the fluid law: what it sees there, and the law itself, step by step.

Assumed, and said with every guarantee:
  - a core works off a core second a second, replicas serve at once, metrics are those of the last step, without noise;
  - memory stays as it is set, and disk and network idle;
  - the load has not changed by more than d a step for long, so that its exponential means and its peak are as near to
    it as that makes them: d w / (1 - w) and 19 d, w being what a step leaves of a mean;
  - without a backlog latency may be anything; with one it is at least the wait of those who come last.
How long ago replicas were raised may be anything.

Symbols: m runs; state of (b, a, L, k).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.control.contract.signals import rounded_up
from models.verification.checker.chain import Chain
from systems.autoscaling.guarantee.catching_up import PARTS, PERCENTILE, ROUNDED_DOWN, Scaler, ScalerLaw
from systems.autoscaling.interface import CONTROLS, SIGNALS, STEP_SECONDS

FloatArray = NDArray[np.float64]
Execute = Callable[[FloatArray], FloatArray]  # (m, 19) -> (m, 3)

_NAMES = tuple(signal.name for signal in SIGNALS)
_MEANS_S = {"rate_1min_rps": 60.0, "rate_5min_rps": 300.0, "rate_25min_rps": 1500.0}
_PEAK_LAG = 19.0  # 0.95 / 0.05 steps: a step takes a twentieth of what the peak is above the load (simulator.py)
_MEMORY_SHARE = 0.6  # of the limit that is used
_LONG_AGO_S = 960.0


@dataclass(frozen=True)
class Service:
    """What the law needs of a workload: CPU time a request, memory of a replica, the objective."""

    cpu_ms: float
    memory_mib: float
    slo_ms: float

    @property
    def fixed(self) -> dict[str, float]:
        """Signals that stand still."""
        used = max(self.memory_mib, SIGNALS[_NAMES.index("memory_used_mib")].low)
        limit = max(used / _MEMORY_SHARE, SIGNALS[_NAMES.index("memory_limit_mib")].low)
        return {"slo_ms": self.slo_ms, "served_share": 1.0, "io_utilization": 0.0, "network_utilization": 0.0,
                "cpu_utilization": 1.0, "memory_limit_mib": limit, "memory_used_mib": used,
                "memory_utilization": used / limit}


def lags(change: float) -> dict[str, tuple[float, float]]:
    """Signal -> by how much it may be below and above the load, in cores."""
    kept = {name: math.exp(-STEP_SECONDS / seconds) for name, seconds in _MEANS_S.items()}
    found = {name: (-change * left / (1 - left), change * left / (1 - left)) for name, left in kept.items()}
    return {**found, "rate_peak_5min_rps": (0.0, _PEAK_LAG * change)}


def scaler_of(policy: Chain, service: Service, law: ScalerLaw, falls: tuple[float, float] = (0.0, 0.0)) -> Scaler:
    """What the policy sees under a backlog, by the assumptions above. falls: of `Scaler`."""
    matrix = np.zeros((len(_NAMES), len(PARTS)))
    low, high = np.zeros(len(_NAMES)), np.zeros(len(_NAMES))
    a_core = 1e3 / service.cpu_ms  # requests a second
    parts = {"cpu_limit_cores": ("limit", 1.0), "replicas": ("replicas", 1.0), "ready_replicas": ("replicas", 1.0),
             "cpu_used_cores": ("used", 1.0), "p99_ms": ("latency", 1.0), "rate_rps": ("load", a_core)}
    moved = lags(law.change)
    for row, signal in enumerate(SIGNALS):
        name = signal.name
        if name in parts or name in moved:
            part, factor = parts.get(name, ("load", a_core))
            matrix[row, PARTS.index(part)] = factor
            low[row], high[row] = (a_core * lag for lag in moved.get(name, (0.0, 0.0)))
        elif name == "raised_s_ago":
            low[row], high[row] = signal.low, signal.high
        else:
            low[row] = high[row] = service.fixed[name]
    targets = [control.name for control in CONTROLS]
    least, most = (np.array([getattr(signal, end) for signal in SIGNALS]) for end in ("low", "high"))
    return Scaler(policy, matrix, low, high, targets.index("target_cpu_limit_cores"), targets.index("target_replicas"),
                  least, most, falls)


def law_of(service: Service, load: tuple[float, float], change: float, limits: tuple[float, float],
           replicas: tuple[int, int]) -> ScalerLaw:
    """The law, with what the limits of change leave: those of CONTROLS, which every specification demands."""
    of = {control.name: control for control in CONTROLS}
    down = of["target_replicas"].most_down
    kept = min(max(rounded_up(number - max(down * number, 1.0) - ROUNDED_DOWN, math.ceil), replicas[0], 1) / number
               for number in range(replicas[0], replicas[1] + 1))
    return ScalerLaw(STEP_SECONDS, *load, change, *limits, *replicas, objective_ms=service.slo_ms,
                     kept_share=kept * (1.0 - of["target_cpu_limit_cores"].most_down))


@dataclass(frozen=True)
class Runs:
    """backlog after each step in core seconds, load and capacity of it in cores, (T, m) each."""

    backlog: FloatArray
    load: FloatArray
    capacity: FloatArray


LOADS = ("rises", "falls", "rises and falls", "moves at random")


Serve = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]]


def run_law(execute: Execute, service: Service, law: ScalerLaw, start: float, steps: int, count: int = 256,
            seed: int = 0, serve: Serve | None = None) -> Runs:
    """`count` runs of the law with the policy as it is executed, with true means of the load.

    Without a backlog latency is drawn from 1 ms to 95 % of the objective, anew in every step.

    Args:
        execute: the policy, raw observations to raw targets.
        start: backlogs of the starts are 0 or so many core seconds.
        serve: (backlog, load, replicas, limit) -> (next backlog, used cores, latency in ms; 0: as without a backlog),
            in place of the fluid's.
    """
    random = np.random.default_rng(seed)
    state, raised = _starts(law, start, count, random), np.full(count, _LONG_AGO_S)
    b, a, k, limit = state
    means, peak = np.stack([a] * len(_MEANS_S)), a.copy()
    kept = np.exp(-STEP_SECONDS / np.array(list(_MEANS_S.values())))[:, None]
    period, kinds = random.integers(1, 400, count), np.arange(count) % len(LOADS)
    found, a_core = [], 1e3 / service.cpu_ms
    for step in range(steps):
        c = k * limit
        following, used, latency = (serve or _fluid(law.step_s))(b, a, k, limit)
        calm = np.exp(random.uniform(0.0, np.log(0.95 * service.slo_ms), count))
        rates = {name: mean * a_core for name, mean in zip(_MEANS_S, means, strict=True)}
        targets = execute(_observed(service, {
            "cpu_limit_cores": limit, "replicas": k, "ready_replicas": k, "raised_s_ago": raised,
            "cpu_used_cores": used, "cpu_utilization": used / c, "p99_ms": np.maximum(calm, latency),
            "rate_rps": a * a_core, "rate_peak_5min_rps": peak * a_core, **rates}))
        found.append((following, a, c))
        limit = np.clip(targets[:, 0], law.limit_low, law.limit_high)
        count_now = np.clip(rounded_up(targets[:, 2], np.ceil), law.replicas_low, law.replicas_high)
        raised = np.where(count_now > k, STEP_SECONDS, np.minimum(raised + STEP_SECONDS, _LONG_AGO_S))
        wave = np.where(step // period % 2 == 0, law.change, -law.change)
        rise = np.select([kinds == 0, kinds == 1, kinds == 2], [law.change, -law.change, wave],
                         law.change * random.uniform(-1, 1, count))
        b, k, a = following, count_now, np.clip(a + rise, law.load_low, law.load_high)
        means = kept * means + (1 - kept) * a
        peak = np.maximum(a, peak - (peak - a).clip(0.0) / (_PEAK_LAG + 1))
    return Runs(*(np.stack(part) for part in zip(*found, strict=True)))


def _starts(law: ScalerLaw, start: float, count: int, random: np.random.Generator) -> tuple[FloatArray, ...]:
    """Backlogs, loads, replicas and limits; the least capacity among them often."""
    load = law.load_low + random.random(count) * (law.load_high - law.load_low)
    drawn = random.integers(law.replicas_low, law.replicas_high + 1, count)
    number = np.where(random.random(count) < 0.3, float(law.replicas_low), drawn)
    limit = law.limit_low + random.integers(0, 2, count) * random.random(count) * (law.limit_high - law.limit_low)
    return np.where(random.random(count) < 0.5, start, 0.0), load, number, limit


def _fluid(step_s: float) -> Serve:
    def serve(b: FloatArray, a: FloatArray, k: FloatArray, limit: FloatArray
              ) -> tuple[FloatArray, FloatArray, FloatArray]:
        c = k * limit
        value = b + (a - c) * step_s
        return np.maximum(value, 0.0), np.minimum(c, a + b / step_s), 1e3 * PERCENTILE * np.maximum(b, value) / c

    return serve


def _observed(service: Service, seen: Mapping[str, FloatArray]) -> FloatArray:
    """(m, 19), within the signals' ranges."""
    fixed, like = service.fixed, next(iter(seen.values()))
    return np.stack([np.clip(seen[one.name] if one.name in seen else np.full_like(like, fixed[one.name]), one.low,
                             one.high) for one in SIGNALS], axis=1)
