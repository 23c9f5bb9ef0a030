"""The chance of a false alarm of all looks together is bounded, and ends say no more than the values bear."""

import numpy as np
import pytest
from scipy.stats import binom

from models.monitoring.chances import FALSE_ALARM, WINDOWS, excess, level_of, share_at_least, windows


def test_all_looks_at_all_champions_spend_what_there_is_and_no_more() -> None:
    spent = sum(5 * 3 * level_of(look, 5, 3) for look in range(1, 100_000))
    assert FALSE_ALARM * 0.999 < spent <= FALSE_ALARM


@pytest.mark.parametrize(("count", "found"), [(0, ()), (19, ()), (20, (20,)), (79, (20, 79)), (80, (20, 80)),
                                              (100, (20, 80, 100)), (10**6, WINDOWS)])
def test_windows_end_with_all_rows(count: int, found: tuple[int, ...]) -> None:
    assert windows(count) == found


def test_the_lower_end_of_a_share_misses_it_no_more_often_than_it_may() -> None:
    share, level, size = 0.05, 0.05, 400
    rng = np.random.default_rng(0)
    missed = sum(share_at_least(rng.random(size) < share, level) > share for _ in range(400))
    assert missed <= binom.ppf(0.999, 400, level)


def test_neighbours_that_resemble_each_other_count_as_fewer() -> None:
    independent = np.random.default_rng(0).random(1000) < 0.5
    runs = np.repeat(independent[:20], 50)
    assert abs(runs.mean() - independent.mean()) < 0.1
    assert share_at_least(independent, 1e-6) > 2 * share_at_least(runs, 1e-6)


def test_one_burst_is_no_share() -> None:
    assert share_at_least(np.ones(20, dtype=bool), 1e-6) < 0.05 < share_at_least(np.ones(80, dtype=bool), 1e-6)
    assert share_at_least(np.zeros(80, dtype=bool), 1e-6) == 0.0 == share_at_least(np.ones(5, dtype=bool), 0.01)


def test_a_mean_is_above_another_where_it_is() -> None:
    rng = np.random.default_rng(1)
    low, high = rng.exponential(1.0, 300), rng.exponential(3.0, 300)
    assert excess(high, low, 1.1, 1e-6) > 0 and excess(high, low, 5.0, 1e-6) < 0
    assert not excess(low, low[::-1], 1.0, 0.01) > 0
    assert np.isnan(excess(high[:5], low, 1.0, 0.01))
