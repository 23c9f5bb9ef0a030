"""What gradients through the environment descend on, and who moves the multiplier: values worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.control.contract.environment import Outcome
from models.control.training.objective import ConstrainedObjective, ObjectiveSettings
from models.control.training.smooth_objectives import CostAndViolations, PaperReward
from models.control.training.through_environment import ThroughEnvironment
from tests.environments.backlog import Backlog
from tests.models.control.training.test_through_environment import FAST, training


def outcome(cost: list[float], violation: list[float], violated: list[float] | None = None) -> Outcome:
    count = len(cost)
    return Outcome(torch.arange(count).float(), torch.tensor(cost), torch.tensor(violation),
                   torch.tensor(violated or [0.0] * count), {})


def test_a_step_costs_its_cost_and_the_multiplier_of_its_own_policy_times_how_much_it_missed() -> None:
    objective = CostAndViolations(torch.tensor([0.02, 0.1]), torch.tensor([10.0, 40.0]))
    found = objective(outcome([1.0, 2.0, 3.0, 4.0], [0.0, 0.2, 0.6, 1.0]))
    # missed: v / (v + 0.2) + 0.1 v
    expected = [1 / 11, (2 + 10 * 0.52) / 11, (3 + 40 * 0.81) / 41, (4 + 40 * (1 / 1.2 + 0.1)) / 41]
    torch.testing.assert_close(found, torch.tensor(expected))
    torch.testing.assert_close(PaperReward()(outcome([1.0, 2.0], [0.0, 3.0])), torch.tensor([0.0, -1.0]))


def test_a_reward_of_so_much_weight_takes_as_much_off_the_cost() -> None:
    objective = CostAndViolations(torch.tensor([0.02, 0.1]), torch.tensor([10.0, 40.0]), reward_weight=0.25)
    found = objective(outcome([1.0, 2.0, 3.0, 4.0], [0.0, 0.2, 0.6, 1.0]))  # rewards: 0, 1, 2, 3
    expected = [1 / 11, (1.75 + 10 * 0.52) / 11, (2.5 + 40 * 0.81) / 41, (3.25 + 40 * (1 / 1.2 + 0.1)) / 41]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_a_multiplier_rises_and_falls_by_the_logarithm_with_the_remembered_share() -> None:
    objective = CostAndViolations(torch.tensor([0.02, 0.1, 0.02, 0.02]), 50.0, rate=0.03)
    objective.observe(torch.tensor([0.12, 0.1, 0.0, 0.9]))
    torch.testing.assert_close(objective.share, torch.tensor([0.04, 0.1, 0.016, 0.196]))  # a fifth of what is new
    # of excesses 1, 0, -0.2 and 8.8, which counts as 2
    expected = [50 * math.exp(0.03 * excess) for excess in (1.0, 0.0, -0.2, 2.0)]
    torch.testing.assert_close(objective.multipliers, torch.tensor(expected))


@pytest.mark.parametrize(("violated", "end"), [(1.0, 1e3), (0.0, 1e-2)])
def test_the_multiplier_of_a_target_that_is_always_or_never_missed_stays_within_its_ends(violated: float, end: float
                                                                                        ) -> None:
    objective = CostAndViolations(torch.tensor([0.002]), 100.0, rate=0.1)
    for _ in range(200):
        objective.observe(torch.tensor([violated]))
    assert objective.multipliers.tolist() == pytest.approx([end])


class Watched:
    """An objective that records which outcomes it was asked of, and which shares it was given."""

    def __init__(self, objective: Any) -> None:
        self._objective, self.outcomes, self.given = objective, [], []  # type: ignore[var-annotated]

    def __call__(self, found: Outcome) -> Tensor:
        self.outcomes.append(found)
        value: Tensor = self._objective(found)
        return value

    def observe(self, violated: Tensor) -> None:
        self.given.append((len(self.outcomes), violated.clone()))
        self._objective.observe(violated)


class Violating(Backlog):
    """Violates by chance, of each application another one: neither cost nor reward tells how often."""

    def step(self, state: Any, targets: Tensor) -> Any:
        state, found = super().step(state, targets)
        chances = torch.linspace(0.1, 0.9, len(found.cost))
        violated = (torch.rand(len(chances), generator=torch.Generator().manual_seed(state.step)) < chances).float()
        return state, replace(found, violated=violated)


def test_the_multiplier_is_given_the_measured_share_of_each_policy_in_each_window() -> None:
    run: ThroughEnvironment = training(Violating(), replace(FAST, steps=30))
    watched = Watched(run.state.objective)
    run.state.objective = watched  # type: ignore[assignment]
    run._round()
    assert [seen for seen, _ in watched.given] == [10, 20], "steps of the warm-up do not count"
    for seen, violated in watched.given:
        window = torch.stack([one.violated for one in watched.outcomes[seen - 10:seen]])
        torch.testing.assert_close(violated, window.mean(dim=0).reshape(2, -1).mean(dim=1))
        assert violated[0] < violated[1]


@pytest.mark.parametrize(("share", "step"), [(0.03, 0.05), (0.04, 0.1), (0.5, 0.1), (0.01, -0.05), (0.0, -0.1)])
def test_the_other_multiplier_moves_by_the_excess_and_no_further(share: float, step: float) -> None:
    objective = ConstrainedObjective(ObjectiveSettings(violating_share=0.02, multiplier=7.0, multiplier_rate=0.1))
    objective.adapt(share)
    assert objective.multiplier == pytest.approx(7.0 * math.exp(step))
