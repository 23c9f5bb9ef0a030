"""Cases and the metric beside them tell one story, or are refused; only the same cases are compared."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.paired_cases import MOST_RECORDED, Cases, checked_cases, recorded, same_cases

DIGEST = "ab" * 32
REWARDS = tuple(float(value) for value in np.random.default_rng(5).normal(size=50))
EPISODES = Cases("reward per episode", "mean_reward", "larger", "EUR", REWARDS, DIGEST, block=1)
ERRORS = Cases("squared error", "test_mse", "smaller", "ms²", tuple(value**2 for value in REWARDS), DIGEST, scale=16.0)
METRICS = {"mean_reward": float(np.mean(REWARDS)), "test_mse": float(np.mean(np.square(REWARDS) / 16))}
COUNTS = {"mean_reward": 50, "test_mse": 50}


@pytest.mark.parametrize("cases", [EPISODES, ERRORS])
def test_what_was_measured_together_is_read_back(cases: Cases) -> None:
    data = json.loads(json.dumps(cases.to_json(), allow_nan=False))
    assert Cases.from_json(data) == cases == checked_cases(data, METRICS, COUNTS)
    nearly = {cases.metric: METRICS[cases.metric] * (1 + 9e-7)}
    assert checked_cases(data, nearly, COUNTS) == cases


def test_rewards_whose_mean_is_zero_are_held_to_their_size() -> None:
    data = replace(EPISODES, values=(-5.0, 5.0)).to_json()
    assert checked_cases(data, {"mean_reward": 4e-6}, {"mean_reward": 2}).values == (-5.0, 5.0)
    with pytest.raises(InputError, match="expected the mean mean_reward, 6e-06, got 0"):
        checked_cases(data, {"mean_reward": 6e-6}, {"mean_reward": 2})
    assert checked_cases({**data, "values": [0, 0]}, {"mean_reward": 0}, {"mean_reward": 2}).values == (0.0, 0.0)


def test_of_more_cases_than_are_recorded_only_the_number_can_be_held_to_it() -> None:
    kept = recorded(np.linspace(-1.0, 1.0, 3 * MOST_RECORDED).tolist())
    data = replace(EPISODES, values=kept).to_json()
    assert len(checked_cases(data, {"mean_reward": 0.1}, {"mean_reward": 3 * MOST_RECORDED}).values) == MOST_RECORDED
    with pytest.raises(InputError, match="one value for each of the 60000 cases of mean_reward"):
        checked_cases({**data, "values": kept[:-1]}, {"mean_reward": 0.1}, {"mean_reward": 3 * MOST_RECORDED})


def test_of_very_many_cases_some_are_recorded_spread_evenly() -> None:
    assert recorded([0, 1, 2, 3, 4]) == (0, 1, 2, 3, 4) and recorded([7]) == (7,) and recorded([]) == ()
    many = recorded(range(10 * MOST_RECORDED))
    assert len(many) == len(set(many)) == MOST_RECORDED and many[0] == 0 and many[-1] == 10 * MOST_RECORDED - 1
    assert set(np.diff(many)) <= {10, 11}


@pytest.mark.parametrize(("changes", "metrics", "counts", "message"), [
    ({}, {"test_mse": METRICS["test_mse"] * (1 + 2e-6)}, COUNTS, "expected the mean test_mse"),
    ({"scale": 1.0}, METRICS, COUNTS, "expected the mean test_mse"),
    ({}, {"test_mse": None}, COUNTS, "expected the mean test_mse, no number"),
    ({}, {"mean_reward": 1.0}, COUNTS, "expected the mean test_mse, no number"),
    ({}, None, COUNTS, "expected the mean test_mse, no number"),
    ({"values": [1e308] * 50}, METRICS, COUNTS, "got inf"),
    ({"values": ERRORS.values[:-1]}, METRICS, COUNTS, "one value for each of the 50 cases of test_mse .*got 49"),
    ({}, METRICS, {"test_mse": 49}, "one value for each of the 49 cases"),
    ({}, METRICS, {"test_mse": 50.0}, "unknown number of cases"),
    ({}, METRICS, {"test_mse": True}, "one value for each of"),
    ({}, METRICS, {"mean_reward": 50}, "unknown number of cases"),
    ({}, METRICS, None, "unknown number of cases"),
])
def test_cases_that_contradict_the_metric_are_refused(
    changes: dict[str, Any], metrics: Any, counts: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        checked_cases({**ERRORS.to_json(), **changes}, metrics, counts)


@pytest.mark.parametrize(("key", "value", "message"), [
    ("values", [], "expected 1 to 20000 numbers, got 0"),
    ("values", [0.0] * (MOST_RECORDED + 1), "expected 1 to 20000 numbers, got 20001"),
    ("values", None, "expected a list of numbers, got None"),
    ("values", "12", "expected a list of numbers"),
    ("values", [10**400], "expected finite numbers"),
    ("values", [float("nan")], "expected finite numbers"),
    ("values", [True], "expected finite numbers"),
    ("better", "bigger", "cases.better: expected smaller or larger, got 'bigger'"),
    ("metric", "", "cases.metric: expected a text"),
    ("unit", None, "cases.unit: expected a text"),
    ("quantity", 3, "cases.quantity: expected a text"),
    ("sha256", "test set 5", "cases.sha256: expected 64 hexadecimal digits"),
    ("sha256", None, "cases.sha256: expected 64 hexadecimal digits"),
    ("scale", 0, "cases.scale: expected a finite number above 0"),
    ("scale", "1", "cases.scale: expected a finite number above 0"),
    ("scale", float("inf"), "cases.scale: expected a finite number above 0"),
    ("block", 0, "cases.block: expected a whole number from 1 or null"),
    ("block", 1.0, "cases.block: expected a whole number from 1 or null"),
    ("block", True, "cases.block: expected a whole number from 1 or null"),
    ("blok", 3, "unknown key 'blok'; did you mean 'block'"),
])
def test_cases_that_cannot_be_read_are_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Cases.from_json({**ERRORS.to_json(), key: value})


@pytest.mark.parametrize("key", list(ERRORS.to_json()))
def test_every_key_must_be_given(key: str) -> None:
    data = ERRORS.to_json()
    del data[key]
    with pytest.raises(InputError, match=f"expected the key '{key}'"):
        Cases.from_json(data)


def test_the_same_cases_are_the_same_in_digest_quantity_and_number() -> None:
    other = replace(ERRORS, values=tuple(reversed(ERRORS.values)), scale=4.0)
    assert same_cases(ERRORS, other), "another model's, which was trained with another scaling"
    for changes in ({"sha256": "cd" * 32}, {"unit": "s²"}, {"metric": "test_mae"}, {"quantity": "error"},
                    {"better": "larger"}, {"values": ERRORS.values[:-1]}):
        assert not same_cases(ERRORS, replace(ERRORS, **changes))  # type: ignore[arg-type]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5)


@given(key=st.sampled_from(list(ERRORS.to_json())), value=JSON, whole=JSON)
def test_any_json_is_read_or_refused_and_nothing_else(key: str, value: Any, whole: Any) -> None:
    for data in ({**ERRORS.to_json(), key: value}, whole):
        try:
            cases = Cases.from_json(data)
        except InputError as error:
            assert "\n" not in str(error)
            continue
        assert Cases.from_json(json.loads(json.dumps(cases.to_json(), allow_nan=False))) == cases
