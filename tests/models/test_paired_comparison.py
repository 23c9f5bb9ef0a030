"""An equal model does not win by luck, a better one wins where there are cases enough; oracles: SciPy, brute force."""

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from benchmarks.gates.simulated_cases import FAMILIES, Traded
from feature_store.errors import InputError
from models import paired_comparison
from models.paired_comparison import (
    MINIMUM_CASES,
    MOST_BLOCKS,
    SHORTEST_BLOCK,
    Comparison,
    ComparisonRule,
    block_length,
    compare,
    interval,
    required_gain,
)

RULE = ComparisonRule()
LENIENT = ComparisonRule(0.0, 0.0, confidence=0.8)
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
        found = compare(scores, scores, better, LENIENT)  # type: ignore[arg-type]
        assert (found.gain, found.lower_end, found.upper_end, found.wins) == (0.0, 0.0, 0.0, False)


@settings(deadline=None, max_examples=25)
@given(SCORES, st.integers(0, 2**32 - 1))
def test_of_two_models_at_most_one_wins(scores: np.ndarray, seed: int) -> None:
    other = np.random.default_rng(seed).permutation(scores)
    for better in ("smaller", "larger"):
        assert not (compare(scores, other, better, LENIENT).wins  # type: ignore[arg-type]
                    and compare(other, scores, better, LENIENT).wins)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=25)
@given(SCORES, st.integers(0, 2**32 - 1))
def test_smaller_errors_are_larger_rewards(scores: np.ndarray, seed: int) -> None:
    other = np.random.default_rng(seed).permutation(scores)
    rule = ComparisonRule(minimum_gain={"score": 1.0})
    as_error, as_reward = (compare(scores, other, "smaller", rule, "score"),
                           compare(-scores, -other, "larger", rule, "score"))
    assert (as_error.gain, as_error.lower_end, as_error.upper_end, as_error.wins) == (
        as_reward.gain, as_reward.lower_end, as_reward.upper_end, as_reward.wins)


@settings(deadline=None, max_examples=25)
@given(SCORES, st.integers(0, 2**32 - 1), st.integers(-20, 20))
def test_the_unit_of_the_score_does_not_matter(scores: np.ndarray, seed: int, power: int) -> None:
    other = np.random.default_rng(seed).permutation(scores)
    one, two = (compare(f * scores, f * other, "smaller", RULE) for f in (1.0, 2.0**power))
    assert one.wins == two.wins and one.lower_end * 2.0**power == pytest.approx(two.lower_end)


@settings(deadline=None, max_examples=25)
@given(hnp.arrays(np.float64, st.integers(MINIMUM_CASES, 60), elements=st.floats(-1e6, 1e6)))
def test_the_interval_holds_the_mean_gain_and_grows_with_the_confidence(gains: np.ndarray) -> None:
    block = block_length(gains)
    ends = [interval(gains, block, confidence) for confidence in (0.8, 0.95, 0.99)]
    slack, mean = ROUNDING * np.abs(gains).max(), gains.mean()
    for low, high in ends:
        assert low <= mean + slack and mean <= high + slack
    for (low, high), (lower, higher) in pairwise(ends):
        assert lower <= low + slack and high <= higher + slack


def test_the_same_scores_give_the_same_answer() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 100)) ** 2
    assert compare(one, two, "smaller", RULE) == compare(one, two, "smaller", RULE)


def test_with_independent_gains_it_is_students_interval() -> None:
    """SciPy's t-test is the oracle: 1,000 Gaussian gains, where the bootstrap's percentiles are normal."""
    gains = np.random.default_rng(3).normal(0.1, 1.0, 1000)
    low = stats.ttest_1samp(gains, 0, alternative="greater").confidence_interval(0.99).low
    high = stats.ttest_1samp(gains, 0, alternative="less").confidence_interval(0.99).high
    assert interval(gains, 1, 0.99) == pytest.approx((low, high), abs=0.005)  # a twentieth of the half width


def test_blocks_are_the_circular_ones_of_all_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brute force: with two blocks of four, all 64 pairs of starts make the exact distribution of resampled means."""
    gains = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, 6.0])
    starts = [np.roll(gains, -start)[:4].mean() for start in range(8)]
    exact = np.quantile([(a + b) / 2 for a, b in product(starts, repeat=2)], 0.2, method="inverted_cdf")
    stretch = math.sqrt(2) * stats.t.ppf(0.8, 1) / stats.norm.ppf(0.8)
    monkeypatch.setattr(paired_comparison, "RESAMPLES", 200_000)
    expected = gains.mean() - stretch * (gains.mean() - exact)
    assert interval(gains, 4, 0.8)[0] == pytest.approx(expected, abs=0.05)


def test_a_block_is_as_long_as_the_gains_resemble_their_neighbours() -> None:
    white, similar = np.random.default_rng(0).normal(size=5000), persistent(5000, 0, 0.99)
    assert block_length(white) == math.ceil(math.sqrt(5000))
    assert block_length(similar) > 2 * block_length(white)
    assert block_length(np.ones(100)) == SHORTEST_BLOCK
    assert block_length(white[100:135]) == 8, "four blocks are left"
    assert block_length(similar[:35]) == 11, "three, where neighbours resemble each other"


def test_of_cases_that_are_known_to_be_independent_the_blocks_are_as_short_as_time_allows() -> None:
    white, similar = np.random.default_rng(0).normal(size=5000), persistent(5000, 0, 0.99)
    assert block_length(white[:100], 1) == 1 and block_length(white[:100], 4) == 4
    assert block_length(white, 1) == 5000 // MOST_BLOCKS
    assert block_length(similar, 1) == block_length(similar), "what the gains show counts, whatever was said"


def test_half_the_error_wins_and_a_thousandth_less_does_not() -> None:
    errors = np.random.default_rng(0).normal(size=200) ** 2
    assert compare(0.5 * errors, errors, "smaller", RULE).wins
    found = compare(0.999 * errors, errors, "smaller", RULE)
    assert not found.wins and 0 < found.lower_end < found.required, "better, but by less than the margin"


def test_a_reward_of_either_sign_is_compared() -> None:
    rewards = np.random.default_rng(0).normal(-10, 1, 300)
    assert compare(rewards + 1, rewards, "larger", RULE).wins
    assert not compare(rewards - 1, rewards, "larger", RULE).wins


SIMULATIONS = {f"{family}-{kind}": simulation for family, kinds in FAMILIES.items()
               for kind, simulation in kinds.items() if not isinstance(simulation, Traded)}


@pytest.mark.parametrize("name", SIMULATIONS)
def test_an_equal_model_wins_in_less_than_5_percent(name: str) -> None:
    """docs/benchmarks/promotion.md has up to 5,000 cases and 500 pairs."""
    rng, simulation = np.random.default_rng(35), SIMULATIONS[name]
    won = sum(compare(*simulation.draw(35, 0.0, rng), simulation.better, RULE, block=simulation.block).wins
              for _ in range(100))
    assert won < 5


def test_single_rows_instead_of_blocks_would_let_an_equal_model_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the blocks are for: the same errors, drawn row by row."""
    monkeypatch.setattr(paired_comparison, "block_length", lambda gains, known: 1)
    simulation, rng = FAMILIES["errors"]["every_window"], np.random.default_rng(0)
    won = sum(compare(*simulation.draw(150, 0.0, rng), "smaller", RULE).wins for _ in range(100))
    assert won > 10


@pytest.mark.parametrize(("challenger", "champion", "message"), [
    ([1.0] * 7, [1.0] * 7, "at least 8 cases to compare two models, got 7"),
    ([1.0] * 9, [1.0] * 8, "of the same cases"),
    ([[1.0] * 9], [[1.0] * 9], "of the same cases"),
    ([1.0] * 8 + [math.nan], [1.0] * 9, "finite numbers, got one that is not"),
    ([1.0] * 9, [1.0] * 8 + [math.inf], "finite numbers, got one that is not"),
    ([1.0] * 9, [1e308] * 9, "finite mean and a finite interval"),
    ([1e308] * 9, [1e308] * 9, "finite mean and a finite interval"),
    ([-1e308] * 9, [1e308] * 9, "finite mean and a finite interval"),
])
def test_scores_that_cannot_be_compared_are_refused(challenger: Any, champion: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(challenger, champion, "smaller", RULE)


@settings(deadline=None, max_examples=25)
@given(hnp.arrays(np.float64, st.integers(MINIMUM_CASES, 60), elements=st.integers(-1000, 1000)), st.integers(0, 99),
       st.integers(-(10**6), 10**6))
def test_where_the_zero_of_a_reward_lies_does_not_matter(rewards: np.ndarray, seed: int, zero: int) -> None:
    """A margin that is a share of the mean would move with it."""
    other = np.random.default_rng(seed).permutation(rewards)
    one, two = (compare(other + moved, rewards + moved, "larger", RULE) for moved in (0.0, float(zero)))
    assert two.required == pytest.approx(one.required, rel=1e-6, abs=1e-6)
    assert two.lower_end == pytest.approx(one.lower_end, rel=1e-6, abs=1e-6)


def test_what_the_lower_end_must_exceed() -> None:
    rule = ComparisonRule(0.1, 0.2, {"profit": 3.0})
    costs, rewards = np.array([1.0, 3.0]), np.array([-1.0, 3.0])
    assert required_gain(costs, costs, "smaller", rule, "cost") == (pytest.approx(0.2), "10 % of the champion's mean")
    assert required_gain(costs, costs, "larger", rule, "reward") == (
        pytest.approx(0.2), "20 % of the champion's spread")
    for new, old in ((rewards, costs), (costs, rewards)):
        assert required_gain(new, old, "smaller", rule, "cost")[1] == "20 % of the champion's spread"
    assert required_gain(costs, rewards, "larger", rule, "profit") == (3.0, "minimum_gain of profit")


@pytest.mark.parametrize(("values", "message"), [
    ({"minimum_improvement": -0.01}, "minimum_improvement: expected a number from 0, got -0.01"),
    ({"minimum_improvement_of_spread": math.nan}, "minimum_improvement_of_spread: expected a number from 0, got nan"),
    ({"confidence": 1}, "confidence: expected a number from 0.8 to below 1, got 1"),
    ({"confidence": True}, "confidence: expected a number"),
    ({"minimum_gain": 0.5}, "minimum_gain: expected a mapping of a metric to an amount"),
    ({"minimum_gain": {"mean_reward": -1}}, "minimum_gain.mean_reward: expected a number from 0, got -1"),
    ({"minimum_gain": {"mean_reward": "1e-4"}}, "minimum_gain.mean_reward: expected a number from 0"),
    ({"minimum_gain": {3: 1.0}}, "minimum_gain.3: expected"),
])
def test_a_rule_that_means_nothing_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ComparisonRule(**values)


def test_it_says_what_it_found_with_units_interval_and_cases() -> None:
    found = Comparison(1.5, 2.0, 0.5, 0.1, 0.9, 0.02, "1 % of the champion's mean", 0.99, 1060, 10)
    assert found.sentence("squared error", "ms²") == (
        "mean squared error 1.5 ms² against the champion's 2 ms², improvement +0.5 ms² [+0.1, +0.9] over 1,060 cases "
        "(each end at 99 %); the lower end must exceed 0.02 ms², 1 % of the champion's mean")
