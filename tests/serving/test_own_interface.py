"""A contract that says of a policy something else than its system does."""

import json
from pathlib import Path
from typing import Any

import pytest

from serving.contract import Contract
from serving.own_interface import other_interface
from tests.e2e.tiny import ROOT

SHIPPED = ROOT / "data/demo/bundle/contract.json"


def contract(change: Any) -> Contract:
    data = json.loads(Path(SHIPPED).read_text())
    change(data)
    return Contract.from_json(data)


def test_the_policies_that_ship_are_driven_as_their_system_is() -> None:
    assert other_interface(contract(lambda data: None)) == ""
    other = ROOT / "data/generic/autoscaling/bundle/contract.json"
    assert other_interface(Contract.from_json(json.loads(other.read_text()))) == ""


def _set(*path: Any) -> Any:
    *keys, last, value = path

    def change(data: Any) -> None:
        for key in keys:
            data = data[key]
        data[last] = value

    return change


@pytest.mark.parametrize(("change", "said"), [
    (_set("driving", "whole", []), "whole outputs must be the system's"),
    (_set("driving", "step_s", 3600.0), "seconds between decisions must be the system's, 15.0, got 3600.0"),
    (_set("driving", "settings", {"slo_ms": 50.0, "p99_ms": 5.0}), "settings must be the system's"),
    (_set("driving", "settings", {}), "settings must be the system's"),
    (_set("driving", "current", "target_replicas", "ready_replicas"), "present values must be the system's"),
    (_set("driving", "levels", {"target_cpu_limit_cores": [0.125, 0.8]}), "levels and safe range of target_cpu_limit"),
    (_set("inputs", 0, "physical_maximum", 2.0), "physical ranges of inputs must be the system's"),
    (_set("fallback", "safe_ranges", "target_replicas", "safe_side", "less"), "safe sides must be the system's"),
], ids=["whole", "step", "a measurement as a setting", "no setting", "present", "levels", "range", "safe side"])
def test_what_differs_is_named(change: Any, said: str) -> None:
    assert said in other_interface(contract(change))
