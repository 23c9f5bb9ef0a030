"""What the environment says of a run: the load that came and the quotas that stood, replayed in the simulator.

The service has the parameters that were fitted to its recorded telemetry (systems/autoscaling/twin/
recorded_applications.json), Poisson arrivals, no neighbours and no noise: nothing is fitted to the run itself.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from models.control.simulation.queueing import QUOTA_PERIOD_S
from recording.live.service import TIMEOUT_S
from systems.autoscaling.simulator.applications import Applications, generate
from systems.autoscaling.simulator.episodes import Episodes
from systems.autoscaling.simulator.simulator import Autoscaling, Physics
from systems.autoscaling.twin.twin import RECORDED

Array = NDArray[np.float64]


def forecast_p99_ms(server: str, rate: Array, quota: Array, memory_mib: float) -> Array:
    """99th percentile of latency in each interval, ms (K, N); at most the time after which a client gives up.

    Args:
        server: a recorded one.
        rate: requests a second (K, N) of N runs.
        quota: cores (K, N).
        memory_mib: limit.
    """
    intervals, count = rate.shape
    application = _application(server, count)
    rates = torch.tensor(rate, dtype=torch.float32).clamp(min=1.0)
    shape = torch.ones_like(rates)
    episodes = Episodes(application, torch.arange(count), rates, shape * application.cpu_s, 0.0 * shape,
                        torch.zeros(intervals, 3, count), torch.ones(count))
    calm = Physics(start_up=False, late_metrics=False, noisy_metrics=False, neighbours=False)
    environment = Autoscaling(application, physics=calm, held_out=1)
    # what stood is replayed as it was, whatever limits its controller had
    environment = environment.with_controls(tuple(
        replace(one, low=1e-3, most_down=0.999, most_up=1e3) for one in environment.controls))
    state = environment.reset(episodes)
    found = [state.latest.p99_ms]
    for interval in range(1, intervals):
        targets = torch.stack([torch.tensor(quota[interval], dtype=torch.float32), torch.full((count,), memory_mib),
                               torch.ones(count)], dim=1)
        state, _ = environment.step(state, targets)
        found.append(state.latest.p99_ms)
    return np.minimum(torch.stack(found).numpy().astype(np.float64), 1000.0 * TIMEOUT_S)


def _application(server: str, count: int) -> Applications:
    one = RECORDED[server]
    known = {"cpu_s": one["cpu_ms"] * 1e-3, "service_cv2": one["cv2"], "arrival_cv2": 1.0,
             "fixed_s": one["fixed_ms"] * 1e-3, "workers": 1.0, "contention": one["contention"],
             "burst_s": one["burst_periods"] * QUOTA_PERIOD_S, "memory_mib": one["memory_mib"],
             "request_mib": one["request_mib"], "io": 0.0, "network": 0.0, "startup_s": 0.0, "speed": 1.0,
             "stolen": 0.0, "stolen_spread": 0.0, "slo_s": 1.0, "load_cores": 1.0}
    return replace(generate(count, 0), **{name: torch.full((count,), float(value)) for name, value in known.items()})
