"""The policy: its chain of ReLUs computes what the network does, limits hold, files come back."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from feature_store.errors import InputError
from models.control.contract.signals import Ceiling
from models.control.policy.policy import Gates, Policy, PolicyShape
from models.control.policy.policy_chain import Box, chain
from models.control.policy.policy_model import INPUT, chain_onnx
from systems.autoscaling.interface import ANCHORS, CONTROLS, FEATURES, SIGNALS

GATES = Gates("p99_ms", "slo_ms", idle={
    "target_replicas": {"cpu_utilization": 0.3}, "target_cpu_limit_cores": {"cpu_utilization": 0.3},
    "target_memory_limit_mib": {"memory_utilization": 0.5}}, hold={"target_replicas": {"raised_s_ago": 60.0}})
CEILED = replace(GATES, ceilings={
    "target_replicas": {"memory_utilization": Ceiling(0.4, 0.9, 20.0)},
    "target_memory_limit_mib": {"served_share": Ceiling(0.9, 0.3, 9000.0)},
    "target_cpu_limit_cores": {"cpu_utilization": Ceiling(0.5, 0.8, 10.0), "p99_ms": Ceiling(100.0, 400.0, 8.0)}})
FORCED = replace(CEILED, retreat={"target_replicas": 0.1, "target_cpu_limit_cores": 0.2},
                 advance={"target_cpu_limit_cores": 0.05, "target_memory_limit_mib": 0.02}, calm=0.5,
                 enough={"target_cpu_limit_cores": {"served_share": 0.9}, "target_replicas": {"replicas": 20.0}})
# float64 sums of some hundred terms of up to 1e8 (milliseconds times the gates' slopes)
TOLERANCE = 1e-6


def shape(hidden=(24, 16), gates=GATES, extra=(), anchors=None):
    return PolicyShape(SIGNALS, CONTROLS, FEATURES, hidden, gates, anchors or {}).with_inputs(extra)


def policy_of(of, seed=0, scale=1.0, members=()):
    made = Policy(of, torch.Generator().manual_seed(seed), members)
    with torch.no_grad():
        for bias in made.biases:
            bias.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(seed + 1))
        made.weights[-1].mul_(scale)
    made.normalise(observations(of, 500, seed + 2).float())
    return made.double()


def observations(of, count, seed, knots=True):
    """Within the ranges, many on knots and on bounds, and around the objective."""
    random = np.random.default_rng(seed)
    columns = []
    for signal in of.signals:
        if signal.scale == "log":
            values = np.exp(random.uniform(np.log(signal.low), np.log(signal.high), count))
            places = np.concatenate([signal.knots[signal.knots <= signal.high], [signal.high]])
        else:
            values, places = random.uniform(signal.low, signal.high, count), np.array([signal.low, signal.high])
        at = random.random(count) < (0.2 if knots else 0.0)
        values[at] = random.choice(places, at.sum())
        columns.append(values)
    x = np.stack(columns, axis=1)
    names = [signal.name for signal in of.signals]
    near, p99, slo = random.random(count) < 0.3, names.index("p99_ms"), names.index("slo_ms")
    # at some the gates are half open
    ratios = random.choice([0.9, 0.95, 0.95003, 0.9503, 0.951, 0.97, 1.0, 1.0001, 1.02, 1.05], near.sum())
    x[near, p99] = np.clip(x[near, slo] * ratios, 1, 65536)
    return torch.tensor(x)


def run_chain(weights, biases, x):
    value = x.numpy()
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        value = np.maximum(value @ weight.T + bias, 0.0)
    return value @ weights[-1].T + biases[-1]


@pytest.mark.parametrize("hidden", [(), (24,), (24, 16)])
@pytest.mark.parametrize("gates", [Gates(), GATES, CEILED, FORCED])
@pytest.mark.parametrize("anchors", [{}, ANCHORS])
@pytest.mark.parametrize("scale", [1.0, 30.0])  # of changes: small ones, and ones beyond every limit
def test_the_chain_computes_what_the_policy_does(hidden, gates, anchors, scale):
    of = shape(hidden, gates, ("code_0", "code_1"), anchors)
    policy = policy_of(of, scale=scale)
    x = observations(of, 4000, 3)
    expected = policy(x).detach().numpy()
    assert len(np.unique(expected[:, 2])) > 500
    np.testing.assert_allclose(run_chain(*chain(policy), x), expected, rtol=TOLERANCE, atol=0)


def test_the_chain_of_a_box_is_smaller_and_the_same_inside():
    of = shape()
    policy = policy_of(of, scale=5.0)
    full = Box.of(of.signals)
    lower, upper = full.lower.copy(), full.upper.copy()
    for position, signal in enumerate(of.signals):
        if signal.name.startswith("rate"):
            lower[position], upper[position] = 10.0, 100.0
        if signal.name == "slo_ms":
            lower[position] = upper[position] = 250.0
        if signal.name == "replicas":
            lower[position] = 5.0
    weights, biases = chain(policy, Box(lower, upper))
    assert len(weights[0]) < len(chain(policy)[0][0]) - 60
    x = torch.tensor(observations(of, 4000, 4).numpy().clip(lower, upper))
    np.testing.assert_allclose(run_chain(weights, biases, x), policy(x).detach().numpy(), rtol=TOLERANCE)


def test_a_fixed_target_is_a_number_in_the_chain():
    fixed = tuple(replace(one, low=64.0, high=64.0) if "memory" in one.name else one for one in CONTROLS)
    of = replace(shape(hidden=(24,), anchors=ANCHORS), controls=fixed)
    policy = policy_of(of, scale=5.0)
    x = observations(of, 2000, 10)
    weights, biases = chain(policy)
    expected = policy(x).detach().numpy()
    assert (expected[:, 1] == 64.0).all() and len(np.unique(expected[:, 0])) > 200
    np.testing.assert_allclose(run_chain(weights, biases, x), expected, rtol=TOLERANCE)
    assert not weights[-1][1].any()


def test_observations_outside_of_the_ranges_count_as_their_ends():
    of = shape(gates=Gates())
    policy = policy_of(of, scale=5.0)
    x = observations(of, 1000, 5)
    factors = torch.tensor(np.random.default_rng(6).choice([0.1, 1.0, 10.0], x.shape))
    np.testing.assert_allclose(run_chain(*chain(policy), x * factors), policy(x * factors).detach().numpy(), rtol=1e-3)


@pytest.mark.parametrize("gates", [CEILED, replace(CEILED, idle={}, hold={}, metric="", objective="")])
def test_a_ceiling_holds_whatever_the_weights_and_the_limits_of_change(gates):
    of = shape(gates=gates)
    x = observations(of, 4000, 7)
    made = policy_of(of, scale=100.0)
    target, without = (one(x).detach().numpy() for one in (made, with_gates(made, replace(gates, ceilings={}))))
    cores, replicas = target[:, 0], target[:, 2]
    cpu, memory, p99 = (x[:, of.column(name)].numpy() for name in ("cpu_utilization", "memory_utilization", "p99_ms"))
    hot = memory >= 0.9
    assert (replicas[hot] <= 20.0).all() and (without[hot, 2] > 40.0).any()
    half = np.abs(memory - 0.65) < 0.02
    assert (replicas[half] <= 64.0 - 44.0 * (memory[half] - 0.4) / 0.5 + 1e-9).all() and replicas[half].max() > 35.0
    assert (cores[(cpu >= 0.8) & (p99 >= 400.0)] <= 2.0).all() and (cores[(cpu >= 0.8) & (p99 <= 100.0)] <= 10.0).all()
    served = x[:, of.column("served_share")].numpy()
    assert (target[served <= 0.3, 1] <= 9000.0).all() and (without[served <= 0.3, 1] > 20000.0).any()
    calm = (cpu <= 0.5) & (p99 <= 100.0) & (memory <= 0.4) & (served >= 0.9)
    assert np.array_equal(target[calm], without[calm]) and calm.sum() > 5


def test_what_is_demanded_holds_whatever_the_weights():
    """Of a control whose safe side is more, and of one whose safe side is less."""
    for side, sign in (("more", 1.0), ("less", -1.0)):
        controls = (replace(CONTROLS[0], safe_side=side), *CONTROLS[1:])
        of = replace(shape(gates=replace(FORCED, ceilings={})), controls=controls)
        x = observations(of, 20000, 11)
        target = policy_of(of, scale=100.0)(x).detach().numpy()[:, 0]
        cores, cpu, p99, slo, served = (x[:, of.column(name)].numpy() for name in (
            "cpu_limit_cores", "cpu_utilization", "p99_ms", "slo_ms", "served_share"))
        change, inside = sign * (target - cores) / cores, (cores > 0.5) & (cores < 7.0)
        missed, enough, idle = p99 >= slo, served >= 0.9, (cpu <= 0.3) & (p99 <= 0.5 * slo)
        assert (change[missed & ~enough & (served < 0.7) & inside] >= 0.2 - 1e-6).all(), "retreats"
        assert (np.abs(change[missed & enough & inside]) < 1e-6).all(), "held on both sides"
        assert (change[~missed & (p99 < 0.94 * slo) & (enough | idle) & inside] <= -0.05 + 1e-6).all(), "advances"
        assert min(where.sum() for where in (missed & inside & (served < 0.7), idle & inside, enough & inside)) > 50
        assert len(np.unique(change[inside])) > 200


def with_gates(policy, gates):
    other = Policy(replace(policy.shape, gates=gates)).double()
    other.load_state_dict(policy.state_dict())
    return other


def test_limits_hold_whatever_the_weights():
    of = shape(gates=Gates())
    x = observations(of, 4000, 7)
    target = policy_of(of, scale=100.0)(x).detach().numpy()
    for position, control in enumerate(CONTROLS):
        current = x[:, of.column(control.current)].numpy()
        least, most = current * (1 - control.most_down), current * (1 + control.most_up)
        if control.whole:
            least, most = np.minimum(least, current - 1), np.maximum(most, current + 1)
        least, most = np.clip(least, control.low, control.high), np.clip(most, control.low, control.high)
        y = target[:, position]
        assert (y >= least - 1e-9 * current).all() and (y <= most + 1e-9 * current).all()
        assert (y < least * 1.001).mean() > 0.02 and (y > most * 0.999).mean() > 0.02


def test_gates_hold_whatever_the_weights():
    of = shape()
    x = observations(of, 8000, 8)
    target = policy_of(of, scale=100.0)(x).detach().numpy()
    met = (x[:, of.column("p99_ms")] <= x[:, of.column("slo_ms")]).numpy()
    for position, control in enumerate(CONTROLS):
        current, y = x[:, of.column(control.current)].numpy(), target[:, position]
        ((name, floor),) = GATES.idle[control.name].items()
        idle = met & (x[:, of.column(name)] <= floor).numpy()
        assert (~met).sum() > 500 and idle.sum() > 200
        assert (y[~met] >= current[~met] * (1 - 1e-9)).all()
        assert (y[idle] <= current[idle] * (1 + 1e-9)).all()
        assert (y[met] < current[met]).mean() > 0.1 and (y[~idle] > current[~idle]).mean() > 0.02


def test_no_change_is_wished_by_a_policy_of_zeros():
    of = shape()
    x = observations(of, 500, 9)
    for position, control in enumerate(CONTROLS):
        torch.testing.assert_close(Policy(of).double()(x)[:, position], x[:, of.column(control.current)])


def test_many_policies_are_those_alone():
    of = shape()
    many = policy_of(of, members=(3,))
    x = observations(of, 200, 10)
    together = many(x)
    assert together.shape == (3, 200, 3)
    for k in range(3):
        torch.testing.assert_close(many.member(k).double()(x), together[k])
    apart = many(x.reshape(1, 200, -1).expand(3, -1, -1))
    torch.testing.assert_close(apart, together)


def test_some_are_taken_in_the_order_that_is_asked_for():
    many = policy_of(shape(), members=(3,))
    x = observations(shape(), 20, 11).float()
    for index in (range(2, -1, -2), [1, 1, 0]):
        some = many.taken(index)
        assert some.members == (len(index),)
        for place, k in enumerate(index):
            assert torch.equal(some.member(place)(x), many.member(k)(x))
    assert not torch.equal(many.member(0)(x), many.member(1)(x))


def test_a_single_policy_has_no_members_to_take():
    many = policy_of(shape(), members=(2,))
    with pytest.raises(ValueError, match=r"0 indices, one for each of members .*, got 1"):
        many.member(0).taken([0])
    for policy, index in ((many.member(0), (0,)), (many, ()), (many, (0, 0))):
        with pytest.raises(ValueError, match=f"one for each of members .*, got {len(index)}"):
            policy.member(*index)


def test_the_onnx_file_computes_it_in_raw_units():
    of = shape()
    policy = policy_of(of, scale=3.0)
    session = onnxruntime.InferenceSession(chain_onnx(*chain(policy), {"task": "autoscaling"}))
    x = observations(of, 2000, 11).float()
    (found,) = session.run(None, {INPUT: x.numpy()})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, policy(x.double()).detach().numpy(), rtol=1e-6)


def test_a_saved_policy_comes_back(tmp_path: Path):
    of = shape(extra=("code_0",), anchors=ANCHORS)
    policy = policy_of(of).float()
    policy.save(tmp_path / "policy.npz")
    again = Policy.load(tmp_path / "policy.npz")
    x = observations(of, 50, 12).float()
    assert again.shape == of
    assert torch.equal(again(x), policy(x))


def test_a_file_that_is_no_policy_is_an_error(tmp_path: Path):
    content = io.BytesIO()
    np.savez(content, a=np.zeros(3))
    (tmp_path / "policy.npz").write_bytes(content.getvalue())
    with pytest.raises(InputError, match="expected a file that a policy was saved in"):
        Policy.load(tmp_path / "policy.npz")


LESS = tuple(replace(one, safe_side="less") if one.name == "target_cpu_limit_cores" else one for one in CONTROLS)
NO_METRIC = replace(GATES, metric="", objective="")


@pytest.mark.parametrize("gates", [GATES, NO_METRIC])
def test_where_the_safe_side_is_less_the_gates_of_up_and_down_change_places(gates):
    hold = {"target_cpu_limit_cores": {"raised_s_ago": 60.0}}
    of = replace(shape(gates=replace(gates, hold=hold)), controls=LESS)
    names = [signal.name for signal in of.signals]
    policy, x = policy_of(of, scale=30.0), observations(of, 4000, 8)
    cores, replicas, p99, slo, raised, used = (x[:, names.index(name)] for name in (
        "cpu_limit_cores", "replicas", "p99_ms", "slo_ms", "raised_s_ago", "cpu_utilization"))
    found = policy(x)
    risen, fallen = found[:, 0] > cores + 1e-9, found[:, 0] < cores - 1e-9
    held = raised <= 60.0
    assert held.sum() > 300 and not risen[held].any()
    idle = (used < 0.3) & (p99 <= slo) if gates.metric else used < 0.3
    assert idle.sum() > 300 and not fallen[idle].any()
    free = ~held & ~idle
    assert (risen & ~held).sum() > 30 and (fallen & free).sum() > 30
    if gates.metric:
        missed = p99 > slo
        assert missed.sum() > 300 and not risen[missed].any()
        fewer = found[:, 2] < replicas - 1e-9
        assert not fewer[missed].any() and fewer.sum() > 100
    np.testing.assert_allclose(run_chain(*chain(policy), x), found.detach().numpy(), rtol=TOLERANCE, atol=0)


def test_an_unknown_signal_is_an_error():
    with pytest.raises(InputError, match="expected one of cpu_limit_cores"):
        shape().column("latency")


def test_what_was_raised_a_short_time_ago_is_not_lowered():
    of = shape()
    names = [signal.name for signal in of.signals]
    x = observations(of, 4000, 5)
    policy = policy_of(of, scale=30.0)
    replicas, raised = names.index("replicas"), names.index("raised_s_ago")

    def lowered(seconds):
        x[:, raised] = seconds
        return policy(x)[:, 2] < x[:, replicas] - 1e-9

    assert not lowered(15.0).any() and not lowered(60.0).any()
    assert lowered(75.0).sum() > 300
