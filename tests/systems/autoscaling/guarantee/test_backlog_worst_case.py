"""S held against the worst run there is, by the facts that it follows from: it is sound, and it is not far above.

Random runs stay well below S, so that an S that is too small by a third would pass among them. Here the backlog is let
in at just below v0, capacity at its least for that and taken away as far as it may be, the load rises as fast as it
may, and capacity then rises as slowly as is proved.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from systems.autoscaling.guarantee.backlog_bound import backlog_bound
from systems.autoscaling.guarantee.catching_up import KEPT, ScalerLaw
from tests.systems.autoscaling.guarantee.scalers import law

BACKLOG, HEADROOM, START = 4.0, 0.5, 30.0
BELOW = 1e-9  # v0: the last state in which capacity may still be taken away
TIGHT = 0.97  # of S is reached: S takes loads in 256 intervals
# no two quantities are equal, and kept_share is not what replicas or rates come to
LAWS: dict[str, Callable[[], ScalerLaw]] = {
    "slow changes": lambda: law(0.02), "steady": lambda: law(0.0), "fast changes": lambda: law(0.1),
    "much taken away": lambda: replace(law(0.05), kept_share=0.35, limit_low=0.05),
    "little taken away": lambda: replace(law(0.05), kept_share=0.9),
    "other steps": lambda: replace(law(0.03), step_s=7.0, load_low=0.4, load_high=5.0, limit_low=0.1),
}


def worst(its: ScalerLaw, growth: float, steps: int = 500) -> float:
    """The largest next backlog of runs from V just below v0, over a fine grid of loads."""
    margin = its.replicas_high * KEPT
    load = np.linspace(its.load_low, its.load_high, 2001)
    capacity = np.maximum(load - (BACKLOG - BELOW) / its.step_s, its.least)
    value = (load - capacity) * its.step_s  # of an empty queue
    value = np.where(capacity > its.least, value, BACKLOG - BELOW)  # where capacity is least, the rest waits already
    found = value.copy()
    for _ in range(steps):
        missed = value >= BACKLOG
        kept = np.maximum(its.kept_share * capacity - margin, its.least)  # as little as may be left
        capacity = np.where(missed, np.minimum(growth * capacity, load + HEADROOM - margin), kept)
        load = np.minimum(load + its.change, its.load_high)
        value = np.maximum(value, 0.0) + (load - capacity) * its.step_s
        found = np.maximum(found, value)
    return float(found.max())


@pytest.mark.parametrize("growth", [1.1, 1.3, 2.0])
@pytest.mark.parametrize("name", LAWS)
def test_the_bound_is_that_of_the_worst_run(name: str, growth: float) -> None:
    its = LAWS[name]()
    bound = backlog_bound(its, BACKLOG, HEADROOM, growth, START)
    assert bound is not None
    reached = worst(its, growth)
    assert TIGHT * bound.backlog <= reached <= bound.backlog


@pytest.mark.parametrize("growth", [1.1, 1.3, 2.0])
@pytest.mark.parametrize("name", LAWS)
def test_the_steps_are_those_of_the_worst_start(name: str, growth: float) -> None:
    its = LAWS[name]()
    bound = backlog_bound(its, BACKLOG, HEADROOM, growth, START)
    assert bound is not None
    margin, capacity, steps = its.replicas_high * KEPT, its.least, 0
    value = START + (its.load_high - capacity) * its.step_s
    while value >= BACKLOG:
        capacity, steps = min(growth * capacity, its.load_high + HEADROOM - margin), steps + 1
        value += (its.load_high - capacity) * its.step_s
    # when the load may fall by its change in a step, capacity may be short of the headroom by as much
    slower = (HEADROOM - margin) / (HEADROOM - margin - its.change)
    assert steps + 1 <= bound.steps <= slower * (steps + 1) + 1
