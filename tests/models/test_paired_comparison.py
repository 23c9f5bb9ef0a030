"""An equal model does not win by luck, a better one wins where there are cases enough; oracles: SciPy, brute force."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from benchmarks.gates.false_promotion import ERRORS, squared_errors
from feature_store.errors import InputError
from models import paired_comparison
from models.paired_comparison import (
    MINIMUM_CASES,
    SHORTEST_BLOCK,
    Comparison,
    ComparisonRule,
    block_length,
    compare,
    lower_end,
)

RULE = ComparisonRule()
SCORES = hnp.arrays(np.float64, st.integers(MINIMUM_CASES, 60), elements=st.floats(0, 1e6))
# Sums of up to 60 scores in another order, relative to the largest of them.
ROUNDING = 1e-12


def persistent(rows: int, seed: int, correlation: float = 0.9) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = [rng.normal()]
    for _ in range(rows - 1):
        values.append(correlation * values[-1] + math.sqrt(1 - correlation**2) * rng.normal())
    return np.array(values)


@settings(deadline=None, max_examples=25)
@given(SCORES)
def test_a_model_never_wins_against_itself(scores: np.ndarray) -> None:
    for better in ("smaller", "larger"):
        found = compare(scores, scores, better, ComparisonRule(0.0, 0.8))  # type: ignore[arg-type]
        assert (found.gain, found.lower_end, found.wins) == (0.0, 0.0, False)


@settings(deadline=None, max_examples=25)
@given(SCORES, st.integers(0, 2**32 - 1))
def test_of_two_models_at_most_one_wins(scores: np.ndarray, seed: int) -> None:
    other = np.random.default_rng(seed).permutation(scores)
    rule = ComparisonRule(0.0, 0.8)
    assert not (compare(scores, other, "smaller", rule).wins and compare(other, scores, "smaller", rule).wins)


@settings(deadline=None, max_examples=25)
@given(SCORES, st.integers(0, 2**32 - 1))
def test_smaller_errors_are_larger_rewards(scores: np.ndarray, seed: int) -> None:
    other = np.random.default_rng(seed).permutation(scores)
    as_error, as_reward = compare(scores, other, "smaller", RULE), compare(-scores, -other, "larger", RULE)
    assert (as_error.gain, as_error.lower_end, as_error.wins) == (as_reward.gain, as_reward.lower_end, as_reward.wins)


@settings(deadline=None, max_examples=25)
@given(SCORES, st.integers(0, 2**32 - 1), st.integers(-20, 20))
def test_the_unit_of_the_score_does_not_matter(scores: np.ndarray, seed: int, power: int) -> None:
    other = np.random.default_rng(seed).permutation(scores)
    one, two = (compare(f * scores, f * other, "smaller", RULE) for f in (1.0, 2.0**power))
    assert one.wins == two.wins and one.lower_end * 2.0**power == pytest.approx(two.lower_end)


@settings(deadline=None, max_examples=25)
@given(hnp.arrays(np.float64, st.integers(MINIMUM_CASES, 60), elements=st.floats(-1e6, 1e6)))
def test_the_lower_end_lies_below_the_mean_gain_and_falls_with_the_confidence(gains: np.ndarray) -> None:
    block = block_length(gains)
    ends = [lower_end(gains, block, confidence) for confidence in (0.8, 0.95, 0.99)]
    slack = ROUNDING * np.abs(gains).max()
    assert ends[2] - slack <= ends[1] <= ends[0] + slack and ends[1] <= gains.mean() + slack


def test_the_same_scores_give_the_same_answer() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 100)) ** 2
    assert compare(one, two, "smaller", RULE) == compare(one, two, "smaller", RULE)


def test_with_independent_gains_it_is_students_interval() -> None:
    """SciPy's t-test is the oracle: 1,000 Gaussian gains, where the bootstrap's percentiles are normal."""
    gains = np.random.default_rng(3).normal(0.1, 1.0, 1000)
    exact = stats.ttest_1samp(gains, 0, alternative="greater").confidence_interval(0.99).low
    assert lower_end(gains, 1, 0.99) == pytest.approx(exact, abs=0.005)  # a twentieth of the half width


def test_blocks_are_the_circular_ones_of_all_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brute force: with two blocks of four, all 64 pairs of starts make the exact distribution of resampled means."""
    gains = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, 6.0])
    starts = [np.roll(gains, -start)[:4].mean() for start in range(8)]
    exact = np.quantile([(a + b) / 2 for a, b in product(starts, repeat=2)], 0.2, method="inverted_cdf")
    stretch = math.sqrt(2) * stats.t.ppf(0.8, 1) / stats.norm.ppf(0.8)
    monkeypatch.setattr(paired_comparison, "RESAMPLES", 200_000)
    expected = gains.mean() - stretch * (gains.mean() - exact)
    assert lower_end(gains, 4, 0.8) == pytest.approx(expected, abs=0.05)


def test_a_block_is_as_long_as_the_gains_resemble_their_neighbours() -> None:
    white, similar = np.random.default_rng(0).normal(size=5000), persistent(5000, 0, 0.99)
    assert block_length(white) == math.ceil(math.sqrt(5000))
    assert block_length(similar) > 2 * block_length(white)
    assert block_length(np.ones(100)) == SHORTEST_BLOCK
    assert block_length(similar[:35]) == 8, "four blocks are left"


def test_half_the_error_wins_and_a_thousandth_less_does_not() -> None:
    errors = np.random.default_rng(0).normal(size=200) ** 2
    assert compare(0.5 * errors, errors, "smaller", RULE).wins
    found = compare(0.999 * errors, errors, "smaller", RULE)
    assert not found.wins and 0 < found.lower_end < found.required, "better, but by less than the margin"


def test_a_reward_of_either_sign_is_compared() -> None:
    rewards = np.random.default_rng(0).normal(-10, 1, 300)
    assert compare(rewards + 1, rewards, "larger", RULE).wins
    assert not compare(rewards - 1, rewards, "larger", RULE).wins
    assert compare(rewards + 10, rewards - rewards.mean(), "larger", RULE).required < 1e-9


@pytest.mark.parametrize("kind", ERRORS)
def test_an_equal_model_wins_in_less_than_5_percent(kind: str) -> None:
    """docs/benchmarks/promotion.md has up to 5,000 rows and 1,000 pairs."""
    rng = np.random.default_rng(35)
    won = sum(compare(*squared_errors(ERRORS[kind][0], 35, 0.0, rng), "smaller", RULE).wins for _ in range(100))
    assert won < 5


def test_single_rows_instead_of_blocks_would_let_an_equal_model_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the blocks are for: the same errors, drawn row by row."""
    monkeypatch.setattr(paired_comparison, "block_length", lambda gains: 1)
    noise = ERRORS["every_window"][0]
    rng = np.random.default_rng(0)
    won = sum(compare(*squared_errors(noise, 150, 0.0, rng), "smaller", RULE).wins for _ in range(100))
    assert won > 10


@pytest.mark.parametrize(("challenger", "champion", "message"), [
    ([1.0] * 7, [1.0] * 7, "cases must be at least 8"),
    ([1.0] * 9, [1.0] * 8, "of the same cases"),
    ([[1.0] * 9], [[1.0] * 9], "of the same cases"),
    ([1.0] * 8 + [math.nan], [1.0] * 9, "finite numbers"),
    ([1.0] * 9, [1.0] * 8 + [math.inf], "finite numbers"),
    ([1.0] * 9, [1e308] * 9, "finite mean and a finite lower end"),
    ([1e308] * 9, [1e308] * 9, "finite mean and a finite lower end"),
    ([-1e308] * 9, [1e308] * 9, "finite mean and a finite lower end"),
])
def test_scores_that_cannot_be_compared_are_refused(challenger: Any, champion: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(challenger, champion, "smaller", RULE)


def test_it_says_what_it_found() -> None:
    assert str(Comparison(0.5, 0.1, 0.02, 2.0, 60, 10)) == (
        "improvement +25 % on 60 test cases, lower end +5 % (must exceed 1 %)")
    assert str(Comparison(0.5, 0.1, 0.0, 0.0, 60, 10)) == (
        "improvement +0.5 on 60 test cases, lower end +0.1 (must exceed 0)")
