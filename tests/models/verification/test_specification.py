"""The specification language: what it means, and what it says to whoever writes it wrong."""

import math
from typing import Any

import numpy as np
import pytest
import yaml

from feature_store.errors import InputError
from models.verification.specification import (
    DEFAULT_TOLERANCE,
    Monotonicity,
    Specification,
    parse_specification,
)

NAMES = ("psi_cpu_some", "psi_io_full", "cpu_time")
BOX = {"psi_cpu_some": (0.0, 0.5), "psi_io_full": (0.1, 0.9), "cpu_time": (0.0, 1.0)}
RISING: list[Any] = [{"monotone": {"features": ["psi_io_full", "psi_cpu_some"], "direction": "increasing"}}]


def parse(**fields: Any) -> Specification:
    return parse_specification({"properties": RISING, **fields}, NAMES, BOX, "here")


def rule(**fields: Any) -> list[Any]:
    return [{"monotone": {"features": ["cpu_time"], **fields}}]


def test_a_specification_is_read_with_its_default_box_and_tolerance() -> None:
    found = parse()
    assert found.feature_names == NAMES
    assert found.lower.tolist() == [0.0, 0.1, 0.0] and found.upper.tolist() == [0.5, 0.9, 1.0]
    assert found.properties == (Monotonicity((0, 1), "increasing"),)
    assert found.tolerance == DEFAULT_TOLERANCE
    assert found.queries == ((0, 1), (1, 1))


def test_a_named_feature_takes_its_own_walls_and_the_others_the_default() -> None:
    found = parse(box={"cpu_time": [0.25, 0.75]})
    assert found.lower.tolist() == [0.0, 0.1, 0.25] and found.upper.tolist() == [0.5, 0.9, 0.75]


def test_several_properties_make_distinct_queries_in_order() -> None:
    found = parse(properties=[*RISING, *rule(direction="decreasing"), *rule(direction="decreasing")])
    assert found.queries == ((0, 1), (1, 1), (2, -1))


def test_the_direction_is_increasing_where_none_is_given() -> None:
    assert parse(properties=rule()).queries == ((2, 1),)


def test_the_statement_names_direction_features_and_tolerance() -> None:
    text = parse(properties=[*RISING, *rule(direction="decreasing")], tolerance=0.001).statement
    assert "increasing in psi_cpu_some, psi_io_full; decreasing in cpu_time" in text
    assert "0.001" in text and "real arithmetic" in text


def test_the_documented_yaml_parses() -> None:
    text = """
    tolerance: 1.0e-4
    box: {psi_cpu_some: [0, 1]}
    properties:
      - monotone: {features: [psi_cpu_some, psi_io_full], direction: increasing}
    """
    found = parse_specification(yaml.safe_load(text), NAMES, BOX, "here")
    assert found.upper[0] == 1.0 and found.tolerance == 1e-4


def test_a_tolerance_that_yaml_reads_as_text_is_a_number() -> None:
    assert yaml.safe_load("tolerance: 1e-3") == {"tolerance": "1e-3"}
    assert parse(tolerance="1e-3").tolerance == 1e-3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tolerence": 1}, r"field must be known, got 'tolerence' \(here\); did you mean 'tolerance'\?"),
        ({5: 1}, "field must be known, got 5"),
        ({"box": {"psi_cpu": [0, 1]}}, r"got 'psi_cpu' \(here\); did you mean 'psi_cpu_some'\?"),
        ({"box": [0, 1]}, "box must be a mapping"),
        ({"box": "ab"}, "box must be a mapping"),
        ({"box": {"cpu_time": 1}}, r"box must give \[lower, upper\], got 1 \(here: feature 'cpu_time'\)"),
        ({"box": {"cpu_time": [0, 1, 2]}}, r"box must give \[lower, upper\]"),
        ({"box": {"cpu_time": "01"}}, r"box must give \[lower, upper\]"),
        ({"box": {"cpu_time": ["low", 1]}}, "wall of the box must be a number, got 'low'"),
        ({"box": {"cpu_time": [None, 1]}}, "wall of the box must be a number, got None"),
        ({"box": {"cpu_time": [True, 2]}}, "wall of the box must be a number, got True"),
        ({"box": {"cpu_time": [0.75, 0.25]}}, r"lower <= upper, got \[0.75, 0.25\] \(feature 'cpu_time'\) \(here\)"),
        ({"box": {"cpu_time": [0, math.inf]}}, "box must be bounded"),
        ({"box": {"cpu_time": [math.nan, 1]}}, "box must be bounded"),
        ({"tolerance": -1e-9}, r"tolerance must be a number >= 0, got -1e-09 \(here\)"),
        ({"tolerance": math.nan}, "tolerance must be a number >= 0"),
        ({"tolerance": math.inf}, "tolerance must be a number >= 0"),
        ({"tolerance": "small"}, "tolerance must be a number, got 'small'"),
        ({"tolerance": None}, "tolerance must be a number, got None"),
        ({"tolerance": [1]}, "tolerance must be a number"),
        ({"properties": []}, r"specification must have at least one property, got none \(here\)"),
        ({"properties": None}, "at least one property"),
        ({"properties": "monotone"}, "properties must be a list"),
        ({"properties": {"monotone": {}}}, "properties must be a list"),
        ({"properties": ["monotone"]}, "property must be a mapping with one kind"),
        ({"properties": [{"monotone": {}, "range": {}}]}, "property must be a mapping with one kind"),
        ({"properties": [{"monotonic": {}}]}, "got 'monotonic' .*did you mean 'monotone'"),
        ({"properties": [{"monotone": ["cpu_time"]}]}, "property must have features and a direction"),
        ({"properties": [{"monotone": None}]}, "property must have features and a direction"),
        ({"properties": rule(feature="cpu_time")}, "got 'feature' .*did you mean 'features'"),
        ({"properties": [{"monotone": {"features": [], "direction": "increasing"}}]}, "at least one name"),
        ({"properties": [{"monotone": {"features": "cpu_time"}}]}, "features must be a list"),
        ({"properties": [{"monotone": {"direction": "increasing"}}]}, "features must be a list"),
        ({"properties": [{"monotone": {"features": ["cpu_tim"]}}]},
         r"feature must be an input of the model, got 'cpu_tim' \(here\); did you mean 'cpu_time'\?"),
        ({"properties": [{"monotone": {"features": [{"a": 1}]}}]}, "feature must be an input of the model"),
        ({"properties": rule(direction="up")}, "direction must be increasing or decreasing, got 'up'"),
        ({"properties": [*RISING, {"monotone": {"features": ["psi_io_full"], "direction": "decreasing"}}]},
         r"directions must not contradict.*'psi_io_full'"),
    ],
)
def test_a_mistake_is_named_with_its_place(fields: dict[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_specification({"properties": RISING, **fields}, NAMES, BOX, "here")


@pytest.mark.parametrize("data", [None, [], "text", 5])
def test_a_specification_that_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(InputError, match="specification must be a mapping"):
        parse_specification(data, NAMES, BOX, "here")


@pytest.mark.parametrize(
    ("lower", "upper", "features", "message"),
    [
        (np.zeros(2), np.ones(3), (0,), "3 lower and upper bounds"),
        (np.zeros((3, 1)), np.ones(3), (0,), "3 lower and upper bounds"),
        (np.zeros(3), np.ones(3), (3,), r"feature index must be in 0..2, got 3"),
        (np.zeros(3), np.ones(3), (-1,), r"feature index must be in 0..2, got -1"),
        (np.ones(3), np.zeros(3), (0,), "lower <= upper"),
    ],
)
def test_a_specification_built_by_hand_is_checked_too(lower, upper, features, message) -> None:
    with pytest.raises(InputError, match=message):
        Specification(NAMES, lower, upper, (Monotonicity(features, "increasing"),))


def test_walls_may_coincide() -> None:
    assert parse(box={"cpu_time": [0.5, 0.5]}).lower[2] == 0.5
