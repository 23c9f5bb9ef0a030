"""Groups of agents: one of each is today's case to the bit; several share a policy, an outcome and a judgement."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from feature_store.errors import InputError
from models.control.contract.environment import Grouped, Outcome, agents_of
from models.control.contract.first_steps import check_first_steps
from models.control.simulation.gymnasium_wrappers import ApplicationEnv
from models.control.simulation.rollout import acting_of, roll_out
from models.control.training import through_environment
from models.control.training.methods import METHODS
from models.control.training.rule_tuning import Tuner
from models.control.training.smooth_objectives import CostAndViolations
from models.control.training.trajectories import collect, transitions
from models.tasks.control.choosing import member_scores
from models.tasks.control.judging import play
from models.tasks.control.training import never_acts, train
from tests.environments.backlog import ENVIRONMENT
from tests.environments.in_groups import InGroups
from tests.models.tasks.control.test_training import by, task, watched, weights

ONE, THREE = InGroups(ENVIRONMENT, 1), InGroups(ENVIRONMENT, 3)


def test_who_says_nothing_of_agents_acts_alone() -> None:
    assert agents_of(ENVIRONMENT) == 1 and not isinstance(ENVIRONMENT, Grouped)
    assert agents_of(THREE) == 3 and isinstance(THREE, Grouped)


@pytest.mark.parametrize("environment", [ONE, THREE])
def test_the_first_steps_hold(environment: Any) -> None:
    check_first_steps(environment)


@pytest.mark.parametrize("method", ["through_environment", *METHODS])
def test_groups_of_one_train_the_same_policy_to_the_bit(method: str, tmp_path: Path) -> None:
    wanted = task() if method == "through_environment" else by(method)
    known = watched(wanted) if never_acts(wanted) else None
    alone, grouped = (train(wanted, one, 2, 0, tmp_path / f"{number}.npz", lambda event: None, experience=known)
                      for number, one in enumerate((ENVIRONMENT, ONE)))
    assert grouped.history == alone.history
    for one, other in zip(weights(grouped.policies), weights(alone.policies), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("method", ["through_environment", *METHODS])
def test_agents_of_a_group_share_a_policy_which_is_trained_and_judged_by_group(method: str, tmp_path: Path) -> None:
    wanted = task() if method == "through_environment" else by(method)
    known = watched(wanted) if never_acts(wanted) else None
    found = train(wanted, THREE, 2, 0, tmp_path / "policy.npz", lambda event: None, experience=known)
    assert not found.stopped
    scores = member_scores(wanted, THREE, found.policies, 0)
    assert len(scores) == 2 and all(np.isfinite(score.cost) for score in scores)


def test_every_agent_has_the_outcome_of_its_group() -> None:
    rule = ENVIRONMENT.rules["headroom"].make({})
    done = collect(THREE, acting_of(THREE, rule), "train", 2, 8, 5)
    assert len(done) == 6
    groups = done.reward.reshape(2, 3, -1)
    assert torch.equal(groups, groups[:, :1].expand(-1, 3, -1)) and not torch.equal(groups[0], groups[1])
    alone = collect(ENVIRONMENT, acting_of(ENVIRONMENT, rule), "train", 6, 8, 5)
    assert torch.equal(done.observation, alone.observation)
    torch.testing.assert_close(groups[:, 0], alone.reward.reshape(2, 3, -1).mean(dim=1))
    assert len(transitions(done)) == 6 * 7


def test_episodes_rollouts_and_trials_are_of_groups() -> None:
    rule = ENVIRONMENT.rules["headroom"]
    episodes = THREE.draw("train", 4, 12, 3)
    played = play(THREE, episodes.take(torch.tensor([2, 0])), 10, lambda seen, _: torch.full((len(seen), 1), 50.0))
    assert played.cost.shape == (2,) and played.observations.shape[:2] == (10, 6)
    whole = play(THREE, episodes, 10, lambda seen, _: torch.full((len(seen), 1), 50.0))
    np.testing.assert_array_equal(played.cost, whole.cost[[2, 0]])
    rollout = roll_out(THREE, rule.make({}), episodes, 10, 0)
    assert rollout.reward.shape == (4,)
    tuner = Tuner(THREE, rule, episodes, 10, 0, 0)
    first, second = tuner.evaluate([{"factor": 1.2}, {"factor": 2.0}])
    assert first.cost == pytest.approx(float(roll_out(THREE, rule.make({"factor": 1.2}), episodes, 10, 0).cost.mean()))
    assert second.cost > first.cost


def test_what_wraps_one_application_refuses_a_group() -> None:
    with pytest.raises(InputError, match="expected an environment whose applications act alone, got groups of 3"):
        ApplicationEnv(THREE)  # type: ignore[arg-type]
    assert replace(ApplicationEnv(ONE)._batch._episodes).split == "train"  # type: ignore[arg-type]


def test_training_counts_whom_it_misses_and_not_how_badly_on_average() -> None:
    """One of four agents that misses its objective tenfold counts as about one of four, not as the whole group."""
    zero, each = torch.zeros(1), torch.tensor([[0.0, 0.0, 0.0, 2.3]])
    alone = CostAndViolations(torch.tensor([0.1]), 1.0)
    missed = 2.3 / (2.3 + 0.2) + 0.1 * 2.3
    given = Outcome(zero, zero, each.mean(dim=1), zero, {}, each)
    assert alone(given).item() == pytest.approx(missed / 4 / 2)
    assert alone(replace(given, each_violation=None)).item() > 1.5 * alone(given).item()


@pytest.mark.parametrize(("environment", "agents"), [(ONE, 1), (THREE, 3)])
def test_the_slope_of_one_agent_is_limited_whatever_its_group(environment: Any, agents: int, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(through_environment, "limit_slopes", lambda targets, most: limits.append(most * len(targets)))
    wanted = task()
    train(wanted, environment, 1, 0, tmp_path / "policy.npz", lambda event: None)
    members = len(wanted.training.aims)
    assert limits == pytest.approx([10.0 * members / wanted.training.window] * len(limits)), f"of {agents} agents"
    assert limits
