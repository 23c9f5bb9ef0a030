"""Fine-tuning to N applications at once: each has policy, episodes, gradient and moments of its own, in one stack.

An iteration is `episodes` new episodes of every application, and one step of Adam a window for every policy. Nothing
couples the policies: what becomes of one does not depend on which others are in the stack.

The gradients come through the environment, so they stand for a learner that knows the application's law and has only to
see its loads; a model-free learner needs more episodes for the same.

Symbols: N applications, P policies to start from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from models.control.adaptation.inputs import Inputs
from models.control.adaptation.through_stacks import Batch, Stack, TrainingSettings, train
from models.control.contract.environment import Environment
from models.control.policy.policy import Policy
from models.control.training.smooth_objectives import SmoothObjective

InputsOf = Callable[[int, int], Inputs]  # iteration, episodes of each application -> what N policies are told


@dataclass(frozen=True)
class FineTuning:
    """How.

    Attributes:
        training: its iterations are steps of Adam, its rate falls only where `decay` is set.
        episodes: of each application, an iteration.
        seed: of the episodes.
    """

    training: TrainingSettings = field(default_factory=lambda: TrainingSettings(50, rate=1e-3, decay=False))
    episodes: int = 1
    seed: int = 0


def one_each(policy: Policy, start: Sequence[int], rates: Tensor | None = None) -> Stack:
    """A stack of N policies; start: (N,) which member of `policy` each begins as; rates: see Stack."""
    return Stack(policy.taken(start), rates=rates)


def fine_tune(differentiable: Environment, stack: Stack, split: str, applications: Sequence[int], inputs: InputsOf,
              objective: SmoothObjective, settings: FineTuning, after: Callable[[int], None] = lambda iteration: None,
              draw: Callable[[int, list[int]], object] | None = None) -> list[list[float]]:
    """Fine-tunes in place.

    Args:
        differentiable: the environment.
        stack: of `one_each`.
        split: that the applications are of.
        applications: (N,) numbers.
        inputs: what the policies are told beside.
        objective: what is minimised.
        settings: how.
        after: called with the number of iterations that are done.
        draw: seed, applications of every episode -> episodes; None: ordinary ones.

    Returns:
        (iterations, N) losses.
    """
    every = [number for number in applications for _ in range(settings.episodes)]

    def drawn(seed: int) -> object:
        if draw is not None:
            return draw(seed, every)
        return differentiable.draw(split, len(every), settings.training.steps + 1, seed, applications=every)

    def batch(iteration: int) -> Batch:
        return Batch(drawn(settings.seed + iteration), lambda: inputs(iteration, settings.episodes))

    return train(differentiable, stack, batch, objective, settings.training, after)


def repeated(values: Tensor, episodes: int) -> Tensor:
    """(N, e) -> (N episodes, e): of each application for all of its episodes."""
    return values.repeat_interleave(episodes, dim=0)
