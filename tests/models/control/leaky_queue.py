"""A small environment for tests: a fluid queue whose service rate and spare room are set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor

from models.control.contract.environment import Outcome
from models.control.contract.signals import Anchor, Control, Feature, Signal


@dataclass(frozen=True)
class State:
    load: Tensor  # (T, N) requests/s
    rate: Tensor  # (N,) requests/s that are served
    room: Tensor  # (N,) requests that may wait
    backlog: Tensor  # (N,) requests
    at: int = 0


class LeakyQueue:
    """One step lasts a second; what does not fit into the room is lost."""

    signals = (Signal("rate_rps", "1/s", 1.0, 64.0, "log"), Signal("room", "count", 1.0, 64.0, "log"),
               Signal("load_rps", "1/s", 0.0, 64.0), Signal("backlog", "count", 0.0, 64.0))
    controls = (Control("target_rate_rps", "rate_rps", "1/s", 1.0, 64.0, 0.25, 1.0),
                Control("target_room", "room", "count", 1.0, 64.0, 0.5, 0.5, whole=True))
    features = (Feature("rate", {"rate_rps": 1.0}), Feature("room over rate", {"room": 1.0, "rate_rps": -1.0}),
                Feature("load", {"load_rps": 1.0}), Feature("backlog", {"backlog": 1.0}))
    anchors: Mapping[str, Anchor] = MappingProxyType({})
    hidden = ()
    measures = {"lost": "count", "rate": "1/s"}
    cost_unit, step_seconds, steps, scenarios = "requests", 1.0, 5, ("", "calm")

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Tensor:
        random = torch.Generator().manual_seed(seed)
        load = 20.0 * torch.rand(steps + 1, count, generator=random)
        return torch.full_like(load, 5.0) if scenario == "calm" else load

    def reset(self, episodes: Tensor) -> State:
        one = torch.ones(episodes.shape[1])
        return State(episodes, 8.0 * one, 16.0 * one, 0.0 * one)

    def observe(self, state: State) -> Tensor:
        return torch.stack([state.rate, state.room, state.load[state.at], state.backlog], dim=1)

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        rate, room = targets[:, 0].clamp(1.0, 64.0), targets[:, 1].ceil().clamp(1.0, 64.0)
        waiting = (state.backlog + state.load[state.at] - rate).clamp(min=0.0)
        lost = (waiting - room).clamp(min=0.0)
        outcome = Outcome(reward=-rate - waiting, cost=rate, violation=lost, violated=(lost > 0).float(),
                          measures={"lost": lost, "rate": rate})
        return replace(state, rate=rate, room=room, backlog=waiting - lost, at=state.at + 1), outcome

    def hidden_parameters(self, state: State) -> Tensor:
        return torch.empty(len(state.rate), 0)

    def coming_load(self, state: State) -> Tensor:
        return torch.empty(len(state.rate), 0)
