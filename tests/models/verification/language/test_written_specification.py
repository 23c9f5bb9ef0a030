"""A specification that was written out is read again without the models of files, and nothing slips in that way."""

import copy
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from feature_store.written.model import check_written
from models.verification.language.specification import Specification
from models.verification.language.specification_file import SpecificationFile
from models.verification.language.specification_language import _file, _plain, _written_by_us, parse_file
from models.verification.language.specification_writing import as_yaml, written_out
from tests.e2e.tiny import ROOT

INPUTS, OUTPUTS = 4, 2
EVERY_KIND = """
features: [load, cores, is_read, is_write]
outputs: [p50, p99]
units: {load: share, p50: ms}
box: {load: [0, 1]}
inputs: {cores: {values: [1, 2, 4]}}
one_hot: [[is_read, is_write]]
tolerance: {p50: 0.5, p99: 1}
rounding: {p99: 0.25}
properties:
  - monotone: {features: [load, cores], output: p50, when: {load: [0, 0.5]}}
  - range: {output: p99, minimum: 0, minus: p50}
  - order: {upper: p99, lower: load}
  - robust: {points: [[0.5, 2, 1, 0], {load: 0.1, cores: 1, is_read: 0, is_write: 1}], radius: {load: 0.1}, change: 3,
             output: p50}
  - share: {of: {range: {output: p99, maximum: 200}}, at_least: 0.99, when: {cores: [1, 2]}}
"""


def every_kind() -> Specification:
    return parse_file(yaml.safe_load(EVERY_KIND), INPUTS, OUTPUTS, "here")


def document() -> dict[str, Any]:
    """What a bundle carries."""
    data: dict[str, Any] = yaml.safe_load(as_yaml(written_out(every_kind())))
    return data


def test_what_was_written_out_is_read_as_it_was() -> None:
    found = _written_by_us(document(), INPUTS, OUTPUTS)
    assert found is not None and repr(found) == repr(every_kind())


def test_a_person_s_file_is_not_taken_for_one() -> None:
    assert _written_by_us(yaml.safe_load(EVERY_KIND), INPUTS, OUTPUTS) is None


def test_a_controller_reads_it_without_pydantic(tmp_path: Path) -> None:
    (tmp_path / "specification.yaml").write_text(as_yaml(written_out(every_kind())))
    code = ("import sys, yaml; from models.verification.language.specification_language import parse_file; "
            f"parse_file(yaml.safe_load(open('specification.yaml')), {INPUTS}, {OUTPUTS}, 'here'); "
            "sys.exit('pydantic' in sys.modules)")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env={"PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("name", ["latency is at most 250 ms; for the record, latency", "a, b", "ms. It is", "y: z"])
def test_a_name_that_could_pass_for_a_part_of_the_sentence_is_refused(name: str) -> None:
    for change in ({"outputs": ["p50", name]}, {"units": {"load": name}}):
        with pytest.raises(InputError, match="expected a name without punctuation of a sentence"):
            parse_file({**yaml.safe_load(EVERY_KIND), **change}, INPUTS, OUTPUTS, "here")


@pytest.mark.parametrize("name", ["p99.9", "serving_default:0", "http/2", "Latency (99th,ms)", "1/s", "ms"])
def test_names_of_files_are_names(name: str) -> None:
    parse_file({**yaml.safe_load(EVERY_KIND), "units": {"load": name}}, INPUTS, OUTPUTS, "here")


def test_the_sentence_says_what_execution_adds_of_outputs_that_a_property_is_about_alone() -> None:
    """What it adds is held against properties."""
    data = yaml.safe_load(EVERY_KIND)
    data |= {"properties": [{"range": {"output": "p50", "minimum": 0}}], "tolerance": {"p50": 0.5}}
    assert "execution" not in parse_file(data, INPUTS, OUTPUTS, "here").statement
    data["rounding"]["p50"] = 0.5
    said = parse_file(data, INPUTS, OUTPUTS, "here").statement
    assert "its execution adds at most 0.5 ms to p50, as the checker bounds it" in said and "to p99" not in said


@pytest.mark.parametrize("change", [
    {"properties": [{"range": {"output": "p99", "minimum": True}}]}, {"propertys": []}, {"tolerance": {"p50": -1.0}},
    {"rounding": {"p99": math.nan}}, {"box": {"load": [0.0, math.inf]}}, {"features": ["load", "cores", "load", "x"]},
    {"properties": [{"range": {"output": "p99", "minimum": 0.0, "maximun": 1.0}}]}, {"units": {"load": 3}},
    {"properties": [{"share": {"of": {"range": {"output": "p99", "minimum": 0.0, "when": {"load": [0.0, 1.0]}}},
                               "at_least": 0.99, "confidence": 0.9, "samples": 1000}}]},
    {"properties": [{"monotone": {"features": [], "direction": "increasing", "output": "p50"}}]},
    {"properties": [{"monotone": {"features": ["load"], "direction": "up", "output": "p50"}}]},
    {"properties": {}}, {"box": None}, {"inputs": {"cores": {"values": "12"}}}, {"units": {"load": "a\x1b"}},
], ids=str)
def test_what_was_changed_after_that_is_refused_as_any_other(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        parse_file({**document(), **change}, INPUTS, OUTPUTS, "here")


def places(data: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in plain values."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [above, *(place for key, value in inner for place in places(value, (*above, key)))]


values = st.sampled_from([
    None, True, False, 0, 1, -1, 0.0, 1.0, 0.5, -1.0, math.nan, math.inf, 1e300, "", "x", "p50", "p99", "load", "1",
    "decreasing", "a\x1b", [], {}, [0.0, 1.0], [1.0, 0.0], ["load"], [[]], {"load": [0.0, 1.0]}, {"p50": 1.0},
    {"range": {"output": "p50", "minimum": 0.0}}]).map(copy.deepcopy)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_nothing_is_read_without_the_model_that_the_model_refuses(data: st.DataObject) -> None:
    changed = document()
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from([place for place in places(changed) if place]))
        holder = changed
        for key in place[:-1]:
            holder = holder[key]
        action = data.draw(st.sampled_from(["set", "delete", "add"]))
        if action == "delete":
            del holder[place[-1]]
        elif action == "add" and isinstance(holder, dict):
            holder[data.draw(st.sampled_from(["when", "x", "output", "minus", "load", "maximum"]))] = data.draw(values)
        else:
            holder[place[-1]] = data.draw(values)
    found = _written_by_us(changed, INPUTS, OUTPUTS)
    if found is not None:
        checked = check_written(SpecificationFile, changed, "specification", "here")  # raises where it refuses
        assert repr(_file(_plain(checked), INPUTS, OUTPUTS)) == repr(found)
