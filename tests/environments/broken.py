"""Backlogs with one mistake each, and the same with a state that is a dataclass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.control.contract.environment import Outcome
from models.control.contract.setting import Setting
from tests.environments.backlog import Backlog, Episodes, State
from tests.environments.backlog_acting import Headroom


class SettingOfASignal(Backlog):
    """`wait_s`, which is measured, may be set."""

    settings = (*Backlog.settings, Setting("wait_s", 1.0, "s", 0.0625, 64.0))


class SettingOfWhatIsSet(Backlog):
    """`capacity_rps` says what is set at present."""

    settings = (*Backlog.settings, Setting("capacity_rps", 1.0, "1/s", 1.0, 256.0))


class Fails(Backlog):
    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        return super().step(state, targets @ torch.ones(2, 2))


class TooFew(Backlog):
    def observe(self, state: State) -> Tensor:
        return super().observe(state)[:, 1:]


class Beyond(Backlog):
    def observe(self, state: State) -> Tensor:
        return super().observe(state) * 300.0


class Undefined(Backlog):
    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        state, outcome = super().step(state, targets)
        return state, Outcome(outcome.reward / 0.0 * 0.0, outcome.cost, outcome.violation, outcome.violated,
                              outcome.measures)


class MeasuresOthers(Backlog):
    measures: Mapping[str, str] = {"capacity_rps": "1/s"}


class Mean(Backlog):
    """A figure for all applications together."""

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        state, outcome = super().step(state, targets)
        return state, Outcome(outcome.reward, outcome.cost.mean(), outcome.violation, outcome.violated,
                              outcome.measures)


class Detached(Backlog):
    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        return super().step(state, targets.detach())


class NoTake(Backlog):
    def draw(self, *arguments: Any, **named: Any) -> Any:
        return vars(super().draw(*arguments, **named))


class Silent(Headroom):
    def make(self, settings: Mapping[str, Any]) -> Any:
        return None


class BrokenRule(Backlog):
    @property
    def rules(self) -> Mapping[str, Any]:
        return {"headroom": Headroom(), "silent": Silent()}


class NoObserver(Backlog):
    acting = "tests.environments.nowhere"


@dataclass(frozen=True)
class KeptState:
    """Of a DataclassBacklog."""

    inner: State
    note: str = "kept"


class DataclassBacklog(Backlog):
    """The same physics."""

    def reset(self, episodes: Episodes) -> Any:
        return KeptState(super().reset(episodes))

    def observe(self, state: Any) -> Tensor:
        return super().observe(state.inner)

    def step(self, state: Any, targets: Tensor) -> Any:
        inner, outcome = super().step(state.inner, targets)
        return KeptState(inner), outcome

    def hidden_parameters(self, state: Any) -> Tensor:
        return super().hidden_parameters(state.inner)

    def coming_load(self, state: Any) -> Tensor:
        return super().coming_load(state.inner)


ENVIRONMENT = SettingOfASignal()
