"""Settings of a rule for each application: searched on its own episodes, from settings that are good for all.

Each application has its own search (dynamically dimensioned, as `Tuner.refine`): what is moved next is what was best
there so far. They run side by side, and have one thing in common, the price of a violating step, so that the mean share
of violating steps over the applications keeps the target at the least cost.

Symbols: K choices, N applications, R episodes of each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from models.control.contract.controller import RuleFamily
from models.control.contract.environment import Environment
from models.control.simulation.rollout import WARM_UP_STEPS, roll_out
from models.control.training.rule_tuning import BATCH, Settings, Tuner, side_by_side

Numbers = NDArray[np.float64]


def for_each_application(environment: Environment, family: RuleFamily, choices: Sequence[Settings], episodes: Any,
                         steps: int, target: float, repeats: int = 1, trials: int = 64, seed: int = 0,
                         warm_up: int = WARM_UP_STEPS) -> list[Settings]:
    """Settings tuned for each application.

    Args:
        choices: settings to begin with, such as the trials of a front; each names all that is searched.
        episodes: one of each application, or several: N episodes of the applications, then N further ones, ...
        target: largest mean share of violating steps over the applications.
        repeats: R.
        trials: how many further settings each application tries; 0: the best of the choices.
        seed: of the search.

    Returns:
        (N,) settings; `side_by_side(found, 1)` is one batch of them.
    """
    tuner = Tuner(environment, family, episodes, steps, warm_up=warm_up)
    count = len(environment.observe(environment.reset(episodes))) // repeats
    random = np.random.default_rng([seed, 0xEAC4])
    tried: list[list[Settings]] = [[choice] * count for choice in choices]
    cost, violated = _tried(tuner, environment, tried, episodes, steps, warm_up)
    batch = max(1, BATCH // (count * repeats))
    for first in range(0, trials, batch):
        share = 1.0 - np.log1p(first) / np.log1p(trials)
        best = [tried[row][number] for number, row in enumerate(choose_each(cost, violated, target))]
        new: list[list[Settings]] = [[tuner.neighbour(own, share, random) for own in best]
                                     for _ in range(min(batch, trials - first))]
        found = _tried(tuner, environment, new, episodes, steps, warm_up)
        tried, cost, violated = tried + new, np.concatenate([cost, found[0]]), np.concatenate([violated, found[1]])
    return [tried[row][number] for number, row in enumerate(choose_each(cost, violated, target))]


def _tried(tuner: Tuner, environment: Environment, rows: Sequence[Sequence[Settings]], episodes: Any, steps: int,
           warm_up: int) -> tuple[Numbers, Numbers]:
    """(K, N) cost and share of violating steps of K settings of each application, means over its episodes."""
    total = len(environment.observe(environment.reset(episodes)))
    count, size = len(rows[0]), max(1, BATCH // total)
    found: Mapping[str, list[Numbers]] = {"cost": [], "violated": []}
    for first in range(0, len(rows), size):
        part = rows[first:first + size]
        settings = side_by_side([own for row in part for _ in range(total // count) for own in row], 1)
        rollout = roll_out(environment, tuner.family.make(settings),
                           episodes.take(torch.arange(total).repeat(len(part))), steps, warm_up)
        for name, values in found.items():
            values.append(getattr(rollout, name).reshape(len(part), -1, count).mean(axis=1))
    return np.concatenate(found["cost"]), np.concatenate(found["violated"])


def choose_each(cost: Numbers, violated: Numbers, target: float) -> NDArray[np.intp]:
    """(N,) the row of least cost + price * violated for each application, at the least price that keeps the target.

    Args:
        cost: (K, N).
        violated: (K, N) shares.
        target: largest mean of `violated` over the applications.
    """
    columns = np.arange(cost.shape[1])

    def at(price: float) -> NDArray[np.intp]:
        return np.asarray((cost + price * violated).argmin(axis=0))

    low, high = 0.0, 1e6
    if violated[at(low), columns].mean() <= target:
        return at(low)
    for _ in range(60):
        middle = (low * high) ** 0.5 if low > 0 else high * 1e-3
        if violated[at(middle), columns].mean() <= target:
            high = middle
        else:
            low = middle
        if high <= low * (1.0 + 1e-6):
            break
    return at(high)
