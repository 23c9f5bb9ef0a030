"""What training saw, as a contract says it: what is read and refused, and what is out of distribution."""

import math
from typing import Any

import numpy as np
import pytest

from feature_store.errors import InputError
from serving.seen_spec import Familiar, seen_spec

LOAD: dict[str, Any] = {"name": "load a core", "scale": "log", "terms": {"rate": 1.0, "cores": -1.0}, "minimum": 10.0,
                        "maximum": 100.0}
SHARE: dict[str, Any] = {"name": "served", "scale": "linear", "terms": {"served": 1.0}, "minimum": 0.5,
                         "maximum": 1.0}
GOOD: dict[str, Any] = {"margin": 1.5, "ranges": [LOAD, SHARE]}
INPUTS = ["rate", "cores", "served"]
WIDTHS = {"rate": 1000.0, "cores": 16.0, "served": 1.0}
ROW = {"rate": 50.0, "cores": 2.0, "served": 0.9}


def _familiar(**change: Any) -> Familiar:
    return Familiar(seen_spec({**GOOD, **change}, INPUTS), WIDTHS)


def test_what_is_written_is_read_back() -> None:
    assert seen_spec(GOOD, INPUTS).to_json() == GOOD
    assert seen_spec({"margin": 1, "ranges": []}, INPUTS).ranges == ()


@pytest.mark.parametrize(("change", "message"), [
    ({"more": 1}, "seen must have the keys margin, ranges"),
    ({"margin": 0.9}, "margin must be a number >= 1"),
    ({"margin": math.inf}, "margin must be a number >= 1"),
    ({"margin": True}, "margin must be a number >= 1"),
    ({"ranges": {}}, "ranges must be a list"),
    ({"ranges": [LOAD, LOAD]}, "ranges must have a name each"),
    ({"ranges": [{**LOAD, "more": 1}]}, "range must have the keys"),
    ({"ranges": [{**LOAD, "name": ""}]}, "name of a range"),
    ({"ranges": [{**LOAD, "scale": "square"}]}, "scale must be log or linear"),
    ({"ranges": [{**LOAD, "terms": {"other": 1.0}}]}, "terms must be inputs"),
    ({"ranges": [{**LOAD, "terms": {}}]}, "terms must be inputs"),
    ({"ranges": [{**LOAD, "terms": {"rate": math.nan}}]}, "terms must be inputs"),
    ({"ranges": [{**LOAD, "minimum": 0.0}]}, "above 0 where the scale is log"),
    ({"ranges": [{**LOAD, "minimum": 200.0}]}, "finite numbers in order"),
    ({"ranges": [{**LOAD, "maximum": 10**400}]}, "finite numbers in order"),
])
def test_anything_else_is_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        seen_spec({**GOOD, **change}, INPUTS)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("change", "names"), [
    ({}, []),
    ({"rate": 299.0}, []),  # 149.5 a core: within the margin of 1.5
    ({"rate": 301.0}, ["load a core"]),
    ({"rate": 13.5}, []),
    ({"rate": 13.0}, ["load a core"]),
    ({"served": 0.451}, []),  # 5 % of what it can be
    ({"served": 0.449}, ["served"]),
    ({"served": 0.1, "rate": 0.0}, ["load a core", "served"]),
    ({"rate": math.nan}, []),  # nobody knows: another check's
    ({"rate": math.nan, "served": 0.1}, ["served"]),
])
def test_what_lies_beyond_range_and_margin_is_strange(change: dict[str, float], names: list[str]) -> None:
    assert sorted(_familiar().strange(ROW | change)) == names


def test_a_phrase_names_range_value_and_what_was_seen() -> None:
    assert _familiar().strange(ROW | {"rate": 1000.0}) == {
        "load a core": "out of distribution: load a core is 500, training saw 10 to 100"}


def test_an_operators_margin_and_inputs_that_count_for_nothing() -> None:
    far = ROW | {"rate": 1000.0}
    assert _familiar().strange(far, margin=5.1) == {}
    assert _familiar().strange(far, ignored=("cores",)) == {}
    assert _familiar().strange(far, ignored=("served",)) != {}


def test_rows_are_held_against_all_ranges_at_once() -> None:
    rows = np.array([[50.0, 2.0, 0.9], [1000.0, 2.0, 0.1]])
    assert _familiar().beyond(rows).tolist() == [[False, False], [True, True]]
    assert _familiar(ranges=[]).beyond(rows).shape == (2, 0)
