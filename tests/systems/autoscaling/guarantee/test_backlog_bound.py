"""S and N held against runs in which capacity rises as slowly, and falls as fast, as it may."""

from dataclasses import replace

import numpy as np
import pytest

from systems.autoscaling.guarantee.backlog_bound import backlog_bound
from tests.systems.autoscaling.guarantee.scalers import law

START, BACKLOG, HEADROOM = 30.0, 4.0, 0.5


def largest(growth: float, change: float, steps: int, after: int, seed: int) -> float:
    """The largest backlog from step `after` on, of runs in which each step does what is known at least."""
    its, random, count = law(change), np.random.default_rng(seed), 400
    a, c = random.uniform(its.load_low, its.load_high, count), np.full(count, its.least)
    b, found = np.full(count, START), 0.0
    eager, rises = random.random(count), random.random(count) < 0.5
    for step in range(steps):
        value = b + (a - c) * its.step_s
        falls = np.maximum(c * its.kept_share, its.least)
        calm = np.where(random.random(count) < eager, falls, np.maximum(c, a + 0.05))
        c = np.where(value >= BACKLOG, np.maximum(np.minimum(growth * c, a + HEADROOM), 0.0), calm)
        b = np.maximum(value, 0.0)
        move = np.where(rises, change, change * random.uniform(-1, 1, count))
        a = np.clip(a + move, its.load_low, its.load_high)
        if step + 1 >= after:
            found = max(found, float(b.max()))
    return found


@pytest.mark.parametrize(("growth", "change"), [(1.1, 0.0), (1.3, 0.02), (1.05, 0.05), (2.0, 0.1)])
def test_no_run_that_keeps_the_facts_breaks_the_bound(growth: float, change: float) -> None:
    bound = backlog_bound(law(change), BACKLOG, HEADROOM, growth, START)
    assert bound is not None
    attained = max(largest(growth, change, bound.steps + 200, bound.steps, seed) for seed in range(4))
    assert 0.2 * bound.backlog < attained <= bound.backlog  # and it is not said too generously either


def test_before_its_steps_the_start_may_still_be_there() -> None:
    bound = backlog_bound(law(), BACKLOG, HEADROOM, 1.3, 500.0)
    assert bound is not None and bound.steps > 500.0 / (HEADROOM * 15.0)
    assert bound.backlog < 500.0


@pytest.mark.parametrize(("growth", "change", "why"), [
    (1.0, 0.0, "no growth"), (1.01, 0.1, "the load grows faster"), (1.5, 0.6, "changes exceed the headroom")])
def test_nothing_follows_where_capacity_does_not_outgrow_the_load(growth: float, change: float, why: str) -> None:
    assert backlog_bound(law(change), BACKLOG, HEADROOM, growth, START) is None, why


def test_nothing_follows_of_a_backlog_that_may_be_within_the_objective() -> None:
    slow = replace(law(), objective_ms=1e3)
    assert backlog_bound(slow, BACKLOG, HEADROOM, 1.3, START) is None
    assert backlog_bound(slow, 20.0, HEADROOM, 1.3, START) is not None
