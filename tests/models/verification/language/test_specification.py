"""The specification language: what it means, and what it says to whoever writes it wrong."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from feature_store.errors import InputError
from models.verification.language.properties import (
    InputValue,
    OutputOrder,
    OutputRange,
    Property,
    Robustness,
    Share,
)
from models.verification.language.specification import DEFAULT_TOLERANCE, Monotonicity, Specification
from models.verification.language.specification_language import parse_file, parse_specification, read_specification
from models.verification.network.graph import Graph, dense_graph

NAMES = ("psi_cpu_some", "psi_io_full", "cpu_time")
BOX = {"psi_cpu_some": (0.0, 0.5), "psi_io_full": (0.1, 0.9), "cpu_time": (0.0, 1.0)}
OUTPUTS = ("p50", "p99")
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


def test_a_number_that_yaml_reads_as_text_is_refused_with_how_to_write_it() -> None:
    assert yaml.safe_load("tolerance: 1e-3") == {"tolerance": "1e-3"}
    with pytest.raises(InputError, match=r"^tolerance: expected a number from 0, got '1e-3'; YAML reads 1e-3 as text, "
                                         r"write 1.0e-3 \(here\)$"):
        parse(tolerance="1e-3")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tolerence": 1}, r"tolerence: unknown field; did you mean 'tolerance'\? \(here\)"),
        ({5: 1}, r"\[5\]: expected a text as a name, got 5; write it in quotes \(here\)"),
        ({"box": {"psi_cpu": [0, 1]}},
         r"box.psi_cpu: expected an input of the model, got 'psi_cpu'; did you mean 'psi_cpu_some'\? \(here\)"),
        ({"box": [0, 1]}, r"box: expected a mapping, got \[0, 1\] \(here\)"),
        ({"box": "ab"}, r"box: expected a mapping, got 'ab' \(here\)"),
        ({"box": {"cpu_time": 1}}, r"box.cpu_time: expected \[lower, upper\], got 1 \(here\)"),
        ({"box": {"cpu_time": [0, 1, 2]}}, r"box.cpu_time: expected \[lower, upper\], got \[0, 1, 2\] \(here\)"),
        ({"box": {"cpu_time": "01"}}, r"box.cpu_time: expected \[lower, upper\], got '01' \(here\)"),
        ({"box": {"cpu_time": ["low", 1]}}, r"box.cpu_time\[0\]: expected a number, got 'low' \(here\)"),
        ({"box": {"cpu_time": [None, 1]}}, r"box.cpu_time\[0\]: expected a number, got nothing \(here\)"),
        ({"box": {"cpu_time": [True, 2]}}, r"box.cpu_time\[0\]: expected a number, got true \(here\)"),
        ({"box": {"cpu_time": [0.75, 0.25]}}, r"box.cpu_time: expected lower <= upper, got \[0.75, 0.25\] \(here\)"),
        ({"box": {"cpu_time": [0, math.inf]}}, r"box.cpu_time\[1\]: expected a number, got inf \(here\)"),
        ({"box": {"cpu_time": [math.nan, 1]}}, r"box.cpu_time\[0\]: expected a number, got nan \(here\)"),
        ({"tolerance": -1e-9}, r"tolerance: expected a number from 0, got -1e-09 \(here\)"),
        ({"tolerance": math.nan}, r"tolerance: expected a number from 0, got nan \(here\)"),
        ({"tolerance": math.inf}, r"tolerance: expected a number from 0, got inf \(here\)"),
        ({"tolerance": "small"}, r"tolerance: expected a number from 0, got 'small' \(here\)"),
        ({"tolerance": None}, r"tolerance: expected a number from 0, got nothing; leave the field out \(here\)"),
        ({"tolerance": [1]}, r"tolerance: expected a number from 0, got \[1\] \(here\)"),
        ({"properties": []}, r"properties: expected a list of at least 1 entry, got \[\] \(here\)"),
        ({"properties": None}, r"properties: expected a list of at least 1 entry, got nothing \(here\)"),
        ({"properties": "monotone"}, r"properties: expected a list of at least 1 entry, got 'monotone' \(here\)"),
        ({"properties": {"monotone": {}}},
         r"properties: expected a list of at least 1 entry, got \{'monotone': \{\}\} \(here\)"),
        ({"properties": ["monotone"]}, r"properties\[0\]: expected a mapping, got 'monotone' \(here\)"),
        ({"properties": [{"monotone": {}, "range": {}}]},
         r"properties\[0\].monotone: the field 'features' is missing \(here\)"),
        ({"properties": [{"monotone": RISING[0]["monotone"], "range": {"minimum": 0}}]},
         r"properties\[0\]: expected one kind \(monotone, range, order, robust, share\), got monotone, range \(here\)"),
        ({"properties": [{"monotonic": {}}]},
         r"properties\[0\].monotonic: unknown field; did you mean 'monotone'\? \(here\)"),
        ({"properties": [{"monotone": ["cpu_time"]}]},
         r"properties\[0\].monotone: expected a mapping, got \['cpu_time'\] \(here\)"),
        ({"properties": [{"monotone": None}]},
         r"properties\[0\].monotone: expected a mapping, got nothing; leave the field out \(here\)"),
        ({"properties": rule(feature="cpu_time")},
         r"properties\[0\].monotone.feature: unknown field; did you mean 'features'\? \(here\)"),
        ({"properties": [{"monotone": {"features": [], "direction": "increasing"}}]},
         r"properties\[0\].monotone.features: expected a list of at least 1 entry, got \[\] \(here\)"),
        ({"properties": [{"monotone": {"features": "cpu_time"}}]},
         r"properties\[0\].monotone.features: expected a list of at least 1 entry, got 'cpu_time' \(here\)"),
        ({"properties": [{"monotone": {"direction": "increasing"}}]},
         r"properties\[0\].monotone: the field 'features' is missing \(here\)"),
        ({"properties": [{"monotone": {"features": ["cpu_tim"]}}]},
         r"properties\[0\].monotone.features\[0\]: expected an input of the model, got 'cpu_tim'; did you mean "
         r"'cpu_time'\? \(here\)"),
        ({"properties": [{"monotone": {"features": [{"a": 1}]}}]},
         r"properties\[0\].monotone.features\[0\]: expected a text, got \{'a': 1\} \(here\)"),
        ({"properties": rule(direction="up")},
         r"properties\[0\].monotone.direction: expected increasing or decreasing, got 'up'; known: decreasing, "
         r"increasing \(here\)"),
        ({"properties": [*RISING, {"monotone": {"features": ["psi_io_full"], "direction": "decreasing"}}]},
         r"directions must not contradict.*'psi_io_full'"),
    ],
)
def test_a_mistake_is_named_with_its_place(fields: dict[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_specification({"properties": RISING, **fields}, NAMES, BOX, "here")


@pytest.mark.parametrize("data", [None, [], "text", 5])
def test_a_specification_that_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(InputError, match=r"^specification: expected a mapping, got "):
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


def one(entry: dict[str, Any], outputs: tuple[str, ...] = OUTPUTS, **fields: Any) -> Property:
    return parse_specification({"properties": [entry], **fields}, NAMES, BOX, "here", outputs).properties[0]


def robust(**fields: Any) -> list[Any]:
    return [{"robust": {"points": [[0.1, 0.2, 0.3]], "radius": 0.1, "change": 1, **fields}}]


def share(of: Any, **fields: Any) -> list[Any]:
    return [{"share": {"of": of, "at_least": 0.9, **fields}}]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"monotone": {"features": ["cpu_time"], "output": "p99"}}, Monotonicity((2,), "increasing", 1)),
        ({"range": {"output": "p99", "minimum": 0, "maximum": 1000}}, OutputRange(1, 0.0, 1000.0)),
        ({"range": {"output": "p50", "maximum": -1}}, OutputRange(0, None, -1.0)),
        ({"range": {"output": "p50", "minimum": 2}}, OutputRange(0, 2.0, None)),
        ({"order": {"upper": "p99", "lower": "p50"}}, OutputOrder(1, 0, 0.0)),
        ({"order": {"upper": "p50", "lower": "p99", "margin": -1e-6}}, OutputOrder(0, 1, -1e-6)),
        ({"order": {"upper": "p50", "lower": "cpu_time", "factor": 0.75}},
         OutputOrder(0, InputValue(2), 0.0, factor=0.75)),
        ({"order": {"upper": "p99", "lower": "p50", "at_least": {"cpu_time": "psi_io_full"}}},
         OutputOrder(1, 0, 0.0, at_least=((2, 1),))),
        ({"share": {"of": {"range": {"output": "p99", "maximum": 5}}, "at_least": 0.99}},
         Share(OutputRange(1, None, 5.0), 0.99, 0.999, 20_000)),
        ({"share": {"of": {"order": {"upper": "p99", "lower": "p50"}}, "at_least": 0.5, "confidence": 0.9,
                    "samples": 100}}, Share(OutputOrder(1, 0), 0.5, 0.9, 100)),
        ({"share": {"of": {"monotone": {"features": ["cpu_time"], "direction": "decreasing", "output": "p50"}},
                    "at_least": 0.5}}, Share(Monotonicity((2,), "decreasing", 0), 0.5)),
    ],
)
def test_every_kind_is_read(entry: dict[str, Any], expected: Property) -> None:
    assert one(entry) == expected


@pytest.mark.parametrize(
    "entry",
    [{"monotone": {"features": ["cpu_time"]}}, {"range": {"minimum": 0}}, robust()[0]],
    ids=["monotone", "range", "robust"],
)
def test_the_output_may_be_left_out_where_there_is_one(entry: dict[str, Any]) -> None:
    assert one(entry, ("only",)).outputs == (0,)
    message = rf"^properties\[0\].{next(iter(entry))}: the field 'output' is missing; known: p50, p99 \(here\)$"
    with pytest.raises(InputError, match=message):
        one(entry)


def test_points_are_lists_or_mappings_and_the_radius_a_number_or_a_mapping() -> None:
    points = [[0.1, 0.2, 0.3], {"cpu_time": 3, "psi_cpu_some": 1, "psi_io_full": 2}]
    found = one(robust(points=points, output="p99")[0])
    assert isinstance(found, Robustness)
    assert found.points.tolist() == [[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]]
    assert found.radius.tolist() == [0.1, 0.1, 0.1] and found.change == 1.0 and found.output == 1
    found = one(robust(radius={"cpu_time": 2}, output="p50")[0])
    assert isinstance(found, Robustness) and found.radius.tolist() == [0.0, 0.0, 2.0]


def test_finite_inputs_are_read_and_take_their_range_as_box() -> None:
    found = parse(properties=[{"range": {"minimum": 0}}], inputs={"cpu_time": {"values": [8, 1, 2]}},
                  one_hot=[["psi_io_full", "psi_cpu_some"]])
    assert found.choices == {2: (1.0, 2.0, 8.0)} and found.one_hot == ((1, 0),)
    assert found.lower.tolist() == [0.0, 0.0, 1.0] and found.upper.tolist() == [1.0, 1.0, 8.0]
    found = parse(inputs={"cpu_time": {"values": [0.5]}}, box={"cpu_time": [0, 1]})
    assert found.choices == {2: (0.5,)} and found.lower[2] == 0.0 and found.upper[2] == 1.0


def test_opposite_directions_of_two_outputs_do_not_contradict() -> None:
    rules = [{"monotone": {"features": ["cpu_time"], "output": name, "direction": direction}}
             for name, direction in zip(OUTPUTS, ("increasing", "decreasing"), strict=True)]
    assert len(parse_specification({"properties": rules}, NAMES, BOX, "here", OUTPUTS).properties) == 2
    with pytest.raises(InputError, match="directions must not contradict"):
        parse_specification({"properties": [*rules, {"monotone": {**rules[0]["monotone"], "direction": "decreasing"}}]},
                            NAMES, BOX, "here", OUTPUTS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"properties": [{"rang": {}}]}, r"properties\[0\].rang: unknown field; did you mean 'range'\? \(here\)"),
        ({"properties": [{"range": [0, 1]}]},
         r"properties\[0\].range: expected a mapping, got \[0, 1\] \(here\)"),
        ({"properties": [{"order": None}]},
         r"properties\[0\].order: expected a mapping, got nothing; leave the field out \(here\)"),
        ({"properties": [{"robust": 1}]}, r"properties\[0\].robust: expected a mapping, got 1 \(here\)"),
        ({"properties": [{"share": 1}]}, r"properties\[0\].share: expected a mapping, got 1 \(here\)"),
        ({"properties": [{"range": {"output": "p50", "max": 1}}]},
         r"properties\[0\].range.max: unknown field; did you mean 'maximum'\? \(here\)"),
        ({"properties": [{"range": {"output": "p95", "maximum": 1}}]},
         r"properties\[0\].range.output: expected an output of the model, got 'p95'; did you mean 'p99'\? \(here\)"),
        ({"properties": [{"range": {"output": ["p50"], "maximum": 1}}]},
         r"properties\[0\].range.output: expected a text, got \['p50'\] \(here\)"),
        ({"properties": [{"range": {"output": "p50"}}]},
         r"properties\[0\].range: range must have a minimum or a maximum, got neither \(here\)"),
        ({"properties": [{"range": {"output": "p50", "minimum": 2, "maximum": 1}}]},
         r"properties\[0\].range: range must have minimum <= maximum, got \[2, 1\] \(here\)"),
        ({"properties": [{"range": {"output": "p50", "minimum": math.nan}}]},
         r"properties\[0\].range.minimum: expected a number, got nan \(here\)"),
        ({"properties": [{"range": {"output": "p50", "maximum": "high"}}]},
         r"properties\[0\].range.maximum: expected a number, got 'high' \(here\)"),
        ({"properties": [{"range": {"output": "p50", "maximum": 10**400}}]},
         r"properties\[0\].range.maximum: expected a number, got a number of more than 77 digits \(here\)"),
        ({"properties": [{"order": {"upper": "p99"}}]},
         r"properties\[0\].order: the field 'lower' is missing \(here\)"),
        ({"properties": [{"order": {"upper": "p99", "lower": "p99"}}]},
         r"properties\[0\].order: order must be of two outputs, got output 1 twice \(here\)"),
        ({"properties": [{"order": {"upper": "p99", "lower": "p50", "at_least": {"cpu_time": "cpu"}}}]},
         r"properties\[0\].order.at_least.cpu_time: expected an input of the model, got 'cpu'.*cpu_time"),
        ({"properties": [{"order": {"upper": "p99", "lower": "p50", "at_least": {"cpu_time": "cpu_time"}}}]},
         r"at_least must compare two inputs, got input 2 twice"),
        ({"properties": [{"order": {"upper": "p99", "lower": "p50", "factor": 0}}]},
         r"properties\[0\].order.factor: expected a number above 0, got 0"),
        ({"properties": [{"order": {"upper": "p99", "lower": "p50", "margin": math.inf}}]},
         r"properties\[0\].order.margin: expected a number, got inf \(here\)"),
        ({"properties": robust(output="p50", points=[])},
         r"properties\[0\].robust.points: expected a list of at least 1 entry, got \[\] \(here\)"),
        ({"properties": robust(output="p50", points="ab")},
         r"properties\[0\].robust.points: expected a list of at least 1 entry, got 'ab' \(here\)"),
        ({"properties": robust(output="p50", points=[0.1, 0.2, 0.3])},
         r"properties\[0\].robust.points\[0\]: expected a list of at least 1 entry or a mapping, got 0.1 \(here\), "
         r"and 2 "
         r"more"),
        ({"properties": robust(output="p50", points=[[1, 2, 3], [1, 2]])},
         r"properties\[0\].robust.points\[1\]: expected 3 numbers, got 2 \(here\)"),
        ({"properties": robust(output="p50", points=[{"cpu_time": 1}])},
         r"properties\[0\].robust.points\[0\]: expected a value of every input, got none of psi_cpu_some, "
         r"psi_io_full \(here\)"),
        ({"properties": robust(output="p50", points=[{"cpu": 1}])},
         r"properties\[0\].robust.points\[0\].cpu: expected an input of the model, got 'cpu'; did you mean "
         r"'cpu_time'\? \(here\)"),
        ({"properties": robust(output="p50", points=[[1, 2, None]])},
         r"properties\[0\].robust.points\[0\]\[2\]: expected a number, got nothing \(here\)"),
        ({"properties": robust(output="p50", points=[[1, 2, math.nan]])},
         r"properties\[0\].robust.points\[0\]\[2\]: expected a number, got nan \(here\)"),
        ({"properties": robust(output="p50", radius=None)},
         r"properties\[0\].robust.radius: expected a number from 0 or a mapping, got nothing \(here\)"),
        ({"properties": robust(output="p50", radius={"cpu": 1})},
         r"properties\[0\].robust.radius.cpu: expected an input of the model, got 'cpu'; did you mean 'cpu_time'\? "
         r"\(here\)"),
        ({"properties": robust(output="p50", radius=-1)},
         r"properties\[0\].robust.radius: expected a number from 0 or a mapping, got -1 \(here\)"),
        ({"properties": robust(output="p50", radius=0)}, "radius must be >= 0 in every feature and > 0 in one"),
        ({"properties": robust(output="p50", radius={})}, "radius must be >= 0 in every feature and > 0 in one"),
        ({"properties": robust(output="p50", radius=math.inf)},
         r"properties\[0\].robust.radius: expected a number from 0 or a mapping, got inf \(here\)"),
        ({"properties": robust(output="p50", change=0)},
         r"properties\[0\].robust.change: expected a number above 0, got 0 \(here\)"),
        ({"properties": robust(output="p50", change=None)},
         r"properties\[0\].robust.change: expected a number above 0, got nothing \(here\)"),
        ({"properties": robust(output="p50", change=math.inf)},
         r"properties\[0\].robust.change: expected a number above 0, got inf \(here\)"),
        ({"properties": share(None)}, r"properties\[0\].share.of: expected a mapping, got nothing \(here\)"),
        ({"properties": share(robust()[0])},
         r"properties\[0\].share.of.robust: unknown field; known: monotone, order, range \(here\)"),
        ({"properties": share({"range": {"output": "p50"}})},
         r"properties\[0\].share.of.range: range must have a minimum or a maximum, got neither \(here\)"),
        ({"properties": share({"monotone": {"features": ["cpu_time"], "output": "p"}})},
         r"properties\[0\].share.of.monotone.output: expected an output of the model, got 'p'; did you mean 'p99'\? "
         r"\(here\)"),
        ({"properties": share({"range": {"output": "p50", "minimum": 0}}, at_least=None)},
         r"properties\[0\].share.at_least: expected a number above 0 and below 1, got nothing \(here\)"),
        ({"properties": share({"range": {"output": "p50", "minimum": 0}}, at_least=1)},
         r"properties\[0\].share.at_least: expected a number above 0 and below 1, got 1 \(here\)"),
        ({"properties": share({"range": {"output": "p50", "minimum": 0}}, confidence=math.nan)},
         r"properties\[0\].share.confidence: expected a number above 0 and below 1, got nan \(here\)"),
        ({"properties": share({"range": {"output": "p50", "minimum": 0}}, samples=1.5)},
         r"properties\[0\].share.samples: expected a whole number from 1, got 1.5 \(here\)"),
        ({"properties": share({"range": {"output": "p50", "minimum": 0}}, samples=math.inf)},
         r"properties\[0\].share.samples: expected a whole number from 1, got inf \(here\)"),
        ({"properties": share({"range": {"output": "p50", "minimum": 0}}, samples=0)},
         r"properties\[0\].share.samples: expected a whole number from 1, got 0 \(here\)"),
        ({"properties": share({"range": {"output": "p50", "minimum": 0}}, samples=72)},
         r"samples must be at least 73 to show a share of 0.9 with confidence 0.999 even if all satisfy it, got 72"),
        ({"inputs": [1]}, r"inputs: expected a mapping, got \[1\] \(here\)"),
        ({"inputs": {"cpu": {"values": [1]}}},
         r"inputs.cpu: expected an input of the model, got 'cpu'; did you mean 'cpu_time'\? \(here\)"),
        ({"inputs": {"cpu_time": [1, 2]}}, r"inputs.cpu_time: expected a mapping, got \[1, 2\] \(here\)"),
        ({"inputs": {"cpu_time": {"value": [1]}}},
         r"inputs.cpu_time.value: unknown field; did you mean 'values'\? \(here\), and 1 more"),
        ({"inputs": {"cpu_time": {}}}, r"inputs.cpu_time: the field 'values' is missing \(here\)"),
        ({"inputs": {"cpu_time": {"values": []}}},
         r"inputs.cpu_time.values: expected a list of at least 1 entry, got \[\] \(here\)"),
        ({"inputs": {"cpu_time": {"values": ["a"]}}},
         r"inputs.cpu_time.values\[0\]: expected a number, got 'a' \(here\)"),
        ({"inputs": {"cpu_time": {"values": [1, 1.0]}}},
         r"inputs.cpu_time.values: expected values that stand once each, got \[1.0, 1.0\] \(here\)"),
        ({"inputs": {"cpu_time": {"values": [1, math.inf]}}},
         r"inputs.cpu_time.values\[1\]: expected a number, got inf \(here\)"),
        ({"inputs": {"cpu_time": {"values": [1, 8]}}, "box": {"cpu_time": [0, 4]}},
         r"values must be inside the box \[0, 4\], got 1..8 \(feature 'cpu_time'\) \(here\)"),
        ({"one_hot": "ab"}, r"one_hot: expected a list, got 'ab' \(here\)"),
        ({"one_hot": ["cpu_time", "psi_io_full"]},
         r"one_hot\[0\]: expected a list of at least 2 entries, got 'cpu_time' \(here\), and 1 more"),
        ({"one_hot": [["cpu_time", "psi_io"]]},
         r"one_hot\[0\]: expected an input of the model, got 'psi_io'; did you mean 'psi_io_full'\? \(here\)"),
        ({"one_hot": [["cpu_time"]]},
         r"one_hot\[0\]: expected a list of at least 2 entries, got \['cpu_time'\] \(here\)"),
        ({"one_hot": [["cpu_time", "cpu_time"]]},
         r"one-hot input must be in one group and have no values of its own, got another \(feature 'cpu_time'\)"),
        ({"one_hot": [["cpu_time", "psi_io_full"]], "inputs": {"cpu_time": {"values": [0, 1]}}},
         "one-hot input must be in one group and have no values of its own"),
        ({"one_hot": [["cpu_time", "psi_io_full"]], "box": {"cpu_time": [0, 0.5]}},
         r"values must be inside the box \[0, 0.5\], got 0..1 \(feature 'cpu_time'\)"),
        ({"one_hot": [["cpu_time", "psi_io_full"]],
          "properties": [{"monotone": {"features": ["cpu_time"], "output": "p50"}}]},
         r"monotone feature must be free to change alone, got one of a one-hot group \(feature 'cpu_time'\)"),
        ({"features": ["a"]}, r"features: unknown field; known: box, inputs, one_hot, properties, tolerance \(here\)"),
        ({"units": {"p50": "ms"}}, r"units: unknown field; did you mean 'inputs'\? \(here\)"),
    ],
)
def test_a_mistake_in_any_kind_is_named_with_its_place(fields: dict[Any, Any], message: str) -> None:
    fields = {"properties": [{"range": {"output": "p50", "minimum": 0}}], **fields}
    with pytest.raises(InputError, match=message):
        parse_specification(fields, NAMES, BOX, "here", OUTPUTS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"properties": (OutputRange(2, 0.0),)}, r"output index must be in 0..1, got 2"),
        ({"properties": (OutputOrder(0, -1),)}, r"output index must be in 0..1, got -1"),
        ({"properties": (Share(OutputRange(2, 0.0), 0.5),)}, r"output index must be in 0..1, got 2"),
        ({"properties": (Share(Monotonicity((3,), "increasing"), 0.5),)}, r"feature index must be in 0..2, got 3"),
        ({"properties": (Robustness(np.zeros((1, 2)), np.ones(2), 1.0),)}, "points must have 3 features, got 2"),
        ({"choices": {3: (0.0,)}}, r"feature index must be in 0..2, got 3"),
        ({"choices": {0: ()}},
         r"values must be at least one finite number, ascending and distinct, got \[\] \(feature"),
        ({"choices": {0: (1.0, 0.0)}}, r"ascending and distinct, got \[1.0, 0.0\] \(feature 'psi_cpu_some'\)"),
        ({"choices": {0: (0.5, 0.5)}}, "ascending and distinct"),
        ({"choices": {0: (math.nan,)}}, "at least one finite number"),
        ({"choices": {0: (-0.5, 0.5)}}, r"values must be inside the box \[0, 1\], got -0.5..0.5"),
        ({"one_hot": ((0, 3),)}, r"feature index must be in 0..2, got 3"),
        ({"one_hot": ((0, 1), (1, 2))}, "one-hot input must be in one group"),
    ],
)
def test_a_specification_of_any_kind_built_by_hand_is_checked_too(fields: dict[str, Any], message: str) -> None:
    valid = Specification(NAMES, np.zeros(3), np.ones(3), (OutputRange(0, 0.0),), output_names=OUTPUTS)
    with pytest.raises(InputError, match=message):
        replace(valid, **fields)


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((0, 3), (3,)), ((1, 3), (2,))], ids=str)
def test_points_and_radius_must_fit(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match=r"points and radius must be of shapes \(P, n\) and \(n,\), got"):
        Robustness(np.zeros(shapes[0]), np.ones(shapes[1]), 1.0)


def test_queries_are_refused_where_they_would_not_be_all_that_must_be_proved() -> None:
    message = r"specification must be monotone alone, of one output.*got: output is increasing.*output is at most 5$"
    with pytest.raises(InputError, match=message):
        _ = parse(properties=[*RISING, {"range": {"maximum": 5}}]).queries
    rules = [{"monotone": {"features": ["cpu_time"], "output": "p99"}}]
    with pytest.raises(InputError, match="of one output, to be proved by slopes, got: p99 is increasing in cpu_time"):
        _ = parse_specification({"properties": rules}, NAMES, BOX, "here", OUTPUTS).queries


REAL = ("It is proved for the network in real arithmetic with the weights stored in the model file.")
COUNTED = "Shares are counted on random inputs, evaluated in float64 (Clopper-Pearson interval)."


@pytest.mark.parametrize(
    ("fields", "outputs", "expected"),
    [
        ({"properties": RISING}, ("output",),
         "The output is increasing in psi_cpu_some, psi_io_full, for every input in the box, with the other inputs "
         "equal: a pair may violate the order by at most 0.00013 over the box (0.0001 per unit of a feature). " + REAL),
        ({"properties": [{"monotone": {"features": ["cpu_time"], "output": "p99"}}]}, OUTPUTS,
         "For every input in the box: p99 is increasing in cpu_time, with the other inputs equal. " + REAL
         + " A pair may violate the order of p99 by at most 0.0001 over the box (0.0001 per unit of a feature)."),
        ({"properties": [{"range": {"maximum": 250.5}}, {"range": {"minimum": 0, "maximum": 9}}]}, ("latency",),
         "For every input in the box: latency is at most 250.5; latency is at least 0 and at most 9. " + REAL),
        ({"properties": [{"order": {"upper": "p99", "lower": "p50", "margin": margin}} for margin in (0, 0.5, -1e-6)]},
         OUTPUTS, "For every input in the box: p99 is at least p50; p99 is at least p50 plus 0.5; p99 is at least p50 "
         "minus 0.000001. " + REAL),
        ({"properties": [{"order": {"upper": "p99", "lower": "p50", "factor": 0.75, "margin": -1}}]},
         OUTPUTS, "For every input in the box: p99 is at least 0.75 times p50 minus 1. " + REAL),
        ({"properties": [*robust(), *robust(points=[[0, 0, 0], [1, 1, 1]], radius={"cpu_time": 2})]}, ("latency",),
         "For every input in the box: latency differs by at most 1 from its value at the given point wherever the "
         "input is within 0.1 in every feature; latency differs by at most 1 from its value at each of 2 given points "
         "wherever the input is within 2 in cpu_time and equal in the others. " + REAL),
        ({"properties": share({"range": {"maximum": 5}}), "inputs": {"cpu_time": {"values": [1, 2]}}}, ("latency",),
         "Over the box, where cpu_time is one of 1, 2: for a share of at least 0.9 of all inputs, with confidence "
         "0.999: latency is at most 5. " + COUNTED),
        ({"properties": [{"range": {"minimum": 0}}, *share(rule()[0])],
          "one_hot": [["psi_cpu_some", "psi_io_full"]], "inputs": {"cpu_time": {"values": [1, 2]}}}, ("latency",),
         "For every input in the box, where cpu_time is one of 1, 2 and exactly one of psi_cpu_some, psi_io_full is 1 "
         "and the others are 0: latency is at least 0. " + REAL + " Over the box: for a share of at least 0.9 of all "
         "pairs of inputs that differ in one feature, with confidence 0.999: latency is increasing in cpu_time, with "
         "the other inputs equal. " + COUNTED + " A pair may violate the order by at most 0.0001 over the "
         "box (0.0001 per unit of a feature)."),
    ],
    ids=["monotone", "outputs", "range", "order", "factor", "robust", "share", "finite"],
)
def test_the_statement_says_what_holds(fields: dict[str, Any], outputs: tuple[str, ...], expected: str) -> None:
    assert parse_specification(fields, NAMES, BOX, "here", outputs).statement == expected


def read(folder: Path, text: str, inputs: int = 2, outputs: int = 1) -> Specification:
    path = folder / "SPEC.yaml"
    path.write_text(text)
    return read_specification(path, flat(inputs, outputs))


def flat(inputs: int, outputs: int = 1) -> Graph:
    """A network of so many inputs and outputs."""
    return dense_graph([np.ones((1, inputs)), np.ones((outputs, 1))], [np.zeros(1), np.zeros(outputs)])


RANGE = "properties: [range: {minimum: 0}]\n"


def test_a_file_is_read_with_default_names(tmp_path: Path) -> None:
    found = read(tmp_path, "box: {x0: [0, 1], x1: [-1, 2]}\nproperties: [range: {output: y1, minimum: 0}]", outputs=2)
    assert found.feature_names == ("x0", "x1") and found.output_names == ("y0", "y1")
    assert found.lower.tolist() == [0.0, -1.0] and found.properties == (OutputRange(1, 0.0),)


def test_a_file_names_inputs_and_outputs(tmp_path: Path) -> None:
    found = read(tmp_path, "features: [load, cores]\noutputs: [p99]\nbox: {load: [0, 1]}\n"
                           "inputs: {cores: {values: [1, 2]}}\n" + RANGE)
    assert found.feature_names == ("load", "cores") and found.output_names == ("p99",)
    assert found.choices == {1: (1.0, 2.0)} and found.upper.tolist() == [1.0, 2.0]


def test_a_file_may_give_units(tmp_path: Path) -> None:
    text = "features: [load, cores]\nbox: {load: [0, 1], cores: [1, 8]}\n" + RANGE
    plain = read(tmp_path, text)
    assert plain.units == {}
    found = read(tmp_path, "units: {y0: µs, cores: vCPU}\n" + text)
    assert found.units == {"y0": "µs", "cores": "vCPU"} and list(found.units) == ["y0", "cores"]
    assert found.statement == plain.statement and found.feature_names == plain.feature_names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("box: {x1: [0, 1]}\n" + RANGE,
         r"box: expected walls for every input, got none for x0 \(.*SPEC.yaml, line 1\)"),
        (RANGE, r"box: expected walls for every input, got none for x0, x1 \(.*SPEC.yaml, line 1\)"),
        ("", r"specification: expected a mapping, got nothing \(.*SPEC.yaml, line 1\)"),
        ("- 1", r"specification: expected a mapping, got \[1\] \(.*SPEC.yaml, line 1\)"),
        ("feature: [a, b]\n" + RANGE, r"feature: unknown field; did you mean 'features'\? \(.*SPEC.yaml, line 1\)"),
        ("features: [a]\n" + RANGE, r"features: expected the network's 2 inputs, got 1 names \(.*SPEC.yaml, line 1\)"),
        ("outputs: [a, b]\n" + RANGE,
         r"outputs: expected the network's 1 outputs, got 2 names \(.*SPEC.yaml, line 1\)"),
        ("features: [a, a]\n" + RANGE,
         r"features\[1\]: expected a name that stands once, got 'a' twice \(.*SPEC.yaml, line 1\)"),
        ("features: [1, 2]\n" + RANGE,
         r"features\[0\]: expected a text, got 1; write it in quotes \(.*SPEC.yaml, line 1\), and 1 more"),
        ("features: ab\n" + RANGE, r"features: expected a list, got 'ab' \(.*SPEC.yaml, line 1\)"),
        ("units: [ms]\n" + RANGE, r"units: expected a mapping, got \['ms'\] \(.*SPEC.yaml, line 1\)"),
        ("units: {y1: ms}\n" + RANGE,
         r"units.y1: expected an input or an output of the model, got 'y1'; did you mean 'y0'\? \(.*SPEC.yaml, line "
         r"1\)"),
        ("units: {y0: 1}\n" + RANGE, r"units.y0: expected a text, got 1; write it in quotes \(.*SPEC.yaml, line 1\)"),
        ("units: {y0: }\n" + RANGE, r"units.y0: expected a text, got nothing \(.*SPEC.yaml, line 1\)"),
        ("units: {y0: ' '}\n" + RANGE, r"units.y0: expected a printable text, got ' ' \(.*SPEC.yaml, line 1\)"),
        ('units: {y0: "m\\ns"}\n' + RANGE, r"units.y0: expected a printable text, got 'm\\ns' \(.*SPEC.yaml, line 1\)"),
        ("box: {x0: [0, 1]}\nproperties: [", r"specification must be YAML, got .* \(.*SPEC.yaml, line 2\)"),
        ("box:\n  x0: [0, 1]\n x1: [0, 1]\n", r"specification must be YAML, got .* \(.*SPEC.yaml, line 3\)"),
        ("box: 1\n\tbox: 2", r"specification must be YAML, got .* \(.*SPEC.yaml, line 2\)"),
        ("box: *a", r"specification must be YAML, got found undefined alias 'a' \(.*SPEC.yaml, line 1\)"),
        ("box: !thing 1", r"specification must be YAML, got could not determine a constructor .* line 1\)"),
        ("# one\n\nbox: \x07", r"specification must be YAML, got special characters .* \(.*SPEC.yaml, line 3\)"),
        ("box: 1\nbox: 2", r"key must be given once, got 'box' twice \(.*SPEC.yaml, line 2\)"),
        ("properties:\n  - range: {minimum: 0,\n      minimum: 1}", r"got 'minimum' twice \(.*SPEC.yaml, line 3\)"),
        ("a: 1\nbox: 2020-13-45", r"value must be readable, got month must be in 1..12.* \(.*SPEC.yaml, line 2\)"),
        ("box: " + 5000 * "1", r"number must have at most 4300 digits, got 5000 \(.*SPEC.yaml, line 1\)"),
        (5000 * "[", "specification must nest lists and mappings at most 64 deep"),
    ],
    ids=lambda text: text[:40],
)
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"specification must be a readable file, got .*none.yaml"):
        read_specification(tmp_path / "none.yaml", flat(1))
    (tmp_path / "latin.yaml").write_bytes(b"box: \xe9")
    with pytest.raises(InputError, match=r"must be YAML in UTF-8, got the byte 0xe9 \(.*latin.yaml, line 1\)"):
        read_specification(tmp_path / "latin.yaml", flat(1))


@pytest.mark.parametrize("rule", [
    {"range": {"minimum": 0, "maximum": 17592186044431.5}},
    {"range": {"maximum": 1, "when": {"a": [1.0000000000004, 2]}}},
    {"order": {"upper": "y0", "lower": "a", "factor": 1.00000000000007, "margin": -2.00000000000003}},
    {"robust": {"points": [[1.0]], "radius": 0.10000000000003, "change": 1.00000000000009}},
    {"share": {"of": {"range": {"maximum": 3.00000000000001}}, "at_least": 0.900000000000041,
               "confidence": 0.990000000000052}}], ids=lambda rule: next(iter(rule)))
def test_a_sentence_has_every_digit_that_is_claimed(rule: dict[str, Any]) -> None:
    """Rounded to twelve digits, a limit, a condition or a factor may say more than is proved."""
    found = parse_file({"features": ["a"], "box": {"a": [0, 2]}, "properties": [rule]}, 1, 1, "here")
    long = re.findall(r"\d+\.\d{9,}|\d{12,}\.?\d*", repr(rule))
    assert long and [number for number in long if number not in found.statement] == []


def test_a_finite_value_stands_in_the_sentence_with_every_digit() -> None:
    found = parse_file({"inputs": {"x0": {"values": [1.0000000000004, 2]}}, "properties": [{"range": {"maximum": 1}}]},
                       1, 1, "here")
    assert "x0 is one of 1.0000000000004, 2" in found.statement


@pytest.mark.parametrize("names", [["cpu", "CPU"], ["cpu", "\u0441pu"], ["cpu", "\uff43\uff50\uff55"],
                                   ["file", "\ufb01le"], ["a b", "a  b"], ["load", "l\u03bfad"]], ids=ascii)
def test_names_that_look_alike_are_refused(names: list[str]) -> None:
    expected = re.escape(f"expected names that a reader tells apart, got {names[0]!a} and {names[1]!a}")
    box, rules = {name: [0, 1] for name in names}, [{"range": {"maximum": 1}}]
    with pytest.raises(InputError, match=expected):
        parse_file({"features": names, "box": box, "properties": rules}, 2, 1, "here")
    with pytest.raises(InputError, match=expected):
        parse_file({"features": names[:1], "outputs": names[1:], "box": {names[0]: [0, 1]}, "properties": rules}, 1, 1,
                   "here")
    with pytest.raises(InputError, match=expected):
        parse_specification({"box": box, "properties": rules}, names, {}, "here")


@pytest.mark.parametrize("whole", [2**53 + 1, -(10**400), 10**30], ids=["odd", "beyond", "large"])
def test_whole_numbers_that_float64_lacks_are_refused(whole: int) -> None:
    claim = {"box": {"x0": [0, 1]}, "properties": [{"range": {"maximum": whole} if whole > 0 else {"minimum": whole}}]}
    with pytest.raises(InputError, match=r"float64|more than 77 digits"):
        parse_file(claim, 1, 1, "here")


def test_whole_numbers_that_float64_has_are_read() -> None:
    claim = {"box": {"x0": [0, 2**60]}, "properties": [{"range": {"maximum": 2**53 + 2}}]}
    assert parse_file(claim, 1, 1, "here").upper.tolist() == [2.0**60]
