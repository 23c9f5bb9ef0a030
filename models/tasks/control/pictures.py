"""What the report draws of a policy: a day of one application under several controllers, and a map of its actions.

Symbols: T steps, n signals, m controls, G grid points a side.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.control.contract.environment import Environment
from models.control.simulation.rollout import Acting, in_one_batch
from models.tasks.control.judging import play
from models.tasks.control.task import ControlTask
from models.verification.network.runtime_session import open_session

DAY_S, MOST_STEPS = 86_400.0, 5_760
POINTS = 720  # of a series in the evidence
GRID = 21


def day(task: ControlTask, environment: Environment, controllers: Mapping[str, Acting]) -> dict[str, Any]:
    """One held-out episode of a day (at most MOST_STEPS), the same under each controller, by its name."""
    steps = min(round(DAY_S / environment.step_seconds), MOST_STEPS)
    episodes = environment.draw("held_out", 1, steps, task.judging.seed + 1)
    played = play(environment, episodes.take(torch.zeros(len(controllers), dtype=torch.int64)), steps,
                  in_one_batch(tuple(controllers.values())))
    kept = np.unique(np.linspace(0, steps - 1, min(steps, POINTS)).astype(int))
    names = [signal.name for signal in environment.signals]
    shown = {**{signal: played.observations[:, :, column] for column, signal in enumerate(names)}, **played.series}
    series = {name: {key: _short(values[kept, number * values.shape[1] // len(controllers)])
                     for key, values in shown.items()} for number, name in enumerate(controllers)}
    units = {**{signal.name: signal.unit for signal in environment.signals}, **environment.measures}
    return {"seconds": _short(kept * environment.step_seconds), "series": series, "units": units}


def action_map(environment: Environment, model: bytes, observations: NDArray[np.float32]) -> dict[str, Any]:
    """Targets over present values on a grid of two signals, the others at their medians over what was observed.

    The signals are those that the first two features begin with.

    Args:
        observations: (T, N, n) of episodes.
    """
    names = [signal.name for signal in environment.signals]
    first, second = (names.index(next(iter(feature.terms))) for feature in environment.features[:2])
    seen = observations.reshape(-1, len(names)).astype(np.float64)
    axes = [_axis(seen[:, column]) for column in (first, second)]
    grid = np.repeat(np.median(seen, axis=0)[None], GRID * GRID, axis=0)
    grid[:, first], grid[:, second] = (part.ravel() for part in np.meshgrid(*axes, indexing="ij"))
    session = open_session(model)
    (targets,) = session.run(None, {session.get_inputs()[0].name: grid.astype(np.float32)})
    ratios = {control.name: [_short(row) for row in
                             (targets[:, position] / grid[:, names.index(control.current)]).reshape(GRID, GRID)]
              for position, control in enumerate(environment.controls)}
    x, y = environment.signals[first], environment.signals[second]
    return {"x": {"name": x.name, "unit": x.unit, "values": _short(axes[0])},
            "y": {"name": y.name, "unit": y.unit, "values": _short(axes[1])},
            "held_at": dict(zip(names, _short(np.median(seen, axis=0)), strict=True)),
            "target_over_present": ratios}


def _axis(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(G,) between the 1st and the 99th percentile of what was observed, as logarithms where it is above 0."""
    low, high = np.quantile(values, (0.01, 0.99))
    high = high if high > low else low + max(abs(low), 1.0) * 1e-3
    return np.geomspace(low, high, GRID) if low > 0 else np.linspace(low, high, GRID)


def _short(values: Any) -> list[float]:
    return [float(f"{float(value):.5g}") for value in values]
