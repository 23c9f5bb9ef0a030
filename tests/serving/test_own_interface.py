"""A contract that says of a policy something else than its system does."""

import json
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import InputError
from serving.contract import Contract
from serving.own_interface import bounds_for_all, other_interface
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
    (_set("fallback", "safe_ranges", "target_replicas", "most_up", 9.0), "most_down and most_up must be the system's"),
    (_set("fallback", "safe_ranges", "target_replicas", "most_down", 1.0), "most_down and most_up must be the"),
    (_set("fallback", "rule", "nobody"), "fallback must be one of static, "),
    (_set("fallback", "settings", {"haste": 3.0}), "fallback must be one that can act: "),
    (_set("outputs", 0, "kind", "prediction"), "kinds of outputs must be the system's"),
    (_set("driving", "acting", "sha256", "0" * 64), "code of systems.autoscaling.acting must be what the bundle was"),
    (_set("driving", "acting", "module", "systems.nothing.acting"), "acting must be of a system that comes with Assay"),
    (_set("driving", "acting", "module", "systems.autoscaling.observer"), "must be of a system that comes with Assay"),
    (lambda data: data.pop("fallback"), "`driving` and `fallback` must be said together, got no `fallback`"),
    (lambda data: data.pop("driving"), "`driving` and `fallback` must be said together, got no `driving`"),
], ids=["whole", "step", "a measurement as a setting", "no setting", "present", "levels", "range", "safe side",
        "most up", "most down", "rule", "rule's settings", "kind", "code", "module", "part of a system", "no fallback",
        "no driving"])
def test_what_differs_is_named(change: Any, said: str) -> None:
    assert said in other_interface(contract(change))


def test_a_range_of_the_contract_s_own_is_held_against_the_system_s() -> None:
    def wider(data: Any) -> None:
        data["outputs"][2] |= {"physical_maximum": 1e6}
        data["fallback"]["safe_ranges"]["target_replicas"]["maximum"] = 1e6

    assert "safe range of target_replicas must be within 1 to 64" in other_interface(contract(wider))


@pytest.mark.parametrize(("change", "said"), [
    (_set("driving", "settings", {"slo_ms": 1.0}), "setting slo_ms must lie in the verified box, 4 to 16384"),
    (_set("driving", "settings", {"slo_ms": 50.0, "replicas": 1.0}), "setting replicas must be an input that never"),
    (_set("fallback", "safe_ranges", "target_replicas", "maximum", 65.0),
     "safe range of target_replicas must lie in its physical range 1 to 1, got"),
    (_set("fallback", "safe_ranges", "target_replicas", "minimum", 0.0), "safe range of target_replicas must lie in"),
], ids=["setting beyond the box", "present value as a setting", "safe range above", "safe range below"])
@pytest.mark.parametrize("module", ["systems.autoscaling.acting", "my_package.acting"])
def test_a_contract_that_contradicts_itself_is_refused_whatever_the_system(module: str, change: Any, said: str) -> None:
    def both(data: Any) -> None:
        data["driving"]["acting"]["module"] = module
        change(data)

    with pytest.raises(InputError, match=said):
        contract(both)


def test_of_a_system_of_a_user_s_own_nobody_here_knows_the_interface() -> None:
    def own(data: Any) -> None:
        data["driving"] |= {"acting": {"module": "my_package.acting", "sha256": "0" * 64}, "step_s": 7.0, "whole": []}
        data["fallback"] |= {"rule": "mine", "settings": {"haste": 3.0}}

    assert other_interface(contract(own)) == bounds_for_all(contract(own), {"properties": []}) == ""
