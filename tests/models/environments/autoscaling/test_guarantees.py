"""Guarantees of an autoscaler for a run's report: what they rest on, and that they are proved of the file itself."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from models.environments.autoscaling import guarantees
from models.environments.autoscaling.environment import ENVIRONMENT
from models.environments.autoscaling.interface import CONTROLS
from models.environments.autoscaling.simulator import Autoscaling
from models.environments.environment import GuaranteedSystem
from models.export.policy_model import chain_onnx
from models.learners.policy import Policy
from models.learners.policy_chain import chain
from models.tasks import control
from models.tasks.control.policies import policy_shape
from models.tasks.task import load_task

LIMITS = {"target_cpu_limit_cores": (0.125, 2.0), "target_replicas": (1.0, 32.0)}
SETTINGS = {"server": "nginx", "slo_ms": 15.0}


def properties() -> list[dict[str, Any]]:
    file = Path(str(control.__file__)).parent / "autoscaling.yaml"
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
    assert guarantees.autoscaling_guarantees(model, left, SETTINGS, LIMITS) == []


def test_an_order_with_a_wider_margin_is_not_enough() -> None:
    wide = [{"order": {**one["order"], "margin": -0.5}} if order_of("target_replicas", True)(one) else one
            for one in written_out()]
    assert "target_replicas" in guarantees.missing(wide)


def test_an_anchor_at_half_utilisation_is_proved_of_its_file(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarantees, "CHANGES", (0.0,))
    assert isinstance(ENVIRONMENT, GuaranteedSystem)
    (found,) = ENVIRONMENT.guarantees(model, written_out(), SETTINGS, LIMITS)["found"]
    assert found["status"] == "PROVED" and found["growth"] > 1.1 and found["leaves"] >= 9
    assert f"after {found['steps']} steps and for ever after" in found["statement"]


def test_limits_that_cannot_carry_the_load_leave_nothing_to_prove(model: bytes) -> None:
    small = LIMITS | {"target_replicas": (1.0, 2.0)}
    assert guarantees.autoscaling_guarantees(model, written_out(), SETTINGS, small) == []


def test_upper_limits_are_those_of_the_network(model: bytes) -> None:
    """Under limits that high a backlog may be within the objective, and nothing follows of it."""
    wide = LIMITS | {"target_cpu_limit_cores": (0.125, 16.0)}
    (found,) = guarantees.autoscaling_guarantees(model, written_out(), SETTINGS, wide)
    assert "2 to 32 replicas of 0.5 to 16 cores" in found["statement"] and found["bound"] is None


def test_what_a_task_file_says_comes_before_what_was_recorded() -> None:
    assert guarantees.service_of({"server": "nginx", "cpu_ms": 3.0, "slo_ms": 20.0}).cpu_ms == 3.0
    assert guarantees.service_of(SETTINGS).cpu_ms == pytest.approx(0.95633)
    assert guarantees.service_of({}).memory_mib == 100.0
