"""Monotone by construction: whatever the weights, and the default specification of the autoscaler is proved at once."""

from pathlib import Path

import pytest
import torch
import yaml

from feature_store.errors import InputError
from models.control.policy.policy import Gates, Policy, PolicyShape
from models.control.policy.policy_chain import chain
from models.control.policy.policy_model import chain_onnx
from models.control.training.monotone import Monotone
from models.tasks.task import load_task
from models.verification.decide import decide
from models.verification.verdict import Status
from systems.autoscaling.environment import ENVIRONMENT

TASK = Path(__file__).parents[4] / "systems/autoscaling/autoscaling.yaml"
MONOTONE = {"p99_ms": 1, "served_share": -1, "rate_rps": 1}  # of the task


def shape(hidden=(24, 16), gates=Gates()):
    return PolicyShape(ENVIRONMENT.signals, ENVIRONMENT.controls, ENVIRONMENT.features, hidden, gates,
                       ENVIRONMENT.anchors)


def wild(of, seed, members=()):
    """Weights of which no training would dream."""
    policy = Policy(of, torch.Generator().manual_seed(seed), members)
    with torch.no_grad():
        policy.weights[-1].mul_(30.0)
        for bias in policy.biases:
            bias.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(seed))
    episodes = ENVIRONMENT.draw("train", 200, 4, seed)
    policy.normalise(ENVIRONMENT.observe(ENVIRONMENT.reset(episodes)))
    return policy


def slopes(policy, name, count=2000):
    """By how much targets rise with a signal, at observations all over the box."""
    random = torch.Generator().manual_seed(1)
    low, high = (torch.tensor([getattr(one, side) for one in policy.shape.signals], dtype=torch.float64)
                 for side in ("low", "high"))
    share = torch.rand(count, len(low), generator=random, dtype=torch.float64)
    x = torch.where(low > 0, low.clamp(min=1e-9) * (high / low.clamp(min=1e-9)) ** share, low + share * (high - low))
    column, other = policy.shape.column(name), x.clone()
    other[:, column] += torch.rand(count, generator=random) * (high[column] - x[:, column])
    return (policy.double()(other) - policy.double()(x)).detach()


@pytest.mark.parametrize("hidden", [(), (12,), (24, 16)])
def test_projected_policies_are_monotone_whatever_their_weights(hidden):
    policy = wild(shape(hidden), 0)
    assert slopes(policy, "p99_ms").min() < -0.1
    policy = policy.float()
    Monotone(MONOTONE).project(policy)
    for name, sign in MONOTONE.items():
        change = sign * slopes(policy, name)
        assert change.min() > -1e-9
        assert change.max() > 0.1  # and not by doing nothing


def test_a_second_projection_changes_nothing():
    policy = wild(shape(), 1)
    Monotone(MONOTONE).project(policy)
    before = [parameter.clone() for parameter in policy.parameters()]
    Monotone(MONOTONE).project(policy)
    for one, other in zip(before, policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_many_policies_are_projected_as_those_alone():
    many = wild(shape(), 2, (3,))
    alone = [many.member(k) for k in range(3)]
    Monotone(MONOTONE).project(many)
    for k, one in enumerate(alone):
        Monotone(MONOTONE).project(one)
        for own, together in zip(one.parameters(), many.member(k).parameters(), strict=True):
            torch.testing.assert_close(own, together, rtol=0, atol=1e-6)


def test_signals_of_one_feature_are_refused():
    with pytest.raises(InputError, match="expected signals that stand in different features"):
        Monotone({"p99_ms": 1, "slo_ms": -1}).project(wild(shape(), 3))


def specification(tmp_path, of, properties=None):
    written = yaml.safe_load(TASK.read_text())["specification"]
    path = tmp_path / "specification.yaml"
    path.write_text(yaml.safe_dump({
        "features": [signal.name for signal in of.signals], "outputs": [control.name for control in of.controls],
        "box": {signal.name: [signal.low, signal.high] for signal in of.signals},
        "properties": properties or written["properties"]}))
    return path


def exported(tmp_path, policy):
    path = tmp_path / "model.onnx"
    path.write_bytes(chain_onnx(*chain(policy), {}))
    return path


def task_gates():
    written = load_task(str(TASK)).by_construction
    return Gates(written.metric, written.objective, written.near, written.idle, written.hold)


@pytest.mark.parametrize("seed", range(6))
def test_slopes_keep_their_sign_beyond_rounding(seed):
    policy, demands = wild(shape((64, 64), task_gates()), seed), Monotone(MONOTONE)
    demands.project(policy)
    slopes = policy.weights[0].double() @ demands._along(policy).double().T
    sees = slopes.abs().sum(dim=1) > 0
    assert 0 < sees.sum() < 64 and (slopes[sees].abs() > 1e-6).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_specification_is_proved_of_any_monotone_policy_without_a_split(tmp_path, seed):
    policy = wild(shape((64, 64), task_gates()), seed)
    Monotone(MONOTONE).project(policy)
    verdict = decide(exported(tmp_path, policy), specification(tmp_path, policy.shape), seconds=60.0,
                     certificate=tmp_path / "proof.npz")
    assert verdict.status is Status.PROVED, verdict.parts
    assert sum(part.boxes for part in verdict.parts) == 16  # one for the orders, one for the ranges, one for each rest


def test_without_the_gates_it_is_refuted(tmp_path):
    policy = wild(shape(), 4)
    Monotone(MONOTONE).project(policy)
    written = yaml.safe_load(TASK.read_text())["specification"]["properties"]
    compared = [entry for entry in written if "at_least" in entry.get("order", {})]
    assert len(compared) == 8
    verdict = decide(exported(tmp_path, policy), specification(tmp_path, policy.shape, compared), seconds=60.0)
    assert verdict.status is Status.REFUTED
    (point,) = verdict.described["points"] if hasattr(verdict, "described") else verdict.witness["points"]
    seen = point["inputs"]
    assert seen["p99_ms"] >= seen["slo_ms"] or seen["cpu_utilization"] <= 0.2 or seen["memory_utilization"] <= 0.3
