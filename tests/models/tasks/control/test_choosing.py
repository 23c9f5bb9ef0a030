"""Which policy is taken: the cheapest that surely keeps the objective; a new one only where it is better."""

from typing import Any

import numpy as np
import pytest

from models.tasks.control import choosing
from models.tasks.control.choosing import better
from models.tasks.control.judging import Played
from models.tasks.control.scoring import scores
from models.tasks.task import load_task

EPISODES = 200


def played(cost: Any, share: Any) -> Played:
    count = len(np.atleast_1d(share))
    empty = np.zeros((1, count, 1), dtype=np.float32)
    return Played(np.ones(count), np.broadcast_to(np.asarray(cost, dtype=float), count), np.asarray(share, dtype=float),
                  {}, empty, empty, {})


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
