"""The multiplier rises while too many steps violate, and falls while fewer do."""

import math

import pytest
import torch

from models.control.training.objective import ConstrainedObjective, ObjectiveSettings, excess

ONE, TWO = torch.tensor([1.0]), torch.tensor([2.0])


def test_a_violating_step_costs_the_multiplier() -> None:
    objective = ConstrainedObjective(ObjectiveSettings(multiplier=3.0))
    assert objective(ONE, TWO, torch.tensor([1.0])).item() == pytest.approx(-(2.0 + 3.0) / 4.0)
    assert ConstrainedObjective(ObjectiveSettings(kind="reward"))(ONE, TWO, ONE).item() == 1.0


@pytest.mark.parametrize(("share", "rises"), [(0.5, True), (0.021, True), (0.0, False)])
def test_the_multiplier_follows_the_measured_share(share: float, rises: bool) -> None:
    objective = ConstrainedObjective(ObjectiveSettings())
    for _ in range(3):
        before = objective.multiplier
        objective.adapt(share)
        assert (objective.multiplier > before) == rises
    objective.adapt(math.nan)
    assert math.isfinite(objective.multiplier)


def test_it_settles_where_the_target_is_kept() -> None:
    objective = ConstrainedObjective(ObjectiveSettings(violating_share=0.02, multiplier=1.0))
    for _ in range(2000):
        objective.adapt(0.4 / (1.0 + objective.multiplier))  # violates less the more it costs
    assert objective.multiplier == pytest.approx(19.0, rel=0.01)


def test_of_two_policies_the_one_that_keeps_the_target_is_better() -> None:
    objective = ConstrainedObjective(ObjectiveSettings())
    assert objective.score(1.0, 2.0, 0.02) > objective.score(1.0, 1.9, 0.03) > objective.score(1.0, 1.9, 0.04)


@pytest.mark.parametrize(("violated", "target", "expected"), [
    (0.0, 0.02, 0.0), (0.02, 0.02, 0.0), (0.03, 0.02, 0.5), (0.1, 0.02, 4.0), (0.172, 0.002, 85.0), (0.01, 0.0, 99.0)])
def test_what_is_beyond_the_target_counts_by_how_many_times_it_is_the_target(violated: float, target: float,
                                                                            expected: float) -> None:
    assert excess(violated, target) == pytest.approx(expected)


def test_what_is_no_number_is_never_better() -> None:
    objective = ConstrainedObjective(ObjectiveSettings())
    assert not objective.score(1.0, 1.0, math.nan) > -math.inf
    assert not excess(math.nan, 0.02) < math.inf
