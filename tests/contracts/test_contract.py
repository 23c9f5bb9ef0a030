"""contract.json as a controller gets it: the golden file, the serving side's reading of it, and its meaning."""

import json
from typing import Any

import pytest

from feature_store.schema import CONFIGURATION, METRICS, TARGETS
from serving.contract import Contract, specification_sha256
from tests.golden.regenerate import CONTRACT, contract_text, tiny_contract


@pytest.fixture(scope="module")
def contract() -> dict[str, Any]:
    return tiny_contract()


def test_the_contract_is_the_golden_one() -> None:
    assert contract_text() == CONTRACT.read_text(), "run `make golden` if the change is meant: controllers read this"


def test_the_serving_side_reads_and_writes_it_without_loss(contract: dict[str, Any]) -> None:
    read = Contract.from_json(contract)
    assert read.to_json() == contract
    assert read.input_names == ("psi_cpu_some", "psi_io_some", "connections")


def test_both_sides_digest_the_specification_alike(contract: dict[str, Any]) -> None:
    from models.export.bundle import specification_digest

    assert specification_digest(contract) == specification_sha256(Contract.from_json(contract))


def test_units_and_physical_bounds_are_the_schemas(contract: dict[str, Any]) -> None:
    schema = {**METRICS, **CONFIGURATION, **TARGETS}
    for item in (*contract["inputs"], *contract["outputs"]):
        column = schema[item["name"]]
        assert item["unit"] == column.unit
        assert (item["physical_minimum"], item["physical_maximum"]) == (column.minimum, column.maximum)
        assert item["minimum"] < item["maximum"]


def test_the_statement_says_what_was_proved_in_words(contract: dict[str, Any]) -> None:
    specification = contract["specification"]
    assert "increasing in psi_cpu_some, psi_io_some" in specification["statement"]
    assert f"{specification['tolerance']:g}" in specification["statement"]
    assert json.dumps(specification, allow_nan=False)
