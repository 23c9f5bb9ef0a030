"""contract.json round-trips to the byte, and what it cannot mean is refused by name."""

import copy
import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from serving.canonical import canonical_json
from serving.contract import Contract, specification_sha256

Data = Callable[..., dict[str, Any]]


def test_round_trip_keeps_every_byte(contract_data: Data) -> None:
    data = contract_data()
    contract = Contract.from_json(data)
    assert canonical_json(contract.to_json()) == canonical_json(data)
    assert Contract.from_json(contract.to_json()) == contract
    assert contract.input_names == ("psi_cpu_some", "psi_io_full", "connections")


def test_the_digest_is_that_of_the_formula_for_the_value_and_for_the_file(contract_data: Data) -> None:
    data = contract_data()
    part = {key: data[key] for key in ("specification", "inputs", "outputs")}
    text = json.dumps(part, sort_keys=True, separators=(",", ":"))
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert specification_sha256(data) == expected
    assert specification_sha256(Contract.from_json(data)) == expected


def test_the_exporter_names_the_same_digest(contract_data: Data) -> None:
    """models/ may not import serving/, so the formula stands in both."""
    from models.export.bundle import specification_digest

    assert specification_sha256(contract_data()) == specification_digest(contract_data())


@pytest.mark.parametrize(
    "path",
    [
        ("inputs", 0, "maximum"),
        ("inputs", 2, "minimum"),
        ("outputs", 0, "maximum"),
        ("specification", "tolerance"),
        ("specification", "properties", 0, "monotone", "features", 0),
    ],
)
def test_the_digest_changes_with_everything_that_was_proved(contract_data: Data, path: Any) -> None:
    data = contract_data()
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = "other" if isinstance(target[path[-1]], str) else target[path[-1]] + 0.25
    assert specification_sha256(data) != specification_sha256(contract_data())


def test_the_digest_does_not_depend_on_where_and_when_it_was_trained(contract_data: Data) -> None:
    assert specification_sha256(contract_data(data_version="d2")) == specification_sha256(contract_data())


def test_a_contract_cannot_be_changed(contract_data: Data) -> None:
    contract = Contract.from_json(contract_data())
    with pytest.raises(AttributeError):
        contract.task = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        contract.specification["tolerance"] = 1.0  # type: ignore[index]
    with pytest.raises(AttributeError):
        contract.specification["properties"].append({})
    with pytest.raises(TypeError):
        contract.specification["properties"][0]["monotone"]["direction"] = "decreasing"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "assay-bundle/2", "format must be 'assay-bundle/1'"),
        (("task",), "", "task must hold only letters"),
        (("task",), "a.b", "task must hold only letters"),
        (("workload",), "../../precious", "workload must hold only letters"),
        (("workload",), "redis\n", "workload must hold only letters"),
        (("inputs", 0, "name"), "psi\x1b[2J", "name must hold no control characters"),
        (("inputs", 0, "unit"), "share\u202e", "unit must hold no control characters"),
        (("inputs", 0, "description"), "a\nb", "description must hold no control characters"),
        (("outputs", 0, "unit"), "ms\x07", "unit must hold no control characters"),
        (("specification", "statement"), "true\rfalse", "statement must hold no control characters"),
        (("seed",), 1.5, "seed must be an integer"),
        (("seed",), True, "seed must be an integer"),
        (("inputs",), [], "at least one"),
        (("inputs",), {}, "at least one"),
        (("inputs", 0), "psi", "must be a mapping"),
        (("inputs", 1, "name"), "psi_cpu_some", "names must be unique"),
        (("inputs", 0, "name"), 3, "name must be a text"),
        (("inputs", 0, "minimum"), 0.7, "box of psi_cpu_some must have its minimum at or below"),
        (("inputs", 0, "minimum"), math.nan, "minimum must be a finite number"),
        (("inputs", 0, "minimum"), 10**400, "minimum must be a finite number"),
        (("inputs", 0, "maximum"), None, "maximum must be a finite number"),
        (("inputs", 0, "maximum"), "0.6", "maximum must be a finite number"),
        (("inputs", 0, "physical_maximum"), -1.0, "must meet the physical range"),
        (("inputs", 0, "physical_maximum"), math.inf, "finite number or null"),
        (("outputs", 0, "unit"), None, "unit must be a text"),
        (("model", "file"), "../model.onnx", "file must be 'model.onnx'"),
        (("model", "sha256"), "A" * 64, "64 hex digits"),
        (("model", "sha256"), "a" * 63, "64 hex digits"),
        (("model", "opset"), 0, "opset must be a positive integer"),
        (("model", "output"), "latency", "output must be one of"),
        (("specification", "tolerance"), -1, "tolerance must be a finite number from 0"),
        (("specification", "properties"), [], "properties must be a list"),
        (("specification", "properties", 0), {}, "property must be a mapping"),
        (
            ("specification", "properties", 0, "monotone", "features", 0),
            "psi_cpu_sum",
            "did you mean 'psi_cpu_some'",
        ),
    ],
)
def test_an_unusable_value_is_refused(contract_data: Data, path: Any, value: Any, message: str) -> None:
    data = copy.deepcopy(contract_data())
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(InputError, match=message):
        Contract.from_json(data)


def test_unknown_and_missing_keys_are_named(contract_data: Data) -> None:
    with pytest.raises(InputError, match="did you mean 'workload'"):
        Contract.from_json({**contract_data(), "worklod": "x"})
    data = contract_data()
    del data["inputs"][0]["unit"]
    with pytest.raises(InputError, match=r"keys must include unit.*inputs\[0\]"):
        Contract.from_json(data)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, item in items for path in paths(item, (*here, key)))]


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_json_in_any_place_is_read_or_refused_and_nothing_else(
    contract_data: Data, data: st.DataObject
) -> None:
    contract = contract_data()
    path = data.draw(st.sampled_from(paths(contract)[1:]))
    target: Any = contract
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = data.draw(JSON)
    try:
        parsed = Contract.from_json(contract)
    except InputError:
        return
    assert Contract.from_json(parsed.to_json()) == parsed
    specification_sha256(parsed)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_without_canonical_bytes_are_refused_wherever_they_stand(contract_data: Data, value: float) -> None:
    data = contract_data()
    data["specification"]["properties"][0]["note"] = [{"weight": value}]
    with pytest.raises(InputError, match="finite"):
        Contract.from_json(data)
