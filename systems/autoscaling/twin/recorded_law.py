"""The grey-box twin: the environment's queueing law with parameters fitted to a recorded server.

simulator.py composes the law for one interval; here it is composed in the same way for a recorded point,
which was a constant load on an idle deployment: `begin_s` seconds of it before the measurement of `seconds`. The 99th
percentile of latency is fitted by least squares of its logarithm, together with the CPU time of a request, which is
measured directly.

A quota, though, does not slow a server down: it runs at full speed until the quota of a period of 100 ms has run out,
and then not at all. `burst_periods` says how many periods of saved quota a queue may use up before it feels the quota:
the wait is that of the slow server less this time, but never less than that of a server on whole cores (a token
bucket: the delay is the slow queue's beyond the bucket). 0: a quota slows down.

Symbols, all (P,) for P points: rate a (1/s), quota, workers and instances of the deployment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.control.simulation.queueing import QUOTA_PERIOD_S, p99_of, service_p99_factor, waiting_of

Array = NDArray[np.float64]

# Weight of the logarithm of the CPU time a request beside that of the 99th percentile: it is measured to some percent,
# a percentile of some hundred requests to some ten.
_CPU_WEIGHT = 5.0
# Where a fit begins, and its bounds: (start, low, high); logarithms are fitted but of the two that may be 0. What is
# left of a quota at the end of its period is lost: no more than one period can be saved.
_BOUNDS = {
    "cpu_ms": (1.0, 0.01, 1000.0), "cv2": (0.5, 0.01, 30.0), "fixed_ms": (0.3, 0.001, 1000.0),
    "contention": (0.05, 0.0, 2.0), "burst_periods": (0.3, 0.0, 1.0)}
_STARTS_OF_CV2 = (0.1, 1.0, 5.0)
_LINEAR = ("contention", "burst_periods")
# Range of the loss within which an error counts squared, and beyond which as its size: points may be disturbed.
_LOSS_SCALE = 0.3


@dataclass(frozen=True)
class LawParameters:
    """What the law needs of a server.

    Attributes:
        cpu_ms: CPU time a request, ms.
        cv2: squared coefficient of variation of service.
        fixed_ms: latency that more CPU does not shorten, ms.
        contention: loss of speed for each further core of an instance, as in applications.py.
        burst_periods: periods of saved quota; 0: a quota slows down.
    """

    cpu_ms: float
    cv2: float
    fixed_ms: float
    contention: float = 0.0
    burst_periods: float = 0.0


@dataclass(frozen=True)
class Points:
    """Recorded points of one server, (P,) each.

    Attributes:
        rate: requests due, 1/s.
        quota: of an instance, cores.
        workers: of an instance.
        instances: of the deployment.
        load: offered load as a share of the capacity, as it was planned.
        cpu_ms: CPU time a request, measured, ms.
        p99_ms: measured, ms.
        begin_s: load before the measurement, s.
        seconds: of the measurement, s.
        timeout_s: a client gave up after it, s.
    """

    rate: Array
    quota: Array
    workers: Array
    instances: Array
    load: Array
    cpu_ms: Array
    p99_ms: Array
    begin_s: float
    seconds: float
    timeout_s: float

    def __len__(self) -> int:
        return len(self.rate)

    def take(self, index: NDArray[np.int64]) -> "Points":
        """Those at `index`."""
        return replace(
            self, rate=self.rate[index], quota=self.quota[index], workers=self.workers[index],
            instances=self.instances[index], load=self.load[index], cpu_ms=self.cpu_ms[index],
            p99_ms=self.p99_ms[index])


def predict_p99_ms(parameters: LawParameters, points: Points, *, own_cpu: bool = False) -> Array:
    """The law's 99th percentile of latency, ms, at most the time-out.

    Args:
        parameters: of the server.
        points: what is asked for.
        own_cpu: the CPU time a request that each point measured, in place of the server's.
    """
    tensors = (torch.from_numpy(values) for values in (points.rate, points.quota, points.workers, points.instances))
    rate, quota, workers, instances = tensors
    cpu_s = torch.from_numpy(points.cpu_ms if own_cpu else np.full(len(points), parameters.cpu_ms)) / 1000.0
    cores = quota.minimum(workers)
    variability = torch.full_like(rate, 0.5 * (1.0 + parameters.cv2))  # arrivals were Poisson
    factor = service_p99_factor(torch.full_like(rate, parameters.cv2))

    def composed(allowed: torch.Tensor) -> torch.Tensor:
        """99th percentile with that many cores an instance, s; as in simulator.py."""
        whole = allowed.clamp(min=1.0)
        servers = instances * whole / (1.0 + parameters.contention * (whole - 1.0))
        service = cpu_s / allowed.clamp(max=1.0)
        growth = (rate * service / servers - 1.0).clamp(min=0.0)  # of the backlog, s of work a second
        first, last = (growth * after for after in (points.begin_s, points.begin_s + points.seconds))
        longest = (0.99 * last + 0.01 * first).clamp(max=points.timeout_s)
        step_s = points.begin_s + points.seconds
        return p99_of(waiting_of(rate, servers, service, variability, step_s), service, factor, longest)

    p99 = composed(cores)
    if parameters.burst_periods > 0:
        p99 = composed(workers).maximum(p99 - parameters.burst_periods * QUOTA_PERIOD_S)
    p99_ms: Array = (1000.0 * p99 + parameters.fixed_ms).clamp(max=1000.0 * points.timeout_s).numpy()
    return p99_ms


def fit(
    points: Points, free: Sequence[str], start: LawParameters | None = None, *, own_cpu: bool = False
) -> LawParameters:
    """Least squares of the logarithm of the 99th percentile and of the CPU time a request.

    Args:
        points: to fit to.
        free: names of the parameters to fit, of which those are left out that the points cannot tell (`told_by`); the
            others stay as in `start`.
        start: where the fit begins.
        own_cpu: see `predict_p99_ms`.
    """
    from scipy.optimize import least_squares

    free = told_by(points, free)
    begin = start or LawParameters(float(np.median(points.cpu_ms)), *(_BOUNDS[name][0] for name in ("cv2", "fixed_ms")))
    fixed = vars(begin)

    def made(codes: Array) -> LawParameters:
        values = {name: _value(name, float(code)) for name, code in zip(free, codes, strict=True)}
        return LawParameters(**(fixed | values))

    def residuals(codes: Array) -> Array:
        parameters = made(codes)
        latency = np.log(predict_p99_ms(parameters, points, own_cpu=own_cpu) / points.p99_ms)
        cpu = _CPU_WEIGHT * np.log(parameters.cpu_ms / points.cpu_ms)
        return np.asarray(np.concatenate([latency, cpu]))

    low, high = (np.array([_code(name, _BOUNDS[name][at]) for name in free]) for at in (1, 2))
    best: Any = None
    for cv2 in _STARTS_OF_CV2:
        begun = fixed | {name: max(fixed[name], _BOUNDS[name][0]) for name in free if name in _LINEAR} | {"cv2": cv2}
        first = np.clip(np.array([_code(name, begun[name]) for name in free]), low + 1e-9, high - 1e-9)
        found = least_squares(residuals, first, bounds=(low, high), loss="soft_l1", f_scale=_LOSS_SCALE, diff_step=1e-4)
        best = found if best is None or found.cost < best.cost else best
    return made(best.x)


def told_by(points: Points, free: Sequence[str]) -> tuple[str, ...]:
    """Those of the parameters that the points can tell; another value of the others would not change a prediction."""
    silent = set()
    if (np.minimum(points.quota, points.workers) <= 1.0).all():
        silent.add("contention")
    if (points.quota >= points.workers).all():
        silent.add("burst_periods")
    return tuple(name for name in free if name not in silent)


def _code(name: str, value: float) -> float:
    """As the fit sees it: the logarithm, but of what may be 0."""
    return value if name in _LINEAR else float(np.log(value))


def _value(name: str, code: float) -> float:
    return code if name in _LINEAR else float(np.exp(code))
