"""Guarantees of an autoscaler for a run's report: what they rest on, and that they are proved of the file itself."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
import torch
import yaml

from feature_store.errors import InputError
from models.control.contract.acting import load_acting
from models.control.contract.environment import GuaranteedSystem
from models.control.policy.policy import Policy
from models.control.policy.policy_chain import chain
from models.control.policy.policy_model import chain_onnx
from models.tasks.control.policies import policy_shape
from models.tasks.task import load_task
from models.verification.checker.chain import read_chain
from systems import autoscaling
from systems.autoscaling.environment import ENVIRONMENT
from systems.autoscaling.guarantee import guarantees
from systems.autoscaling.guarantee.check_scaler_guarantee import claims_of
from systems.autoscaling.guarantee.guarantee_check import ASSUMED, check_shipped
from systems.autoscaling.guarantee.in_fluid_law import law_of, scaler_of
from systems.autoscaling.interface import CONTROLS
from systems.autoscaling.simulator.simulator import Autoscaling

LIMITS = {"target_cpu_limit_cores": (0.125, 2.0), "target_replicas": (1.0, 32.0)}
SETTINGS = {"server": "nginx", "slo_ms": 15.0}


def properties() -> list[dict[str, Any]]:
    file = Path(str(autoscaling.__file__)).parent / "autoscaling.yaml"
    return list(yaml.safe_load(file.read_text())["specification"]["properties"])


def written_out() -> list[dict[str, Any]]:
    """With defaults, as a bundle has it."""
    return [{**one, "order": {"factor": 1.0, **one["order"]}} if "order" in one else one for one in properties()]


@pytest.fixture(scope="module")
def model() -> bytes:
    """An untrained policy: anchored at half utilisation, within the limits of the workload, with the gates."""
    task = load_task("autoscaling")
    shape = policy_shape(task, Autoscaling().with_controls(tuple(
        replace(one, low=LIMITS[one.name][0], high=LIMITS[one.name][1]) if one.name in LIMITS else one
        for one in CONTROLS)))
    return chain_onnx(*chain(Policy(replace(shape, hidden=(4,)), torch.Generator().manual_seed(0))), {})


def test_the_specification_that_ships_is_what_it_rests_on() -> None:
    assert guarantees.missing(written_out()) == ""


def order_of(target: str, missed: bool) -> Callable[[dict[str, Any]], bool]:
    return lambda one: "order" in one and one["order"]["upper"] == target and ("at_least" in one["order"]) == missed


@pytest.mark.parametrize(("dropped", "lacks"), [
    (lambda one: one.get("monotone", {}).get("features") == ["p99_ms"], "monotone in p99_ms"),
    (lambda one: one.get("monotone", {}).get("features") == ["served_share"], "monotone in served_share"),
    (order_of("target_replicas", True), "target_replicas must not be below replicas"),
    (order_of("target_cpu_limit_cores", True), "target_cpu_limit_cores must not be below"),
    (order_of("target_replicas", False), "target_replicas must keep 75 %"),
    (lambda one: one.get("order", {}).get("when") == {"replicas": [1, 4]} and "at_least" in one["order"], "replicas"),
    (lambda one: one.get("order", {}).get("margin") == -1.001, "target_replicas must keep 75 %")])
def test_nothing_is_guaranteed_where_the_specification_lacks_an_order(dropped: Callable[[dict[str, Any]], bool],
                                                                      lacks: str, model: bytes) -> None:
    left = [one for one in written_out() if not dropped(one)]
    assert len(left) < len(written_out()) and lacks in guarantees.missing(left)
    assert guarantees.autoscaling_guarantees(model, left, SETTINGS, LIMITS) == ([], None)


def test_an_order_with_a_wider_margin_is_not_enough() -> None:
    wide = [{"order": {**one["order"], "margin": -0.5}} if order_of("target_replicas", True)(one) else one
            for one in written_out()]
    assert "target_replicas" in guarantees.missing(wide)


@pytest.fixture(scope="module")
def guaranteed(model: bytes) -> dict[str, Any]:
    """What the environment answers, for a load that does not change alone."""
    assert isinstance(ENVIRONMENT, GuaranteedSystem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guarantees, "CHANGES", (0.0,))
        return dict(ENVIRONMENT.guarantees(model, written_out(), SETTINGS, LIMITS))


def test_an_anchor_at_half_utilisation_is_proved_of_its_file(guaranteed: dict[str, Any]) -> None:
    (found,) = guaranteed["found"]
    assert found["status"] == "PROVED" and found["growth"] > 1.1 and found["leaves"] >= 9
    assert f"after {found['steps']} steps and for ever after" in found["statement"]


def test_what_ships_is_proved_again_from_its_file_alone(guaranteed: dict[str, Any], model: bytes) -> None:
    (found,), sent = guaranteed["found"], guaranteed["shipped"]
    check = load_acting(ENVIRONMENT.acting).check_guarantee
    checked = check(sent.content, model, written_out(), {"slo_ms": 15.0}, {}, 60.0)
    assert checked.accepted and checked.leaves == found["leaves"] and checked == sent.checked
    assert checked.statement.startswith("Of requests that take 0.95633 ms of CPU") and \
        found["statement"] in checked.statement and ASSUMED in checked.statement


def repacked(content: bytes, about: dict[str, Any] | None = None, **parts: bytes | None) -> bytes:
    """The file with other values of `about`, and other files; None: without it."""
    with np.load(io.BytesIO(content)) as arrays:
        kept = {name: arrays[name].tobytes() for name in arrays.files}
    kept["about"] = json.dumps(json.loads(kept["about"]) | (about or {})).encode()
    kept = {name: part for name, part in (kept | parts).items() if part is not None}
    file = io.BytesIO()
    np.savez(file, **{name: np.frombuffer(part, np.uint8) for name, part in kept.items()})
    return file.getvalue()


@pytest.mark.parametrize(("change", "reason"), [
    ({"about": {"change": 0.1}}, "law must be"), ({"about": {"load": [0.1, 1.0]}}, "law must be"),
    ({"about": {"service": {"cpu_ms": 9.0, "memory_mib": 100.0, "slo_ms": 15.0}}}, "observation must be"),
    ({"about": {"service": {"cpu_ms": 9.0, "memory_mib": 100.0, "slo_ms": 900.0}}}, "objective must be the policy's"),
    ({"about": {"service": {"cpu_ms": float("inf"), "memory_mib": 100.0, "slo_ms": 15.0}}}, "numbers > 0"),
    ({"about": {"replicas": [2, 10**12]}}, "replicas must be"), ({"about": {"replicas": [1, 32]}}, "replicas must be"),
    ({"about": {"limits": [0.01, 2.0]}}, "limits must be"), ({"about": {"kept_share": 1.0}}, "with change"),
    ({"replicas_3.npz": None}, "readable|replicas_3|3 replicas"), ({"replicas_3.npz": b"PK"}, "3 replicas"),
    ({"../else.npz": b"PK"}, "must hold about"), ({"scaler_guarantee.json": b"{}"}, "readable")],
    ids=lambda value: str(value)[:50])
def test_a_file_that_says_more_or_holds_something_else_is_refused(guaranteed: dict[str, Any], model: bytes,
                                                                  change: dict[str, Any], reason: str) -> None:
    sent = repacked(guaranteed["shipped"].content, **change)
    checked = check_shipped(sent, model, written_out(), {"slo_ms": 15.0}, 60.0)
    assert not checked.accepted and re.search(reason, checked.reason), checked.reason


def test_what_ships_is_refused_of_another_model_without_its_orders_and_out_of_time(guaranteed: dict[str, Any],
                                                                                   model: bytes) -> None:
    content = guaranteed["shipped"].content
    other = onnx.load_model_from_string(model)
    weight = next(one for one in other.graph.initializer if len(one.dims) == 2)
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * 2, weight.name))
    for arguments, reason in (((other.SerializeToString(), written_out(), {}), "policy must be the one"),
                              ((model, written_out()[:1], {}), "must rest on what is proved"),
                              ((model, written_out(), {}, 1e-9), "within the time limit"),
                              ((b"no model", written_out(), {}), "readable")):
        checked = check_shipped(content, *arguments)
        assert not checked.accepted and reason in checked.reason, checked.reason
    assert not check_shipped(b"no archive", model, written_out(), {}).accepted


def test_an_order_under_a_condition_is_none(model: bytes) -> None:
    narrow = [{"monotone": {**one["monotone"], "when": {"replicas": [1, 2]}}} if "monotone" in one else one
              for one in written_out()]
    assert "must be monotone" in guarantees.missing(narrow)


def test_limits_that_cannot_carry_the_load_leave_nothing_to_prove(model: bytes) -> None:
    small = LIMITS | {"target_replicas": (1.0, 2.0)}
    assert guarantees.autoscaling_guarantees(model, written_out(), SETTINGS, small) == ([], None)


@pytest.mark.parametrize("least", [(2.0, 3.0), (5.51, 1.0), (1.8333333333333335, 3.0)])
def test_limits_that_carry_the_load_at_their_least_leave_nothing_to_prove(model: bytes, least: tuple[float, float],
                                                                          ) -> None:
    ample = {"target_cpu_limit_cores": (least[0], 8.0), "target_replicas": (least[1], 20.0)}
    assert guarantees.autoscaling_guarantees(model, written_out(), SETTINGS, ample) == ([], None)


def test_upper_limits_are_those_of_the_network(model: bytes) -> None:
    """Under limits that high a backlog may be within the objective, and nothing follows of it."""
    wide = LIMITS | {"target_cpu_limit_cores": (0.125, 16.0)}
    (found,), shipped = guarantees.autoscaling_guarantees(model, written_out(), SETTINGS, wide)
    assert "2 to 32 replicas of 0.5 to 16 cores" in found["statement"] and found["bound"] is None and shipped is None


def test_nothing_is_guaranteed_of_observations_that_the_policy_is_never_shown(model: bytes) -> None:
    """At 0.01 ms a request the law's loads are beyond the range of the rates, at which the policy's sight ends; so is
    the latency of a backlog of 4,000 core seconds. A policy that acts beyond alone would be proved, and do nothing."""
    fast = {"cpu_ms": 0.01, "slo_ms": 15.0}
    (found,), sent = guarantees.autoscaling_guarantees(model, written_out(), fast, LIMITS)
    assert found["status"] == "UNKNOWN" and sent is None and found["bound"] is None
    assert "must stay within 0.0625 to 65536, beyond which it is cut" in found["statement"]
    service = guarantees.service_of(SETTINGS)
    law = law_of(service, (1.0, 5.0), 0.0, (0.5, 2.0), (2, 32))
    scaler = scaler_of(read_chain(model), service, law)
    assert claims_of(scaler, law, 60.0, 0.5, 1.0)
    with pytest.raises(InputError, match="must stay within 1 to 65536, beyond which it is cut"):
        claims_of(scaler, law, 4000.0, 0.5, 1.0)
    with pytest.raises(InputError, match=r"must stay within 0\.0625 to 65536"):
        claims_of(scaler_of(read_chain(model), replace(service, cpu_ms=0.01), law), law, 60.0, 0.5, 1.0)


def test_what_a_task_file_says_comes_before_what_was_recorded() -> None:
    assert guarantees.service_of({"server": "nginx", "cpu_ms": 3.0, "slo_ms": 20.0}).cpu_ms == 3.0
    assert guarantees.service_of(SETTINGS).cpu_ms == pytest.approx(0.95633)
    assert guarantees.service_of({}).memory_mib == 100.0
