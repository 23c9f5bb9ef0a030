"""Training of K policies side by side by gradients through the environment, with the encoders of their inputs.

Each policy has its own weights, episodes, gradient norm and moments; nothing couples them but an encoder that several
of them read. The rest of a stack does not change what one of them learns: so one is fine-tuned to each of many
applications at once, in episodes of its own. All that is random is drawn from the seed and the number of the iteration,
so that a run that goes on from a checkpoint ends with the same numbers.

The gradients come through the environment, so they stand for a learner that knows an application's law and has only to
see its loads; a model-free learner needs more episodes for the same.

Gradients through many steps of a queue explode: an episode is cut into windows, each with a step of Adam, through whose
ends no gradient flows; within one, what passes through the state from one step to the one before is multiplied by
`discount`, and each policy's gradient is cut to the norm `clip`. As in training/through_environment.py,
whose policies have no further inputs, no single application's slope exceeds `slope`, and whole controls are rounded
with gradients that pass straight through.

Symbols: K policies, B episodes of each, T steps.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.control.adaptation.inputs import Inputs
from models.control.adaptation.side_by_side import act
from models.control.contract.environment import Environment
from models.control.policy.policy import Policy
from models.control.simulation.settable import settable
from models.control.training.smooth_objectives import SmoothObjective
from models.control.training.windows import cut_to_norm, discounted, falling_rate, limit_slopes, member_means
from models.training.adam import adam_step

_LEAST_RATE = 0.02  # share of the learning rate that is left at the end


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how.

    Attributes:
        iterations: episodes, one of each application, one after the other.
        steps: T of an episode.
        window: steps through which gradients flow; divides T.
        warm_up: first steps, which do not count.
        rate: Adam's, falling by a cosine; that of encoders is the same.
        clip: largest norm of a policy's gradient.
        discount: of the gradient through the state, a step.
        slope: largest slope of the objective by the logarithm of one episode's targets in one step.
        decay: whether the rate falls.
    """

    iterations: int = 120
    steps: int = 60
    window: int = 20
    warm_up: int = 10
    rate: float = 5e-3
    clip: float = 1.0
    discount: float = 0.95
    slope: float = 10.0
    decay: bool = True

    def rate_at(self, iteration: int) -> float:
        """Learning rate of an iteration."""
        if not self.decay:
            return self.rate
        return falling_rate(self.rate, _LEAST_RATE, iteration / self.iterations)


class Batch(NamedTuple):
    """episodes: K B of them, a policy's next to each other; inputs: makes what the policies are told beside, for each
    window anew, since encoders have learned meanwhile."""

    episodes: Any
    inputs: Callable[[], Inputs]


class Stack:
    """K policies and their encoders with Adam's moments, and the iteration that comes next.

    Args:
        policy: what is trained, in place.
        encoders: which are trained too.
        rates: (K,) share of the learning rate that each policy takes, to try rates side by side; None: all of it.
    """

    def __init__(self, policy: Policy, encoders: Sequence[nn.Module] = (), rates: Tensor | None = None) -> None:
        self.policy, self.encoders, self.rates = policy, tuple(encoders), rates
        self.iteration = 0
        self._own = [*policy.parameters()]
        self._shared = [[*encoder.parameters()] for encoder in encoders]
        every = self._own + [part for encoder in self._shared for part in encoder]
        self._means, self._squares = ([torch.zeros_like(part).detach() for part in every] for _ in range(2))
        self._steps = [torch.zeros(()) for _ in every]
        self._every = every

    def descend(self, loss: Tensor, rate: float, clip: float) -> Tensor:
        """One step of Adam. Returns the (K,) norms of the policies' gradients before they are cut."""
        gradients = [*torch.autograd.grad(loss, self._every, allow_unused=True)]
        gradients = [torch.zeros_like(part) if gradient is None else gradient.nan_to_num(0.0, 0.0, 0.0)
                     for part, gradient in zip(self._every, gradients, strict=True)]
        gradients[:len(self._own)], norms = cut_to_norm(gradients[:len(self._own)], clip)
        at = len(self._own)
        for parameters in self._shared:
            mine = gradients[at:at + len(parameters)]
            norm = torch.stack([part.square().sum() for part in mine]).sum().sqrt()
            torch._foreach_mul_(mine, float((clip / norm.clamp(min=1e-12)).clamp(max=1.0)))
            at += len(parameters)
        before = [] if self.rates is None else [part.detach().clone() for part in self._own]
        adam_step(self._every, gradients, self._means, self._squares, self._steps, rate)
        if self.rates is not None:  # Adam's step is proportional to its rate
            with torch.no_grad():
                for part, old in zip(self._own, before, strict=True):
                    part.copy_(torch.lerp(old, part, self.rates.view(-1, *[1] * (part.dim() - 1))))
        return norms

    def state(self) -> dict[str, Any]:
        """Tensors and numbers that `restore` takes."""
        return {"policy": self.policy.state_dict(), "encoders": [one.state_dict() for one in self.encoders],
                "means": self._means, "squares": self._squares, "steps": self._steps, "iteration": self.iteration}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from `state`."""
        self.policy.load_state_dict(state["policy"])
        for encoder, own in zip(self.encoders, state["encoders"], strict=True):
            encoder.load_state_dict(own)
        own = (self._means, self._squares, self._steps)
        for mine, kept in zip(own, (state["means"], state["squares"], state["steps"]), strict=True):
            for part, value in zip(mine, kept, strict=True):
                part.copy_(value)
        self.iteration = int(state["iteration"])


def save_state(state: dict[str, Any], path: Path) -> None:
    """Writes tensors and numbers as one file, which appears whole."""
    content = io.BytesIO()
    torch.save(state, content)
    write_file(path, content.getvalue())


def load_state(path: Path) -> dict[str, Any]:
    """Reads what `save_state` wrote; classes are refused. Raises InputError."""
    try:
        return dict(torch.load(path, weights_only=True))
    except Exception as error:
        raise InputError(f"checkpoint: expected a file that training wrote, got {error} ({path})") from error


def train(environment: Environment, stack: Stack, batches: Callable[[int], Batch], objective: SmoothObjective,
          settings: TrainingSettings, after: Callable[[int], None] = lambda iteration: None) -> list[list[float]]:
    """Trains from `stack.iteration` on.

    Args:
        environment: a differentiable one.
        stack: what is trained, in place.
        batches: iteration -> what it is done on.
        objective: what is minimised.
        settings: how.
        after: called after each iteration with the number of those done; saves, refreshes trajectories.

    Returns:
        (iterations, K) mean losses of the windows.

    Raises:
        InputError: a loss is no finite number; the weights are those before it.
    """
    losses = []
    for iteration in range(stack.iteration, settings.iterations):
        losses.append(_episode(environment, stack, batches(iteration), objective, settings, iteration))
        stack.iteration = iteration + 1
        after(stack.iteration)
    return losses


def _episode(environment: Environment, stack: Stack, batch: Batch, objective: SmoothObjective,
             settings: TrainingSettings, iteration: int) -> list[float]:
    """(K,) one episode of each application, a step of Adam a window."""
    state = environment.reset(batch.episodes)
    observation = environment.observe(state)
    memory = batch.inputs().start(observation)
    losses = []
    for begin in range(0, settings.steps, settings.window):
        inputs, counted, violated = batch.inputs(), [], []
        state, memory = discounted(state, 0.0), discounted(memory, 0.0)
        observation = environment.observe(state)
        for step in range(begin, min(begin + settings.window, settings.steps)):
            targets, memory = act(stack.policy, environment, inputs, state, observation, memory)
            limit_slopes(targets, settings.slope * stack.policy.members[0] / (len(targets) * settings.window))
            state, outcome = environment.step(state, settable(targets, environment.controls))
            state = discounted(state, settings.discount)
            observation = environment.observe(state)
            if step >= settings.warm_up:
                counted.append(objective(outcome))
                violated.append(outcome.violated)
        if not counted:
            continue
        loss = member_means(counted, stack.policy.members[0])
        if not bool(loss.isfinite().all()):
            raise InputError(f"training: expected finite losses, got NaN or infinity (iteration {iteration + 1}, step "
                             f"{begin}); lower the rate")
        stack.descend(loss.sum(), settings.rate_at(iteration), settings.clip)
        objective.observe(member_means(violated, stack.policy.members[0]))
        losses.append(loss.detach())
    return torch.stack(losses).mean(dim=0).tolist()
