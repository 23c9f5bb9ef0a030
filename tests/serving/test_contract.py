"""contract.json round-trips to the byte, and what it cannot mean is refused by name."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from serving.canonical import canonical_json
from serving.contract import Contract

Data = Callable[..., dict[str, Any]]


def test_round_trip_keeps_every_byte(contract_data: Data) -> None:
    data = contract_data()
    contract = Contract.from_json(data)
    assert canonical_json(contract.to_json()) == canonical_json(data)
    assert Contract.from_json(contract.to_json()) == contract
    assert contract.input_names == ("psi_cpu_some", "psi_io_full", "connections")


def test_a_contract_cannot_be_changed(contract_data: Data) -> None:
    contract = Contract.from_json(contract_data())
    with pytest.raises(AttributeError):
        contract.task = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        contract.specification.sha256 = "1" * 64  # type: ignore[misc]


def test_finite_inputs_and_groups_round_trip(contract_data: Data) -> None:
    data = contract_data()
    data["inputs"][2]["values"] = [1, 8, 64]
    data["one_hot"] = [["psi_cpu_some", "psi_io_full"]]
    contract = Contract.from_json(data)
    assert canonical_json(contract.to_json()) == canonical_json(data)
    assert contract.inputs[2].values == (1, 8, 64) and contract.inputs[0].values is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "assay-bundle/1", "format must be 'assay-bundle/2'"),
        (("inputs", 2, "values"), [], "values must be ascending numbers inside of the box"),
        (("inputs", 2, "values"), [8, 1], "values must be ascending numbers inside of the box"),
        (("inputs", 2, "values"), [1, 65], "values must be ascending numbers inside of the box"),
        (("inputs", 2, "values"), [1, "8"], "values must be ascending numbers inside of the box"),
        (("one_hot",), [["connections"]], "one_hot must be groups of at least two inputs"),
        (("one_hot",), [["connections", "clients"]], "one_hot must be groups of at least two inputs"),
        (("one_hot",), {"a": 1}, "one_hot must be groups of at least two inputs"),
        (("outputs", 0, "kind"), "guess", "kind must be one of prediction, target, change, got 'guess'"),
        (("specification", "file"), "../other.yaml", "file must be 'specification.yaml'"),
        (("specification", "sha256"), "A" * 64, "64 hex digits"),
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
    canonical_json(parsed.to_json())
