"""contract.json as a controller gets it: the golden file, the serving side's reading of it, and its meaning."""

import json
from typing import Any

import pytest

from feature_store.schema import CONFIGURATION, METRICS, TARGETS
from serving.contract import Contract
from serving.promise import read_promise
from tests.golden.regenerate import CONTRACT, SPECIFICATION, contract_text, tiny_bundle


@pytest.fixture(scope="module")
def bundle() -> tuple[dict[str, Any], str]:
    return tiny_bundle()


@pytest.fixture(scope="module")
def contract(bundle: tuple[dict[str, Any], str]) -> dict[str, Any]:
    return bundle[0]


def test_the_contract_and_the_specification_are_the_golden_ones(bundle: tuple[dict[str, Any], str]) -> None:
    told = "run `make golden` if the change is meant: controllers read this"
    assert contract_text(bundle[0]) == CONTRACT.read_text() and bundle[1] == SPECIFICATION.read_text(), told


def test_the_serving_side_reads_and_writes_it_without_loss(bundle: tuple[dict[str, Any], str]) -> None:
    contract, specification = bundle
    read = Contract.from_json(contract)
    assert read.to_json() == contract
    assert read.input_names == ("psi_cpu_some", "psi_io_some", "connections")
    promise = read_promise(read, specification.encode(), "bundle")
    assert promise.specification.ordered(0) == [0, 1]


def test_units_and_physical_bounds_are_the_schemas(contract: dict[str, Any]) -> None:
    schema = {**METRICS, **CONFIGURATION, **TARGETS}
    for item in (*contract["inputs"], *contract["outputs"]):
        column = schema[item["name"]]
        assert item["unit"] == column.unit
        assert (item["physical_minimum"], item["physical_maximum"]) == (column.minimum, column.maximum)
        assert item["minimum"] < item["maximum"]


def test_the_statement_says_what_was_proved_in_words_and_in_the_outputs_unit(contract: dict[str, Any]) -> None:
    specification = contract["specification"]
    assert "increasing in psi_cpu_some, psi_io_some" in specification["statement"]
    assert " ms for each feature)" in specification["statement"]
    assert " ms, as the checker bounds it." in specification["statement"]
    assert json.dumps(specification, allow_nan=False)
