"""What is written out is the same specification when it is read again."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from feature_store.strict_yaml import parse_yaml
from models.verification.language.specification import Specification
from models.verification.language.specification_language import parse_file
from models.verification.language.specification_writing import as_yaml, written_out

BASE: dict[str, Any] = {
    "features": ["load", "cores", "is_a", "is_b"], "outputs": ["p50", "no"], "units": {"load": "req/s", "no": "ms"},
    "box": {"load": [0.1, 0.7]}, "inputs": {"cores": {"values": [1, 2, 0.3]}}, "one_hot": [["is_a", "is_b"]],
    "tolerance": {"p50": 0.004, "no": 1e-300}, "rounding": {"no": 4e-05},
    "properties": [
        {"monotone": {"features": ["load", "cores"], "direction": "decreasing", "output": "p50"}},
        {"monotone": {"features": ["load"], "output": "no", "when": {"is_a": [1, 1], "load": [0.2, 0.3]}}},
        {"range": {"output": "no", "minimum": -1e-9, "minus": "load"}},
        {"order": {"upper": "p50", "lower": "cores", "margin": -0.1, "factor": 0.75, "at_least": {"cores": "load"},
                   "when": {"cores": [0.3, 1]}}},
        {"robust": {"points": [[0.5, 1, 0, 1]], "radius": {"load": 0.01}, "change": 3, "output": "p50"}},
        {"share": {"of": {"range": {"output": "p50", "maximum": 9}}, "at_least": 0.9, "when": {"load": [0.1, 0.2]}}}]}


def same(a: Specification, b: Specification) -> bool:
    for entry in fields(Specification):
        one, two = getattr(a, entry.name), getattr(b, entry.name)
        if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
            if not np.array_equal(one, two):
                return False
        elif entry.name == "properties":
            if repr(one) != repr(two):
                return False
        elif one != two:
            return False
    return True


def again(specification: Specification) -> Specification:
    text = as_yaml(written_out(specification))
    return parse_file(parse_yaml(text, "specification", "text"), len(specification.feature_names),
                      len(specification.output_names), "text")


def test_every_field_and_kind_of_property_survives() -> None:
    found = parse_file(BASE, 4, 2, "here")
    assert same(again(found), found) and written_out(again(found)) == written_out(found)
    assert found.statement == again(found).statement


def test_a_slope_for_all_stays_one() -> None:
    found = parse_file({**BASE, "tolerance": 0.25}, 4, 2, "here")
    assert again(found).tolerance == 0.25 and again(found).over_the_box is None


@settings(max_examples=50, deadline=None)
@given(walls=st.tuples(*[st.floats(-1e300, 1e300)] * 2).map(sorted), amount=st.floats(0, 1e300),
       name=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8))
def test_awkward_numbers_and_names_survive(walls: list[float], amount: float, name: str) -> None:
    data = {"features": [name], "outputs": ["y \" '#"], "box": {name: walls}, "tolerance": {"y \" '#": amount},
            "properties": [{"monotone": {"features": [name]}}]}
    found = parse_file(data, 1, 1, "here")
    assert same(again(found), found)


@pytest.mark.parametrize(("change", "message"), [
    ({"tolerance": {"p5": 1}}, r"tolerance.p5: expected an output of the model, got 'p5'; did you mean 'p50'\?"),
    ({"tolerance": {"p50": -1, "no": 0}}, r"tolerance.p50: expected a number from 0, got -1 \(here\)"),
    ({"tolerance": {"p50": 1}}, r"tolerance: expected one for every output that is monotone, got none for no \(here\)"),
    ({"rounding": 1}, r"rounding: expected a mapping, got 1 \(here\)"),
    ({"rounding": {"no": "x"}}, r"rounding.no: expected a number from 0, got 'x' \(here\)"),
    ({"rounding": {"nah": 1}}, r"rounding.nah: expected an output of the model, got 'nah'; known: no, p50 \(here\)"),
])
def test_mistakes_in_amounts_are_named_with_their_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_file({**yaml.safe_load(yaml.safe_dump(BASE)), **change}, 4, 2, "here")


@pytest.mark.parametrize(("entry", "message"), [
    ({"order": {"upper": "load", "lower": "cores"}}, r"order must have an output as one of its sides, got two inputs"),
    ({"range": {"output": "p50", "minus": "p50", "minimum": 0}}, r"minus must be another output or an input"),
    ({"range": {"output": "p50", "minus": "p51", "minimum": 0}}, r"range.minus: .*got 'p51'; did you mean 'p50'\?"),
    ({"range": {"output": "p50", "minimum": 0, "when": {"laod": [0, 1]}}}, r"when.laod: .*did you mean 'load'\?"),
    ({"range": {"output": "p50", "minimum": 0, "when": []}}, r"when: expected a mapping that is not empty, got \[\]"),
    ({"range": {"output": "p50", "minimum": 0, "when": {"load": [0.3, 0.2]}}}, r"when.*\[0.3, 0.2\]"),
    ({"range": {"output": "p50", "minimum": 0, "when": {"load": [7, 9]}}}, r"when must meet the box \[0.1, 0.7\]"),
    ({"range": {"output": "p50", "minimum": 0, "when": {"cores": [1.5, 1.7]}}}, r"when must leave a value of"),
    ({"share": {"of": {"range": {"output": "p50", "minimum": 0, "when": {"load": [0.1, 0.2]}}}, "at_least": 0.9}},
     r"share: expected the condition beside `of`, got it inside of it"),
])
def test_mistakes_in_conditions_and_sides_are_named(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_file({**BASE, "properties": [entry]}, 4, 2, "here")
