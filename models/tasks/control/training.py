"""Trains policies of a control task by gradients through its environment, several seeds side by side.

    loss = cost / cost of the fallback + price * mean violation
    log price += rate * (violating share - allowed share)      the price of a violation is a Lagrange multiplier

The price is each seed's own. Where the objective is the reward, the loss is its negative.

Symbols: S seeds, B episodes each, n signals, m controls.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.environments.environment import Environment
from models.learners.policy import Policy
from models.tasks.control.task import ControlTask

OnUpdate = Callable[[dict[str, Any]], None]
PRICE_RATE, FIRST_PRICE = 0.5, 2.0
LARGEST_NORM = 1.0  # of a gradient
REPORTED = 40  # entries of the history, about


@dataclass(frozen=True)
class Trained:
    """What training came to.

    Attributes:
        policies: (S,) side by side.
        history: an entry every few updates: epoch, reward, cost, violating_share, price; means over the seeds.
        diverged: in which update the loss or a gradient was no finite number; None: never. The policies are then those
            of the last finite update.
    """

    policies: Policy
    history: tuple[dict[str, float], ...]
    diverged: int | None


def train(task: ControlTask, environment: Environment, policies: Policy, updates: int, seed: int,
          progress: OnUpdate) -> Trained:
    """Trains copies of policies; what is given stays as it is.

    Args:
        policies: (S,) side by side.
        updates: of the optimiser, from 1.
        seed: of the episodes.
        progress: called with each entry of the history.
    """
    settings, soft = task.training, environment.differentiable
    steps = settings.steps or environment.steps
    (members,) = policies.members
    learner = Policy(policies.shape, members=policies.members)
    learner.load_state_dict(policies.state_dict())
    last = {name: value.clone() for name, value in learner.state_dict().items()}
    optimiser = torch.optim.Adam(learner.parameters(), settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates, 0.05 * settings.learning_rate)
    log_price = torch.full((members,), FIRST_PRICE).log()
    history: list[dict[str, float]] = []
    for update in range(updates):
        drawn = soft.draw("train", settings.episodes, steps, seed + update)
        episodes = drawn.take(torch.arange(settings.episodes).repeat(members))
        reward, cost, violation, share = _rolled(soft, episodes, steps, learner)
        objective = -reward if task.objective.maximise == "reward" else cost + log_price.exp() * violation
        loss = objective.sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(learner.parameters(), LARGEST_NORM * members)
        if not bool(torch.isfinite(loss)) or not bool(torch.isfinite(norm)):
            learner.load_state_dict(last)
            return Trained(learner, tuple(history), update)
        last = {name: value.clone() for name, value in learner.state_dict().items()}
        optimiser.step()
        schedule.step()
        log_price = log_price + PRICE_RATE * (share - task.objective.violating_share).clamp(-0.05, 0.2)
        if update % max(1, updates // REPORTED) == 0 or update == updates - 1:
            history.append({"epoch": float(update), "reward": float(reward.detach().mean()),
                            "cost": float(cost.detach().mean()), "violating_share": float(share.mean()),
                            "price": float(log_price.exp().mean())})
            now = history[-1]
            progress({"done": (update + 1) / updates, "said": f"update {update + 1} of {updates}, cost {now['cost']:.4g}, "
                                                               f"violating {now['violating_share']:.1%}"})
    return Trained(learner, tuple(history), None)


def _rolled(environment: Environment, episodes: Any, steps: int, policies: Policy) -> tuple[Tensor, ...]:
    """(S,) each: mean reward, cost, violation, violating share (without a gradient)."""
    (members,) = policies.members
    state = environment.reset(episodes)
    sums: list[Tensor] = []
    for _ in range(steps):
        observation = environment.observe(state)
        targets = policies(observation.reshape(members, -1, observation.shape[-1]))
        state, outcome = environment.step(state, targets.reshape(len(observation), -1))
        found = [outcome.reward, outcome.cost, outcome.violation, outcome.violated.detach()]
        sums = [total + value for total, value in zip(sums, found, strict=True)] if sums else found
    return tuple(total.reshape(members, -1).mean(dim=1) / steps for total in sums)
