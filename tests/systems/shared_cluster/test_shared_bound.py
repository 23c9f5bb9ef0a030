"""A contract of an agent keeps what agents share by, whoever acts."""

import json
from typing import Any

from models.control.contract.acting import code_sha256
from serving.contract import Contract
from serving.own_interface import bounds_for_all, other_interface
from systems.shared_cluster.interface import CONTROLS, SIGNALS, STEP_SECONDS
from tests.e2e.tiny import ROOT

ALLOTMENT: dict[str, Any] = {"start": 64.0, "end": 0.0625, "at_most": 0.0625}
ORDER: dict[str, Any] = {"upper": "allotment_cores", "lower": "target_cores", "factor": 1.0, "margin": -0.001}


def agent(ceilings: Any) -> Contract:
    """Of an agent of a shared cluster."""
    (control,), data = CONTROLS, json.loads((ROOT / "data/demo/bundle/contract.json").read_text())
    data["inputs"] = [{"name": one.name, "unit": one.unit, "description": "", "minimum": one.low,
                       "maximum": one.high, "physical_minimum": one.low, "physical_maximum": one.high}
                      for one in SIGNALS]
    data["outputs"] = [{"name": control.name, "unit": control.unit, "kind": "target", "minimum": control.low,
                        "maximum": control.high, "physical_minimum": control.low,
                        "physical_maximum": control.high}]
    module = "systems.shared_cluster.acting"
    data["driving"] = {"acting": {"module": module, "sha256": code_sha256(module)}, "whole": [],
                       "step_s": STEP_SECONDS, "current": {control.name: control.current},
                       "settings": {}, "seen": {"margin": 1.0, "ranges": []}}
    data["fallback"] = {"rule": "latency", "settings": {}, "safe_ranges": {control.name: {
        "minimum": control.low, "maximum": control.high, "most_down": control.most_down,
        "most_up": control.most_up, "ceilings": ceilings}}}
    return Contract.from_json(data)


def test_what_agents_share_by_is_kept_whoever_acts() -> None:
    whole, said = agent({"allotment_cores": ALLOTMENT}), "target_cores is proved to be at most allotment_cores"
    assert other_interface(whole) == bounds_for_all(whole, {"properties": [{"order": ORDER}]}) == ""
    for ceilings in ({}, {"allotment_cores": ALLOTMENT | {"at_most": 1.0}},
                     {"allotment_cores": ALLOTMENT | {"start": 32.0}}, {"fair_cores": ALLOTMENT}):
        less = agent(ceilings)
        assert other_interface(less) == ""
        assert said in bounds_for_all(less, {"properties": [{"order": ORDER}]})
        assert bounds_for_all(less, {"properties": [{"order": ORDER | {"when": {"usage": [0.5, 1]}}}]}) == ""
