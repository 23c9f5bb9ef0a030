"""What a scaling campaign records, from its settings alone. Pure: the same settings give the same plan.

deployment   one server with a CPU quota, a number of workers and a number of instances
trial        one deployment under one course of load; the unit that is recorded whole or not at all

Load is planned as utilisation: arrivals per second times the server's CPU seconds per request (measured before the
trials, recording/scaling/campaign.py), over the cores that the deployment may use. Above 1 the queue grows.
"""

from dataclasses import dataclass

import numpy as np

from recording.scaling.arrivals import draw_shape
from recording.scaling.servers.catalogue import SERVERS
from recording.scaling.settings import ScalingSettings

# (quota of an instance in cores, workers of an instance, instances)
_SHAPES = ((0.25, 1, 1), (0.5, 1, 1), (1.0, 1, 1), (0.3, 1, 2), (0.3, 1, 4), (1.5, 2, 1))
# Where one instance cannot use more than one processor.
_SINGLE_THREAD_SHAPES = (*_SHAPES[:-1], (0.6, 1, 2))
_RESIZED = (0.5, 1, 1)

# Courses of load that are no sweeps: (utilisation, s).
_STEPS = ((0.3, 8.0), (0.8, 8.0), (0.3, 6.0), (1.1, 6.0), (0.5, 10.0))
_TRACE_MINUTES = 30
_TRACE_MINUTE_S = 2.0
_TRACE_PEAK = 0.95
# Quotas in the course of a trial: (s, cores); at first too little, then more than enough.
_QUOTAS = ((8.0, 0.3), (13.0, 0.5), (21.0, 1.0), (29.0, 0.5))
_START = ((0.4, 8.0),)
_WINDOW_S = 2.0
_FINE_WINDOW_S = 1.0


@dataclass(frozen=True)
class Deployment:
    """A server as it is deployed.

    Attributes:
        server: key of the catalogue.
        quota_cores: CPU quota of each instance, cores.
        workers: worker processes or threads of each instance.
        instances: copies, each with a control group of its own.
    """

    server: str
    quota_cores: float
    workers: int
    instances: int

    @property
    def identifier(self) -> str:
        """Such as `nginx-0.25x1x2`: quota, workers, instances."""
        return f"{self.server}-{self.quota_cores:g}x{self.workers}x{self.instances}"

    @property
    def cores(self) -> float:
        """Processors that all instances together may use."""
        return self.instances * min(self.quota_cores, float(self.workers))


@dataclass(frozen=True)
class Change:
    """A resize in the course of a trial.

    Attributes:
        at_s: time after the trial's start, s.
        what: "quota" (cores of every instance), "workers" (of every instance) or "instance" (one more is started).
        value: the new quota or number of workers; instances from then on.
    """

    at_s: float
    what: str
    value: float


@dataclass(frozen=True)
class Trial:
    """One course of load.

    Attributes:
        identifier: value of the column `trial`.
        kind: start, point, steps, trace, quota, workers or instance.
        deployment: what is under load.
        load: (utilisation, seconds) one after the other.
        changes: resizes, in order of time.
        warm_up_s: cut off at the start, s.
        window_s: length of the windows, s.
        seed: of the arrivals and requests.
    """

    identifier: str
    kind: str
    deployment: Deployment
    load: tuple[tuple[float, float], ...]
    changes: tuple[Change, ...]
    warm_up_s: float
    window_s: float
    seed: int

    @property
    def seconds(self) -> float:
        """Length, s."""
        return sum(seconds for _, seconds in self.load)


def plan_scaling(settings: ScalingSettings, invocations: np.ndarray) -> list[tuple[Deployment, list[Trial]]]:
    """The deployments of a campaign in order, each with its trials; the first one is always the start.

    Args:
        settings: what is asked for.
        invocations: of a trace, per minute [functions, minutes].
    """
    random = np.random.default_rng(settings.seed)
    plan = []
    for server in settings.servers:
        shapes = _SHAPES if SERVERS[server].most_workers > 1 else _SINGLE_THREAD_SHAPES
        for shape in shapes:
            deployment = Deployment(server, *shape)
            courses = [("start", _START, (), 0.0, 0.5), *_sweep(random, settings)]
            if not settings.sweeps_only:
                courses += _others(random, deployment, invocations)
            seeds = random.integers(0, 2**31, len(courses))
            trials = [
                Trial(f"{deployment.identifier}-{number:02d}-{kind}", kind, deployment, load, changes, warm_up, window,
                      int(seed))
                for number, ((kind, load, changes, warm_up, window), seed) in enumerate(
                    zip(courses, seeds, strict=True))
            ]
            plan.append((deployment, trials))
    return plan


_Course = tuple[str, tuple[tuple[float, float], ...], tuple[Change, ...], float, float]


def _sweep(random: np.random.Generator, settings: ScalingSettings) -> list[_Course]:
    """Points in random order, so that a drift of the machine is not taken for an effect of the load."""
    order = random.permutation(len(settings.utilisations))
    length = settings.warm_up_s + settings.point_s
    return [("point", ((settings.utilisations[index], length),), (), settings.warm_up_s, _WINDOW_S) for index in order]


def _others(random: np.random.Generator, deployment: Deployment, invocations: np.ndarray) -> list[_Course]:
    """Steps, a trace and resizes, on one deployment of each server (and changes of workers where it has several)."""
    courses: list[_Course] = []
    if (deployment.quota_cores, deployment.workers, deployment.instances) == _RESIZED:
        shape = draw_shape(random, invocations, _TRACE_MINUTES)
        trace = tuple((float(max(_TRACE_PEAK * value, 0.01)), _TRACE_MINUTE_S) for value in shape)
        quotas = tuple(Change(at, "quota", cores) for at, cores in _QUOTAS)
        courses = [
            ("steps", _STEPS, (), 0.0, _FINE_WINDOW_S),
            ("trace", trace, (), 0.0, _WINDOW_S),
            ("quota", ((0.7, 35.0),), quotas, 0.0, _FINE_WINDOW_S),
            ("instance", ((0.9, 20.0),), (Change(5.0, "instance", 2.0),), 0.0, _FINE_WINDOW_S),
        ]
    if deployment.workers > 1:
        changes = (Change(8.0, "workers", 1.0), Change(16.0, "workers", float(deployment.workers)))
        courses.append(("workers", ((0.5, 24.0),), changes, 0.0, _FINE_WINDOW_S))
    return courses
