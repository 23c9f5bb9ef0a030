"""Which policy is taken: the cheapest that surely keeps the objective; a new one unless it is worse."""

from typing import Any

import numpy as np
import pytest

from models.tasks.control import choosing
from models.tasks.control.choosing import best_of, better
from models.tasks.control.judging import Played
from models.tasks.control.scoring import Score, scores
from models.tasks.control.task import Objective
from models.tasks.task import load_task

EPISODES = 200


def played(cost: Any, share: Any, reward: Any = 1.0) -> Played:
    count = len(np.atleast_1d(share))
    empty = np.zeros((1, count, 1), dtype=np.float32)
    given = (np.broadcast_to(np.asarray(one, dtype=float), count) for one in (reward, cost, share))
    return Played(*given, {}, empty, empty, {})


def spread(mean: float, seed: int) -> np.ndarray[Any, Any]:
    """Shares of violating steps: none in most episodes, many in some."""
    random = np.random.default_rng(seed)
    values = random.exponential(1.0, EPISODES) * (random.random(EPISODES) < 0.3)
    return np.asarray(mean * values / values.mean())


def test_a_policy_that_may_miss_the_objective_by_luck_is_not_the_best() -> None:
    shares = np.concatenate([spread(0.0195, 0), spread(0.012, 1)])
    costs = np.repeat([2.0, 2.05], EPISODES)
    just, surely = scores(played(costs, shares), 2, 0.02)
    assert just.violating_share == pytest.approx(0.0195) and just.cost < surely.cost
    assert just.loss > surely.loss == pytest.approx(2.05)


@pytest.mark.parametrize(("after", "before", "taken", "reason"), [
    ((1.2, 0.0075), (2.3, 0.0072), True, "cost"),  # a hair more violations, and none too many
    ((1.95, 0.009), (2.3, 0.0065), True, "cost"),
    ((2.0, 0.006), (2.0, 0.0065), True, "cost"),  # a tie
    ((2.01, 0.006), (2.0, 0.0065), False, "cost"),
    # cheaper, and it violates less than allowed where the other does not: though fewer violations may be luck
    ((1.8, 0.0157), (2.0, 0.0227), True, "cost"),
    ((2.2, 0.004), (2.0, 0.03), True, "violating share"),
    ((2.2, 0.0157), (2.0, 0.0165), False, "cost"),
    ((1.5, 0.05), (2.0, 0.01), False, "it violates in 5.00% of the steps, the other in 1.00%"),
    ((1.5, 0.04), (2.0, 0.05), True, "cost"),
])
def test_a_new_policy_is_taken_where_it_is_better(monkeypatch: pytest.MonkeyPatch, after: Any, before: Any, taken: bool,
                                                  reason: str) -> None:
    noise = np.random.default_rng(5).normal(0, 0.05, EPISODES)
    results = iter([played(after[0] + noise, spread(after[1], 2)), played(before[0] + noise, spread(before[1], 3))])
    monkeypatch.setattr(choosing, "play", lambda *arguments: next(results))

    class Nothing:
        steps = 10

        def draw(self, *arguments: Any) -> None:
            """No episodes."""

    found = better(load_task("autoscaling"), Nothing(), None, None, 0)  # type: ignore[arg-type]
    assert found.taken is taken and found.reason.startswith(reason)


@pytest.mark.parametrize(("aims", "taken", "reason"), [
    ((0.15, 0.35), True, "violating share"), ((), False, "cost"), ((0.5, 1.5), False, "cost")])
def test_a_cheaper_policy_that_violates_more_than_fine_tuning_aims_at_is_not_kept(
        monkeypatch: pytest.MonkeyPatch, aims: tuple[float, ...], taken: bool, reason: str) -> None:
    """A later load violates more: one of 1.6 % in training, of the 2 % that are allowed, had 2.9 % a day later."""
    noise = np.random.default_rng(5).normal(0, 0.05, EPISODES)
    results = iter([played(2.05 + noise, spread(0.006, 2)), played(2.0 + noise, spread(0.0165, 3))])
    monkeypatch.setattr(choosing, "play", lambda *arguments: next(results))

    class Nothing:
        steps = 10

        def draw(self, *arguments: Any) -> None:
            """No episodes."""

    task = load_task("autoscaling")
    training = task.training.model_copy(update={"finetune_aims": aims, "aims": (0.4, 1.0)})
    found = better(task.model_copy(update={"training": training}), Nothing(), None, None, 0)  # type: ignore[arg-type]
    assert found.taken is taken and found.reason.startswith(reason)


@pytest.mark.parametrize(("cost", "reward", "taken"), [
    (2.05, 1.3, True), (2.05, 1.1, False), (1.95, 1.0, True), (1.95, 0.7, False)])
def test_a_reward_of_so_much_weight_counts_as_so_much_cost(monkeypatch: pytest.MonkeyPatch, cost: float, reward: float,
                                                           taken: bool) -> None:
    noise = np.random.default_rng(5).normal(0, 0.05, EPISODES)
    results = iter([played(cost + noise, spread(0.01, 2), reward), played(2.0 + noise, spread(0.01, 3), 1.0)])
    monkeypatch.setattr(choosing, "play", lambda *arguments: next(results))

    class Nothing:
        steps = 10

        def draw(self, *arguments: Any) -> None:
            """No episodes."""

    task = load_task("autoscaling")
    training = task.training.model_copy(update={"finetune_reward_weight": 0.3})
    found = better(task.model_copy(update={"training": training}), Nothing(), None, None, 0)  # type: ignore[arg-type]
    assert found.taken is taken and found.reason.startswith("cost less 0.3 of the reward of 256")


def test_the_best_is_the_one_whose_cost_less_what_its_reward_is_worth_is_least() -> None:
    task, found = load_task("autoscaling"), [Score(2.0, 2.0, 0.01, 1.0), Score(2.05, 2.05, 0.01, 1.3)]
    assert (best_of(task, found), best_of(task, found, 0.1), best_of(task, found, 0.3)) == (0, 0, 1)


@pytest.mark.parametrize(("after", "before", "taken", "reason"), [
    ((1.5, 0.0157), (1.0, 0.0165), True, "reward"),
    ((1.5, 0.05), (1.0, 0.01), False, "it violates in 5.00% of the steps, the other in 1.00%"),
    ((0.9, 0.004), (1.5, 0.03), True, "violating share"),
])
def test_a_reward_is_compared_at_violations_that_are_allowed(monkeypatch: pytest.MonkeyPatch, after: Any, before: Any,
                                                             taken: bool, reason: str) -> None:
    task = load_task("autoscaling")
    task = task.model_copy(update={"objective": Objective(maximise="reward", violating_share=0.02)})
    noise = np.random.default_rng(5).normal(0, 0.05, EPISODES)
    results = iter([played(2.0, spread(share, seed), reward + noise)
                    for (reward, share), seed in ((after, 2), (before, 3))])
    monkeypatch.setattr(choosing, "play", lambda *arguments: next(results))

    class Nothing:
        steps = 10

        def draw(self, *arguments: Any) -> None:
            """No episodes."""

    found = better(task, Nothing(), None, None, 0)  # type: ignore[arg-type]
    assert found.taken is taken and found.reason.startswith(reason)
    own = [Score(2.0, 2.0, share, reward) for reward, share in (after, before)]
    assert best_of(task, own) == (0 if taken else 1)
