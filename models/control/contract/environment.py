"""The contract of an environment: everything that a control task differs in from another.

One environment is a folder beside this file, or stands at an import path. It runs N applications at once as
one tensor operation and holds no state of its own: all that is random is drawn by `draw`, so that a step is a pure,
differentiable function, equal draws are paired experiments, and runs are the same to the bit.

Symbols: N applications, n signals, m controls, h hidden parameters, T steps of an episode. Tensors are float32.

Of a `Grouped` environment an application is a group of A agents, which share one policy and one outcome: the rows of
observations and targets are agents, (N A, n) and (N A, m), those of a group next to each other; the rest is of groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from feature_store.schema import Column
from models.control.contract.controller import RuleFamily
from models.control.contract.setting import Setting
from models.control.contract.signals import Anchor, Control, Feature, Signal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Outcome:
    """What a step came to, for each application.

    Attributes:
        reward: (N,) the paper's reward of the task; larger is better.
        cost: (N,) resources used up, in the environment's `cost_unit`; smaller is better. Differentiable.
        violation: (N,) how badly the objective was missed, >= 0, 0 where it was met; differentiable, for training.
        violated: (N,) 1.0 where the objective was missed, else 0.0, of a group the share of its agents; what is
            reported.
        measures: name -> (N,), further figures for tables and plots (`Environment.measures` gives their units).
        each_violation: (N, A) of each agent of a group, whose mean `violation` is, for training counts whom it misses;
            None: there are no groups.
    """

    reward: Tensor
    cost: Tensor
    violation: Tensor
    violated: Tensor
    measures: Mapping[str, Tensor]
    each_violation: Tensor | None = None


class Environment(Protocol):
    """N applications that are drawn, observed and stepped as one tensor operation."""

    @property
    def signals(self) -> tuple[Signal, ...]:
        """(n) what is observed, in raw units: the inputs of every controller and of the exported file."""

    @property
    def controls(self) -> tuple[Control, ...]:
        """(m) the targets that are set, in raw units: the outputs of the exported file."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """(f) what networks take: sums of scaled signals."""

    @property
    def anchors(self) -> Mapping[str, Anchor]:
        """By control, where a policy's targets stand before its network changes them; without one at what is set."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """(h) names of the parameters that no observation shows, as an oracle is told them."""

    @property
    def measures(self) -> Mapping[str, str]:
        """Name -> unit of `Outcome.measures`."""

    @property
    def cost_unit(self) -> str:
        """Unit of `Outcome.cost` of one step."""

    @property
    def step_seconds(self) -> float:
        """Seconds between two decisions."""

    @property
    def steps(self) -> int:
        """T, steps of an episode in training."""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Names of special episodes that `draw` takes; "" is the ordinary one."""

    @property
    def differentiable(self) -> Environment:
        """The same without rounding: what is trained through."""

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Any:
        """Draws episodes: which applications, their load and everything else that is random.

        Args:
            split: train or held_out; no application and no trace is in both.
            count: N.
            steps: length of the episodes, the warm-up included that the environment itself takes.
            seed: >= 0; equal arguments give equal episodes.
            scenario: one of `scenarios`.
            applications: (N,) numbers of applications of the split; None: drawn, each about as often.

        Returns:
            Episodes; their `take(index)` gives those at (K,) positions, repeated as they are.

        Raises:
            InputError: an unknown split or scenario.
        """

    def reset(self, episodes: Any) -> Any:
        """The state at the first step."""

    def observe(self, state: Any) -> Tensor:
        """(N, n) in raw units, inside of the signals' ranges."""

    def step(self, state: Any, targets: Tensor) -> tuple[Any, Outcome]:
        """Sets targets and lets `step_seconds` pass.

        Args:
            targets: (N, m) raw; clipped to the controls' bounds and rates of change; rounded up where `whole`, but for
                gradients, which pass through unrounded (see the environment's switch).

        Returns:
            The next state (the old one is untouched), what came of it.
        """

    def hidden_parameters(self, state: Any) -> Tensor:
        """(N, h) in numbers of about unit spread, for oracles and system identification."""

    def coming_load(self, state: Any) -> Tensor:
        """(N, n_future) the true load of the next steps over the present one, as logarithms, for the clairvoyant."""


@runtime_checkable
class Grouped(Protocol):
    """An `Environment` of groups of agents; may be left out."""

    @property
    def agents(self) -> int:
        """A, of each group."""


def agents_of(environment: Environment) -> int:
    """A; 1 where an application acts alone."""
    return environment.agents if isinstance(environment, Grouped) else 1


class ControlledSystem(Environment, Protocol):
    """What a task file names: the environment of randomised applications, and how a workload's own is made.

    A task of the kind `control` needs nothing else of it: models/tasks/control/ does the rest.
    """

    @property
    def columns(self) -> Mapping[str, Column]:
        """Telemetry of a workload, a row a window: the load that came, with its unit and physical bounds."""

    @property
    def settings(self) -> Sequence[Setting]:
        """What a task file may say of a workload, such as its objective; each may be left out."""

    @property
    def telemetry(self) -> Path | None:
        """The file that comes with it; None: a user has to bring one."""

    @property
    def largest_reward(self) -> float:
        """Of a step: what no reward exceeds."""

    @property
    def acting(self) -> str:
        """Module of what acts beside a live system (acting.py)."""

    @property
    def rules(self) -> Mapping[str, RuleFamily]:
        """By name, the rules that are run beside a policy and may be its fallback."""

    def twin(self, telemetry: pd.DataFrame, settings: Mapping[str, float | str],
             limits: Mapping[str, tuple[float, float]]) -> Environment:
        """The environment of one workload: same signals, features and measures.

        `draw("train", ...)` replays the earlier part of its load, "held_out" the later one; no window is in both.

        Args:
            telemetry: its rows in order of time, without a gap: `window_start`, `window_s` and `columns`.
            settings: of `settings`, those that were given.
            limits: control -> (low, high) inside of the control's own bounds.

        Raises:
            InputError: the load or a setting is unusable.
        """


@runtime_checkable
class GuaranteedSystem(Protocol):
    """A `ControlledSystem` of whose policies something is proved in a loop with a law; may be left out."""

    def guarantees(self, model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
                   limits: Mapping[str, tuple[float, float]]) -> Mapping[str, Any]:
        """What holds of the closed loop, about a minute at most.

        Args:
            model: the exported file, which is PROVED to have these properties (specification.yaml) over all that it
                may be shown: where its box is narrower (`narrower` in guarantee.py), nobody asks.
            settings, limits: as of `ControlledSystem.twin`.

        Returns:
            `assumed`: in words; `words`: what `change` and `bound` are, and a `caption`, for a table; `found`: a list
            with `change` (how much of the disturbance), `change_unit`, `status`, `statement` and `reason` in words,
            `bound` and `bound_unit`, `steps` (both None where nothing is proved), `leaves` of the certificates,
            `seconds`; `shipped`: what goes with the bundle (guarantee.py), or None.
        """
