"""The interval of a share of pairs: against Clopper and Pearson, and how often it holds the share it is of."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binomtest

from models.audit.pair_share import share_interval

ALL_OF_40 = np.stack(np.triu_indices(40, 1), axis=1)


def disjoint(count: int) -> np.ndarray:
    return np.arange(2 * count).reshape(count, 2)


@pytest.mark.parametrize("hits", [1, 300, 500, 799])
def test_of_pairs_that_share_no_row_it_is_near_that_of_independent_trials(hits: int) -> None:
    satisfied = np.arange(800) < hits
    found = share_interval(satisfied, disjoint(800), np.arange(1600), 0.95)
    wanted = binomtest(hits, 800).proportion_ci(0.95, "exact")
    assert math.isclose(found.lower, wanted.low, abs_tol=2e-4) and math.isclose(found.upper, wanted.high, abs_tol=2e-4)


def test_where_all_or_none_satisfy_it_still_has_a_width() -> None:
    found = [share_interval(np.full(len(ALL_OF_40), value), ALL_OF_40, np.arange(40), 0.95) for value in (True, False)]
    assert found[0].upper == 1.0 and 0.75 < found[0].lower < 0.9
    assert found[1].lower == 0.0 and math.isclose(found[1].upper, 1 - found[0].lower)


def test_without_pairs_there_is_none() -> None:
    found = share_interval(np.zeros(0, dtype=bool), np.zeros((0, 2), dtype=np.int64), np.arange(3), 0.95)
    assert math.isnan(found.lower) and math.isnan(found.upper)


def test_one_group_alone_says_next_to_nothing() -> None:
    found = share_interval(np.arange(780) < 600, ALL_OF_40, np.zeros(40, dtype=np.int64), 0.95)
    assert found.lower < 0.1 and found.upper > 0.99


def coverage(draw: Callable[..., tuple[np.ndarray, ...]], truth: float, repeats: int = 300) -> float:
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(repeats):
        found = share_interval(*draw(generator), 0.95)
        inside += found.lower <= truth <= found.upper
    return inside / repeats


@pytest.mark.parametrize("noise", [0.3, 3.0])
def test_it_holds_the_share_of_all_pairs_of_rows_as_often_as_it_says(noise: float) -> None:
    """y = x + noise z, x uniform and z normal; the share of a million independent pairs is the truth."""

    def draw(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = generator.random(40)
        y = x + noise * generator.normal(size=40)
        a, b = ALL_OF_40.T
        return (y[a] < y[b]) == (x[a] < x[b]), ALL_OF_40, np.arange(40)

    generator = np.random.default_rng(1)
    x, z = generator.random((2, 10 ** 6)), noise * generator.normal(size=(2, 10 ** 6))
    truth = float((((x + z)[0] < (x + z)[1]) == (x[0] < x[1])).mean())
    assert 0.92 <= coverage(draw, truth) <= 1.0


def test_it_holds_the_share_where_groups_have_shares_of_their_own() -> None:
    """20 workloads whose own share is 1 or 0.5: the pairs of one are not independent, and it says so."""

    def draw(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        own = generator.choice([1.0, 0.5], 20).repeat(50)
        return generator.random(1000) < own, disjoint(1000), np.arange(20).repeat(100)

    assert 0.92 <= coverage(draw, 0.75) <= 0.99


def test_it_is_wider_where_rows_belong_together() -> None:
    satisfied = np.random.default_rng(0).random(20).repeat(50) < 0.8  # alike within a group
    width = []
    for group in (np.arange(2000), np.arange(20).repeat(100)):
        found = share_interval(satisfied, disjoint(1000), group, 0.95)
        width.append(found.upper - found.lower)
    assert width[1] > 4 * width[0]
