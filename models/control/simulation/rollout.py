"""Runs a controller in an environment and tells what came of it for each application.

Symbols: N episodes side by side, T steps, n signals, m controls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.controller import Controller
from models.control.contract.environment import Environment, Outcome

Decide = Callable[[Tensor], Tensor]  # (N, n) raw observation -> (N, m) raw targets
# (N, n) raw observations and seconds since the start -> (N, m) raw targets
Acting = Callable[[Tensor, float], Tensor]
Numbers = NDArray[np.float64]
WARM_UP_STEPS = 20  # 5 minutes of an autoscaler: what it started with is gone by then


class Taken(NamedTuple):
    """A step: (N, n) what was observed, (N, m) what was asked for, what it came to."""

    observation: Tensor
    targets: Tensor
    outcome: Outcome


@dataclass(frozen=True)
class Rollout:
    """Means over the steps that count, (N,) each.

    Attributes:
        reward: the paper's.
        cost: in the environment's `cost_unit`.
        violated: share of the steps in which the objective was missed, 0 to 1.
        violation: how badly.
        measures: name -> the environment's further figures.
        steps: how many steps count.
    """

    reward: Numbers
    cost: Numbers
    violated: Numbers
    violation: Numbers
    measures: Mapping[str, Numbers]
    steps: int

    def summary(self) -> dict[str, float]:
        """Means over the episodes: every figure by its name."""
        figures = {"reward": self.reward, "cost": self.cost, "violated": self.violated, "violation": self.violation}
        return {name: float(values.mean()) for name, values in {**figures, **self.measures}.items()}

    def split(self, parts: int) -> list["Rollout"]:
        """Equal parts, one after the other: the settings of a batch that holds the same episodes for each."""
        size = len(self.reward) // parts

        def part(values: Numbers, number: int) -> Numbers:
            return values[number * size:(number + 1) * size]

        return [Rollout(part(self.reward, number), part(self.cost, number), part(self.violated, number),
                        part(self.violation, number),
                        {name: part(values, number) for name, values in self.measures.items()}, self.steps)
                for number in range(parts)]


@torch.inference_mode()
def roll_out(environment: Environment, controller: Controller | Decide, episodes: Any, steps: int,
             warm_up: int = WARM_UP_STEPS) -> Rollout:
    """Runs N episodes.

    Args:
        environment: see environment.py.
        controller: raw observations in, raw targets out; a function is called with tensors.
        episodes: N of them, of `draw`.
        steps: T, decisions.
        warm_up: the first decisions, which do not count; < T.

    Raises:
        InputError: no step is left to count.
        ValueError: a target that is not finite.
    """
    if not 0 <= warm_up < steps:
        raise InputError(f"warm-up must be from 0 to {steps - 1} of {steps} steps, got {warm_up}")
    sums: dict[str, Tensor] = {}
    for step, (_, targets, outcome) in enumerate(taken_steps(environment, episodes, steps,
                                                             acting_of(environment, controller))):
        if not bool(torch.isfinite(targets).all()):
            raise ValueError(f"expected finite targets, got NaN or infinity (step {step} of a rollout)")
        if step < warm_up:
            continue
        figures = {"reward": outcome.reward, "cost": outcome.cost, "violated": outcome.violated,
                   "violation": outcome.violation, **outcome.measures}
        for name, values in figures.items():
            sums[name] = sums[name].add_(values) if name in sums else values.to(torch.float64)
    counted = steps - warm_up
    means = {name: (values / counted).cpu().numpy() for name, values in sums.items()}
    own = {name: means.pop(name) for name in ("reward", "cost", "violated", "violation")}
    return Rollout(**own, measures=means, steps=counted)


def taken_steps(environment: Environment, episodes: Any, steps: int, act: Acting) -> Iterator[Taken]:
    """Lets someone act, step by step; whoever takes the steps says what of them is kept, and whether with gradients.

    Args:
        steps: T.
    """
    state = environment.reset(episodes)
    for step in range(steps):
        seen = environment.observe(state)
        targets = act(seen, step * environment.step_seconds)
        state, outcome = environment.step(state, targets)
        yield Taken(seen, targets, outcome)


def in_one_batch(acting: Sequence[Acting]) -> Acting:
    """Several in one batch, which holds the episodes of the first before those of the second."""
    return lambda observation, seconds: torch.cat([
        act(rows, seconds) for act, rows in zip(acting, observation.chunk(len(acting)), strict=True)])


def acting_of(environment: Environment, controller: Controller | Decide) -> Acting:
    """The controller as a function of tensors, started anew for as many as its first observation has rows."""
    if not hasattr(controller, "act"):
        policy = controller
        return lambda observation, seconds: policy(observation)
    controller = cast(Controller, controller)
    names = [signal.name for signal in environment.signals]
    controls = [control.name for control in environment.controls]

    started = False

    def act(observation: Tensor, seconds: float) -> Tensor:
        nonlocal started
        if not started:
            controller.start(len(observation))
            started = True
        columns = observation.T.contiguous().cpu().numpy()
        targets = controller.act(dict(zip(names, columns, strict=True)), seconds)
        return torch.from_numpy(np.stack([targets[name] for name in controls], axis=1)).to(observation)

    return act
