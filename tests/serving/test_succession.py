"""Errors of single rows that cannot be read, or are of other rows, never make a champion."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import RefusedError
from models.configuration import PromotionRule
from models.paired_comparison import ComparisonRule
from serving.bundle import Bundle, open_bundle
from serving.succession import RowErrors, decide, own_errors
from tests.serving.measured import TEST_ROWS, TEST_SET, measured_champion, residuals

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
        assert "better_than_champion holds against version 3: mean squared error, improvement +50 %" in found.reason


def test_without_a_champion_nothing_is_asked(better: Bundle) -> None:
    def never(version: int) -> Bundle:
        raise AssertionError("not to be asked")

    assert decide(better, None, measured_champion(3, 0.0), never, RULE).wins


def test_the_margin_of_the_configuration_decides(better: Bundle, champion: Bundle) -> None:
    """Better by half, at least by 37 % of the champion's mean error on these 60 rows."""
    for margin, wins in ((0.36, True), (0.38, False)):
        rule = PromotionRule(ComparisonRule(minimum_improvement=margin))
        assert decide(better, 3, measured_champion(3, 1.0), lambda version: champion, rule).wins is wins


def test_a_champion_that_cannot_be_opened_is_not_replaced(better: Bundle) -> None:
    def gone(version: int) -> Bundle:
        raise RefusedError("its artifacts were exchanged")

    found = decide(better, 3, measured_champion(3, 1.0), gone, RULE)
    assert (found.wins, found.reason) == (
        False, "champion version 3 cannot be compared: its artifacts were exchanged")


UNUSABLE = [None, [], {}, "0.1", [math.nan], [math.inf], [None], ["0.1"], [True], [[0.1]], [0.1] * (TEST_ROWS - 1),
            [1e200] * TEST_ROWS, [0.1] * 3, [10**400] * TEST_ROWS, [10.0] * TEST_ROWS]


@pytest.mark.parametrize("broken", UNUSABLE, ids=lambda value: repr(value)[:20])
def test_residuals_of_the_champion_that_cannot_be_used_win_nothing(
    better: Bundle, champion: Bundle, broken: Any
) -> None:
    measured = {**measured_champion(3, 1.0), "residuals": broken}
    found = decide(better, 3, measured, lambda version: champion, RULE)
    assert not found.wins and "better_than_champion does not hold" in found.reason


@given(residuals=JSON, digest=JSON, version=JSON)
def test_any_json_as_what_was_measured_gives_a_decision(
    better: Bundle, champion: Bundle, residuals: Any, digest: Any, version: Any
) -> None:
    measured = {"version": version, "residuals": residuals, "test_sha256": digest}
    wins = decide(better, 3, measured, lambda number: champion, RULE).wins
    assert wins == (str(version) != "3"), "of another version: the champion's own evidence counts"


@pytest.mark.parametrize("broken", [*UNUSABLE, [10**400] * TEST_ROWS, [1e154] * TEST_ROWS, [1e-6] * TEST_ROWS,
                                    residuals(0.5) * 2, residuals(0.50001)], ids=lambda value: repr(value)[:20])
def test_errors_of_its_own_that_do_not_bear_its_metrics_win_nothing(
    better: Bundle, champion: Bundle, broken: Any
) -> None:
    contradicting = replace(better, evidence={**better.evidence, "test": {"residuals": broken}})
    found = decide(contradicting, 3, measured_champion(3, 1.0), lambda version: champion, RULE)
    assert not found.wins and "better_than_champion does not hold: errors of single test rows" in found.reason


def test_own_errors_are_those_of_the_evidence_on_its_test_set(better: Bundle) -> None:
    assert own_errors(better) == RowErrors(TEST_SET, tuple(residuals(0.5)))
