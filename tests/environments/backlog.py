"""A server with a queue: one control, its capacity. The example of docs/recipes/add-a-control-task.md.

    backlog' = max(0, backlog + (rate - e capacity) dt)        wait = backlog' / (e capacity) + TICK

The efficiency e is hidden. A second is left after the last request: `wait` is never 0.

Symbols: N applications, T steps; tensors (N,) float32 unless stated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from feature_store.errors import InputError
from feature_store.schema import Column
from models.control.contract.controller import RuleFamily
from models.control.contract.environment import Outcome
from models.control.contract.setting import Setting
from models.control.contract.signals import Anchor, Control, Feature
from tests.environments.backlog_acting import CONTROLS, RULES, SIGNALS, STEP_S, TICK, WEIGHT

if TYPE_CHECKING:
    import pandas as pd

FEATURES = (
    Feature("wait over objective", {"wait_s": 1.0, "slo_s": -1.0}),
    Feature("load over capacity", {"rate_rps": 1.0, "capacity_rps": -1.0}),
    Feature("load over its mean", {"rate_rps": 1.0, "mean_rate_rps": -1.0}),
)
TRAIN, HELD_OUT = 64, 16


@dataclass(frozen=True)
class Episodes:
    """rate (T, N); efficiency, slo_s, mean_rate, numbers of the applications (N,)."""

    rate: Tensor
    efficiency: Tensor
    slo_s: Tensor
    mean_rate: Tensor
    numbers: Tensor

    def take(self, index: Tensor) -> "Episodes":
        return Episodes(self.rate[:, index], self.efficiency[index], self.slo_s[index], self.mean_rate[index],
                        self.numbers[index])


class State(NamedTuple):
    """step: of the next load."""

    episodes: Episodes
    step: int
    capacity: Tensor
    backlog: Tensor
    wait_s: Tensor
    mean: Tensor


class Backlog:
    """Implements `ControlledSystem`; the twin of a workload replays `load` and has its objective and limits."""

    signals, features, hidden = SIGNALS, FEATURES, ("efficiency",)
    anchors: Mapping[str, Anchor] = {}
    measures: Mapping[str, str] = {"capacity_rps": "1/s", "wait_over_slo": "1"}
    cost_unit, step_seconds, steps = "capacity over mean load", STEP_S, 60
    scenarios: tuple[str, ...] = ("", "doubling")
    columns: Mapping[str, Column] = {"rate_rps": Column("1/s", 0.0, None, "requests that came")}
    settings = (Setting("slo_s", 2.0, "s", 0.25, 16.0, meaning="objective of the wait"),)
    largest_reward = 1.0
    acting = "tests.environments.backlog_acting"
    telemetry: Path | None = None

    def __init__(self, load: Mapping[str, Tensor] | None = None, slo_s: float = 2.0,
                 controls: tuple[Control, ...] = CONTROLS) -> None:
        self.controls, self._load, self._slo_s = controls, load, slo_s

    @property
    def rules(self) -> Mapping[str, RuleFamily]:
        return RULES

    @property
    def differentiable(self) -> "Backlog":
        return self

    def twin(self, telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
             limits: Mapping[str, tuple[float, float]]) -> "Backlog":
        rate = torch.tensor(telemetry["rate_rps"].to_numpy(), dtype=torch.float32).clamp(min=0.25)
        cut = int(0.7 * len(rate))
        if cut < 2:
            raise InputError(f"load: expected at least 3 windows, got {len(rate)}")
        controls = tuple(replace(control, low=low, high=high) for control in CONTROLS
                         for low, high in [limits.get(control.name, (control.low, control.high))])
        return Backlog({"train": rate[:cut], "held_out": rate[cut:]}, float(settings.get("slo_s", 2.0)), controls)

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Episodes:
        if split not in ("train", "held_out") or scenario not in self.scenarios:
            raise InputError(f"split and scenario: expected train or held_out and one of {self.scenarios}, got "
                             f"{split!r} and {scenario!r}")
        random = np.random.default_rng([seed, split == "train"])
        first, number = (0, TRAIN) if split == "train" else (TRAIN, HELD_OUT)
        chosen = first + random.permutation(count) % number if applications is None else np.asarray(applications)
        own = np.stack([np.random.default_rng([7, one]).uniform(size=4) for one in chosen])
        if self._load is None:
            time, phase = np.arange(steps)[:, None], random.uniform(0, 2 * np.pi, count)
            shape = 1 + 0.6 * own[:, 2] * np.sin(2 * np.pi * time / (20 + 40 * own[:, 3]) + phase)
            rate = torch.tensor(8 * 4 ** own[:, 1] * shape * random.lognormal(0, 0.05, (steps, count)))
        else:
            load = self._load[split]
            rate = load[(torch.tensor(random.integers(0, len(load), count)) + torch.arange(steps)[:, None]) % len(load)]
        change = torch.where(torch.arange(steps) >= steps // 2, 2.0, 1.0)[:, None] if scenario else torch.ones(1)
        rate = (rate * change).float()
        efficiency = torch.tensor(0.7 + 0.6 * own[:, 0], dtype=torch.float32)
        return Episodes(rate, efficiency, torch.full((count,), self._slo_s), rate.mean(dim=0),
                        torch.as_tensor(chosen))

    def reset(self, episodes: Episodes) -> State:
        rate = episodes.rate[0]
        return State(episodes, 0, (1.5 * rate).clamp(1.0, 256.0), torch.zeros_like(rate),
                     torch.full_like(rate, TICK), rate)

    def observe(self, state: State) -> Tensor:
        rate = state.episodes.rate[max(state.step - 1, 0)]
        columns = torch.stack([state.capacity, rate, state.mean, state.wait_s, state.episodes.slo_s], dim=1)
        low, high = (torch.tensor([getattr(signal, side) for signal in SIGNALS]) for side in ("low", "high"))
        return columns.maximum(low).minimum(high)

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        (control,), e = self.controls, state.episodes
        rate = e.rate[min(state.step, len(e.rate) - 1)]
        capacity = targets[:, 0].maximum(0.75 * state.capacity).minimum(2.0 * state.capacity)
        capacity = capacity.clamp(control.low, control.high)
        served = e.efficiency * capacity
        backlog = (state.backlog + (rate - served) * STEP_S).clamp(min=0.0)
        wait = backlog / served + TICK
        over = wait / e.slo_s
        reward = 0.5 * (1 / over).clamp(max=1.0) + 0.5 * (rate / served).clamp(max=1.0)
        outcome = Outcome(reward, capacity / e.mean_rate, over.log().clamp(min=0.0), (over > 1.0).float(),
                          {"capacity_rps": capacity, "wait_over_slo": over})
        return State(e, state.step + 1, capacity, backlog, wait, torch.lerp(state.mean, rate, WEIGHT)), outcome

    def hidden_parameters(self, state: State) -> Tensor:
        return ((state.episodes.efficiency - 1.0) * 4.0)[:, None]

    def coming_load(self, state: State) -> Tensor:
        rate = state.episodes.rate
        return (rate[min(state.step, len(rate) - 1)] / rate[max(state.step - 1, 0)]).log()[:, None]


ENVIRONMENT = Backlog()
