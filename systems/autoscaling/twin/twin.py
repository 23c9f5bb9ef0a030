"""The environment of one workload: its load replayed on an application that is known as far as the task file says.

What the file says of the application (CPU time a request, memory, ...) holds in all variations of it; what it does not
say is drawn as for the randomised applications, so that a policy has to do well whatever the truth is. The earlier two
thirds of the load train, the later third judges, and the variations are others. In training the level of the load
varies by LEVELS, for tomorrow's is not known. Episodes stand in the order of time: neighbours overlap.

A workload that runs a recorded server has the server's fitted parameters (recorded_applications.py), but for those that
the file gives. Without an objective a workload is best effort: the objective is the largest latency that can be
observed.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.control.contract.setting import Setting
from models.control.simulation.queueing import QUOTA_PERIOD_S
from systems.autoscaling.interface import CONTROLS
from systems.autoscaling.simulator.applications import Applications, generate
from systems.autoscaling.simulator.episodes import Episodes
from systems.autoscaling.simulator.simulator import Autoscaling
from systems.autoscaling.twin.recorded_applications import recorded_applications

if TYPE_CHECKING:
    import pandas as pd

BEST_EFFORT_MS = 16_384.0
VARIATIONS, JUDGING = 160, 40
LEAST_VARIATIONS = 8  # that can meet the objective at all, to train and to judge
SEED = 11
MINUTE_S = 60.0
TRAINS = 2 / 3  # of the minutes
LEVELS = 1.6  # the load of a training variation is that of the telemetry, times or over as much

RECORDED = {str(one["name"]): one for one in recorded_applications()}

SETTINGS = (
    Setting("server", "", "", choices=("", *RECORDED), meaning="recorded server that it runs; empty: none of them"),
    Setting("slo_ms", BEST_EFFORT_MS, "ms", 4.0, BEST_EFFORT_MS, meaning="objective of the 99th percentile of latency"),
    Setting("cpu_ms", 10.0, "ms", 0.01, 10_000.0, meaning="CPU time a request on this machine"),
    Setting("fixed_ms", 1.0, "ms", 0.0, 10_000.0, meaning="latency that more CPU does not shorten"),
    Setting("cv2", 0.5, "1", 0.01, 30.0, meaning="squared coefficient of variation of the time a request takes"),
    Setting("burst_periods", 0.3, "1", 0.0, 1.0,
            meaning="periods of 100 ms of saved CPU quota that a queue uses up before it feels the limit"),
    Setting("arrival_cv2", 1.0, "1", 0.1, 30.0,
            meaning="squared coefficient of variation of the times between requests; 1: Poisson"),
    Setting("stolen_share", 0.0, "share", 0.0, 0.7, meaning="of the CPU, that neighbours take on average"),
    Setting("workers", 4.0, "count", 1.0, 64.0, meaning="requests that a replica works on at once, at most"),
    Setting("memory_mib", 100.0, "MiB", 1.0, 32_768.0, meaning="memory of a replica at rest"),
    Setting("request_mib", 1.0, "MiB", 0.0, 1_024.0, meaning="memory of a request that is being worked on"),
    Setting("startup_s", 27.0, "s", 0.0, 89.0, meaning="from the decision until a new replica serves"),
)
# setting -> parameter of `Applications`, and factor to its unit
_PARAMETERS = {"slo_ms": ("slo_s", 1e-3), "cpu_ms": ("cpu_s", 1e-3), "fixed_ms": ("fixed_s", 1e-3),
               "cv2": ("service_cv2", 1.0), "burst_periods": ("burst_s", QUOTA_PERIOD_S),
               "arrival_cv2": ("arrival_cv2", 1.0), "stolen_share": ("stolen", 1.0), "workers": ("workers", 1.0),
               "memory_mib": ("memory_mib", 1.0), "request_mib": ("request_mib", 1.0), "startup_s": ("startup_s", 1.0)}
# the same of a recorded server
_FITTED = {**{name: found for name, found in _PARAMETERS.items() if name not in ("slo_ms", "workers")},
           "contention": ("contention", 1.0), "io": ("io", 1e-3), "network": ("network", 1e-3)}


def twin(telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
         limits: Mapping[str, tuple[float, float]]) -> Autoscaling:
    """See `ControlledSystem.twin`.

    Raises:
        InputError: the load is too short or all zeros; the objective cannot be met by an idle replica.
    """
    rate = minutes(telemetry)
    pool, judging = _variations(float(rate.mean()), settings)
    controls = tuple(replace(one, low=low, high=high) for one in CONTROLS
                     for low, high in [limits.get(one.name, (one.low, one.high))])
    return _Twin(pool, rate / rate.mean(), judging).with_controls(controls)


def replay(telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
           limits: Mapping[str, tuple[float, float]], bounded: bool) -> tuple[Autoscaling, Episodes]:
    """See `OwnServiceSystem.replay`. The load is that of the rows, without variation or noise.

    Raises:
        InputError: as `twin`.
    """
    rate = telemetry["rate_rps"].to_numpy(dtype=np.float64)
    if not (np.isfinite(rate).all() and (rate > 0).any()):
        raise InputError(f"load: expected finite rates and a request at least, got {len(rate)} rows without")
    pool, judging = _variations(float(rate.mean()), settings)
    pool = pool.take(torch.arange(len(pool) - judging, len(pool)))
    environment = Autoscaling(pool, np.ones((2, 4)), held_out=len(pool)).with_controls(tuple(
        replace(one, low=low, high=high) if bounded else replace(one, low=0.1 * one.low, high=4.0 * one.high,
                                                                 most_down=1.0, most_up=math.inf)
        for one in CONTROLS for low, high in [limits.get(one.name, (one.low, one.high))]))
    drawn = environment.draw("held_out", len(pool), len(rate), SEED, applications=range(len(pool)))
    return environment, replace(drawn, rate=torch.tensor(rate, dtype=torch.float32)[:, None].repeat(1, len(pool)))


class _Twin(Autoscaling):
    """One load, cut in time."""

    def __init__(self, applications: Applications, shape: NDArray[np.float64], held_out: int) -> None:
        super().__init__(applications, shape[None], held_out=held_out)
        cut = int(TRAINS * len(shape))
        self._traces = {"train": torch.tensor(shape[None, :cut], dtype=torch.float32),
                        "held_out": torch.tensor(shape[None, cut:], dtype=torch.float32)}


def minutes(telemetry: "pd.DataFrame") -> NDArray[np.float64]:
    """(M,) rates a minute of rows in order of time without a gap; longer windows last several minutes.

    Raises:
        InputError: fewer than four minutes, or no request in them.
    """
    rate, window = telemetry["rate_rps"].to_numpy(dtype=np.float64), float(telemetry["window_s"].iloc[0])
    count = int(len(rate) * window // MINUTE_S)
    if count < 4:
        raise InputError(f"load: expected at least four minutes, got {len(rate) * window / MINUTE_S:.3g}")
    arrived = np.concatenate([[0.0], np.cumsum(rate * window)])  # until the end of each window
    until = np.interp(np.arange(count + 1) * MINUTE_S, np.arange(len(arrived)) * window, arrived)
    found = np.diff(until) / MINUTE_S
    if not (found > 0).any():
        raise InputError(f"load: expected a request at least, got only zeros in {count} minutes")
    return found


def _variations(mean_rate: float, settings: Mapping[str, float | str]) -> tuple[Applications, int]:
    """Applications with the given parameters and others as they are drawn, and how many of them, the last ones, judge.

    load_cores follows from the rate.
    """
    drawn = generate(VARIATIONS, SEED)
    recorded = RECORDED.get(str(settings.get("server", "")), {})
    known = {parameter: float(recorded[name]) * factor for name, (parameter, factor) in _FITTED.items()
             if name in recorded and name not in recorded["not_told"]}
    known["slo_s"] = BEST_EFFORT_MS * 1e-3
    known |= {_PARAMETERS[name][0]: float(value) * _PARAMETERS[name][1]
              for name, value in settings.items() if name != "server"}
    given = {parameter: torch.full((VARIATIONS,), value) for parameter, value in known.items()}
    if "cpu_s" in known:  # as it was measured: on this machine
        given["speed"] = torch.ones(VARIATIONS)
    drawn = replace(drawn, **given)
    level = torch.tensor(np.exp(np.random.default_rng(SEED).uniform(-1, 1, VARIATIONS) * np.log(LEVELS)))
    level[-JUDGING:] = 1.0
    drawn = replace(drawn, load_cores=(level.float() * mean_rate * drawn.cpu_s / drawn.speed).clamp(min=1e-3))
    idle = drawn.fixed_s + drawn.cpu_s / (drawn.speed * (1.0 - drawn.stolen)) * drawn.p99_factor
    possible = torch.nonzero((idle * 1.2 <= drawn.slo_s) & (drawn.load_cores < 256.0))[:, 0]
    judging = int((possible >= VARIATIONS - JUDGING).sum())
    if min(len(possible) - judging, judging) < LEAST_VARIATIONS:
        least_ms = 1.2e3 * float(idle.sort().values[LEAST_VARIATIONS])
        raise InputError(f"slo_ms: expected at least {least_ms:.3g}, which a whole core without load takes, got "
                         f"{1e3 * float(drawn.slo_s[0]):g}, or a load that 256 cores can serve, got "
                         f"{mean_rate:.4g} requests a second")
    return drawn.take(possible), judging
