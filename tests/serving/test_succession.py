"""Paired cases that cannot be read, or are others, never make a champion."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import RefusedError, UnavailableError
from models.configuration import PromotionRule
from models.paired_cases import Cases
from models.paired_comparison import ComparisonRule
from serving.bundle import Bundle, open_bundle
from serving.succession import bundle_cases, decide
from tests.serving.measured import SPAN, TEST_ROWS, cases, measured_champion, squared_errors

RULE = PromotionRule()
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5)


@pytest.fixture(scope="module")
def better(bundle_writer: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Half of the champion's mean squared error."""
    return open_bundle(bundle_writer(tmp_path_factory.mktemp("better") / "bundle", test_mse=0.5))


@pytest.fixture(scope="module")
def champion(bundle_writer: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return open_bundle(bundle_writer(tmp_path_factory.mktemp("champion") / "bundle", slope=9.0))


def test_a_better_one_wins_by_what_the_gates_measured_or_by_the_champions_own_evidence(
    better: Bundle, champion: Bundle
) -> None:
    for measured in (measured_champion(3, 1.0), {**measured_champion(3, 1.0), "version": "3"}, None,
                     measured_champion(2, 1e-6)):  # of a version that is champion no more
        found = decide(better, 3, measured, lambda version: champion, RULE)
        assert found.wins, found.reason
        assert found.reason.startswith(
            "better_than_champion holds against version 3, attempt 1: mean squared error 2 "
            "ms² against the champion's 4 ms², improvement +2 ms² [+"), found.reason
        assert "] over 60 cases (each end at 99.5 %); the lower end must exceed 0.04 ms², 1 % of the" in found.reason


def test_without_a_champion_nothing_is_asked(better: Bundle) -> None:
    def never(version: int) -> Bundle:
        raise AssertionError("not to be asked")

    assert decide(better, None, measured_champion(3, 0.0), never, RULE).wins


def test_the_margin_of_the_configuration_decides(better: Bundle, champion: Bundle) -> None:
    """Better by half, at least by 31.6 % of the champion's mean error on these 60 rows."""
    for margin, wins in ((0.31, True), (0.32, False)):
        rule = PromotionRule(ComparisonRule(minimum_improvement=margin))
        assert decide(better, 3, measured_champion(3, 1.0), lambda version: champion, rule).wins is wins


def test_a_champion_that_cannot_be_opened_is_not_replaced(better: Bundle) -> None:
    def gone(version: int) -> Bundle:
        raise RefusedError("its artifacts were exchanged")

    found = decide(better, 3, measured_champion(3, 1.0), gone, RULE)
    assert (found.wins, found.reason) == (
        False, "champion version 3 cannot be compared: its artifacts were exchanged")


def test_a_champion_whose_store_is_away_makes_no_challenger(better: Bundle) -> None:
    def away(version: int) -> Bundle:
        raise UnavailableError("registry must give a bundle, got nothing")

    with pytest.raises(UnavailableError):
        decide(better, 3, None, away, PromotionRule())


def test_each_attempt_against_one_champion_is_let_in_on_less(better: Bundle, champion: Bundle) -> None:
    """All attempts together must err with 1 - confidence at most: their ends are at 1 - 0.01 / (k (k + 1))."""
    rule = PromotionRule(ComparisonRule(minimum_improvement=0.2))
    found = [decide(better, 3, measured_champion(3, 1.0), lambda version: champion, rule, attempt)
             for attempt in (1, 2, 40)]
    assert [one.wins for one in found] == [True, True, False]
    for one, level, attempt in zip(found, ("99.5", "99.83333", "99.99939"), (1, 2, 40), strict=True):
        assert f"attempt {attempt}: " in one.reason and f"each end at {level} %" in one.reason


@pytest.mark.parametrize("seen", [[0], list(range(0, TEST_ROWS, 4))])
def test_cases_that_the_champion_was_trained_on_decide_nothing(
        better: Bundle, champion: Bundle, seen: list[int]) -> None:
    """It is perfect there, having learned them by heart; on all others the new version is better by half."""
    whole = cases(1.0)
    unseen = [value for place, value in enumerate(whole["values"]) if place not in seen]
    measured = {"version": 3, "metrics": {"test_mse": sum(unseen) / len(unseen) / SPAN**2},
                "cases": {**whole, "values": unseen}, "left_out": seen}
    found = decide(better, 3, measured, lambda version: champion, RULE)
    assert f"over {TEST_ROWS - len(seen)} cases" in found.reason
    assert f"{len(seen)} cases that version 3 was trained on are left out" in found.reason
    assert found.wins, found.reason
    all_of_them = {**measured, "cases": {**whole, "values": [0.0 if place in seen else value for place, value
                                                             in enumerate(whole["values"])]}}
    assert not decide(better, 3, all_of_them, lambda version: champion, RULE).wins, "its cases are not those named"


@pytest.mark.parametrize("places", [[TEST_ROWS], [-1], [0.0], [True], "0", {"0": 1}, [[0]], list(range(TEST_ROWS))])
def test_places_of_no_cases_win_nothing(better: Bundle, champion: Bundle, places: Any) -> None:
    found = decide(better, 3, {**measured_champion(3, 1.0), "left_out": places}, lambda version: champion, RULE)
    assert not found.wins and "better_than_champion does not hold" in found.reason


def test_where_nothing_can_be_claimed_a_version_stays_challenger(better: Bundle, champion: Bundle) -> None:
    measured = {**measured_champion(3, 1.0), "unclaimed": "it was trained on 50 of the 60 test rows"}
    found = decide(better, 3, measured, lambda version: champion, RULE)
    assert (found.wins, found.reason) == (
        False, "nothing is claimed about champion version 3: it was trained on 50 of the 60 test rows")


UNUSABLE = [None, [], {}, "0.1", [math.nan], [math.inf], [None], ["0.1"], [True], [[0.1]], [0.1] * (TEST_ROWS - 1),
            [1e200] * TEST_ROWS, [0.1] * 3, [10**400] * TEST_ROWS, [10.0] * TEST_ROWS]


@pytest.mark.parametrize("broken", UNUSABLE, ids=lambda value: repr(value)[:20])
def test_cases_of_the_champion_that_cannot_be_used_win_nothing(
    better: Bundle, champion: Bundle, broken: Any
) -> None:
    measured = {**measured_champion(3, 1.0), "cases": {**cases(1.0), "values": broken}}
    found = decide(better, 3, measured, lambda version: champion, RULE)
    assert not found.wins and "better_than_champion does not hold" in found.reason


@given(values=JSON, digest=JSON, version=JSON)
def test_any_json_as_what_was_measured_gives_a_decision(
    better: Bundle, champion: Bundle, values: Any, digest: Any, version: Any
) -> None:
    for broken in (values, {**cases(1.0), "values": values}, {**cases(1.0), "sha256": digest}):
        measured = {"version": version, "metrics": {"test_mse": 1.0}, "cases": broken}
        wins = decide(better, 3, measured, lambda number: champion, RULE).wins
        assert wins == (str(version) != "3"), "of another version: the champion's own evidence counts"


@pytest.mark.parametrize("broken", [*UNUSABLE, [10**400] * TEST_ROWS, [1e154] * TEST_ROWS, [1e-6] * TEST_ROWS,
                                    squared_errors(0.5) * 2, squared_errors(0.50001)],
                         ids=lambda value: repr(value)[:20])
def test_cases_that_do_not_bear_the_metric_win_nothing(
    better: Bundle, champion: Bundle, broken: Any
) -> None:
    contradicting = replace(better, evidence={**better.evidence, "cases": {**cases(0.5), "values": broken}})
    found = decide(contradicting, 3, measured_champion(3, 1.0), lambda version: champion, RULE)
    assert not found.wins and "better_than_champion does not hold: cases" in found.reason


def test_a_bundles_cases_are_those_of_its_evidence(better: Bundle) -> None:
    assert bundle_cases(better) == Cases("squared error", "test_mse", "smaller", "ms²", tuple(squared_errors(0.5)),
                                         cases(0.5)["sha256"], scale=SPAN**2)


def with_rewards(bundle: Bundle, rewards: list[float]) -> Bundle:
    """The bundle of a controller: a reward an episode."""
    episodes = {"quantity": "reward per episode", "metric": "mean_reward", "better": "larger", "unit": "EUR",
                "values": rewards, "sha256": "ab" * 32, "scale": 1.0, "block": 1}
    evidence = {"metrics": {"mean_reward": sum(rewards) / len(rewards)}, "case_counts": {"mean_reward": len(rewards)},
                "cases": episodes}
    return replace(bundle, evidence={**bundle.evidence, **evidence})


@pytest.mark.parametrize(("gain", "wins"), [(0.5, True), (0.0, False), (0.019, False), (-0.5, False)])
def test_rewards_below_zero_decide_as_errors_do(better: Bundle, champion: Bundle, gain: float, wins: bool) -> None:
    """Spread of the champion's rewards: 2 EUR, so that 0.02 EUR are asked; the gain is the same in every episode."""
    rewards = [-12.0, -8.0] * 50
    new, old = with_rewards(better, [reward + gain for reward in rewards]), with_rewards(champion, rewards)
    measured = {"version": 3, **{key: old.evidence[key] for key in ("metrics", "cases")}}
    for one in (measured, None):
        found = decide(new, 3, one, lambda version: old, RULE)
        assert found.wins is wins, found.reason
        assert "mean reward per episode" in found.reason and "over 100 cases" in found.reason
        assert "the lower end must exceed 0.02 EUR, 1 % of the champion's spread" in found.reason
    stated = PromotionRule(ComparisonRule(minimum_gain={"mean_reward": 0.6}))
    assert not decide(new, 3, measured, lambda version: old, stated).wins


def test_rewards_are_not_compared_with_errors(better: Bundle, champion: Bundle) -> None:
    found = decide(with_rewards(better, [1.0] * 60), 3, None, lambda version: champion, RULE)
    assert not found.wins and "was not measured on the same cases" in found.reason
