"""A controller in the simulated world: it does what was trained, and in every trouble what is stated."""

import errno
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from feature_store.errors import InputError, RefusedError
from models.control.contract.signals import ROUNDING, rounded_up
from models.control.policy.policy import Gates, Policy, PolicyShape
from models.control.training.trajectories import transitions_of_log
from models.control.training.trajectory_log import read_log
from serving.actuators.actuator import ActuatorError
from serving.control.checks import Distribution
from serving.control.memory import read_memory
from serving.control.parts import Readings, Share
from serving.control.shield import Budget, Limit, Shield
from serving.fallback_spec import SafeRange
from serving.seen_spec import Familiar, seen_spec
from systems.autoscaling.guarantee.catching_up import ROUNDED_DOWN
from systems.autoscaling.interface import CONTROLS
from systems.autoscaling.observer import AutoscalingObserver
from systems.autoscaling.rules.rules import make
from tests.serving.control.world import (
    NAMES,
    SAFE,
    STEP_S,
    OneModel,
    Said,
    World,
    autoscaling,
    keep,
    loop_of,
    measured,
    nonsense,
)


def _policy(environment) -> Policy:
    torch.manual_seed(0)
    # as every proved one: while the objective is missed it takes nothing away, so that the shield has nothing to do
    shape = PolicyShape(environment.signals, environment.controls, environment.features,
                        gates=Gates("p99_ms", "slo_ms"), anchors=environment.anchors)
    policy = Policy(shape, torch.Generator().manual_seed(1))
    with torch.no_grad():
        policy.biases[-1].add_(torch.tensor([0.02, -0.01, 0.1]))
    return policy


def _answers(policy):
    def answer(row):
        targets = policy(torch.tensor([[row[name] for name in NAMES]]))[0].tolist()
        return dict(zip((control.name for control in CONTROLS), targets, strict=True))
    return answer


@pytest.mark.parametrize(("down", "up"), [(0.25, 1.0), (0.15, 0.7)])
def test_whole_targets_are_rounded_alike_beside_a_live_system_in_simulation_and_in_the_law(down, up):
    """Of 2,000 targets, most of them close to a whole number, from each number of replicas that there may be."""
    environment, random = autoscaling(), np.random.default_rng(0)
    cpu, memory, count = environment.controls
    environment.controls = (cpu, memory, replace(count, most_down=down, most_up=up))
    now = torch.tensor(random.integers(1, 65, 2000), dtype=torch.float32)
    wanted = torch.tensor(random.integers(1, 65, 2000) + random.choice(
        [0.0, 4e-4, 5e-4, 9e-4, 2e-3, -5e-4, 0.3, 0.5], 2000), dtype=torch.float32)
    state = environment.reset(environment.draw("train", 2000, 2, 0))
    state = state._replace(replicas=now)
    simulated = environment.step(state, torch.stack([state.limit, state.memory, wanted], dim=1))[0].replicas
    shield = Shield([Limit("target_replicas", "replicas", SafeRange(1.0, 64.0, down, up), whole=True)])
    live = [shield.allowed({"target_replicas": one}, {"replicas": before}, {}, blind=False, missed=False)
            .targets["target_replicas"] for one, before in zip(wanted.tolist(), now.tolist(), strict=True)]
    assert simulated.tolist() == live
    assert ROUNDED_DOWN == ROUNDING, "what the closed loop's proofs allow for"
    assert [rounded_up(one, math.ceil) for one in (3.0005, 3.002, 2.9995)] == [3, 4, 3]


def test_a_policy_beside_a_live_system_does_what_it_does_in_training(tmp_path):
    world, twin = World(), World()
    # when replicas were raised before a controller began, nobody knows: as if just now
    twin.state = twin.state._replace(raised_s=torch.full_like(twin.state.raised_s, 15.0))
    policy = _policy(world.environment)
    loop = loop_of(world, tmp_path, Said(_answers(policy)))
    records = [loop.step() for _ in range(60)]
    for _ in range(60):
        with torch.no_grad():
            twin._pass(policy(twin.environment.observe(twin.state)))
    assert [one.actor for one in records] == ["policy"] * 60
    assert world.costs == pytest.approx(twin.costs, rel=2e-3)
    assert len(set(world.costs)) > 10
    assert all(one.changes == () for one in records)


def test_the_fallback_beside_a_live_system_does_what_it_does_in_training(tmp_path):
    world, twin = World(), World()
    loop = loop_of(world, tmp_path, None, models=OneModel(None, "no champion"))
    records = [loop.step() for _ in range(60)]
    rule = make("hpa-cpu-p99-vpa-memory")
    rule.start(1)
    for step in range(60):
        shown = {name: torch.tensor([value]).numpy() for name, value in twin.shown.items()}
        targets = {name: float(values[0]) for name, values in rule.act(shown, 15.0 * step).items()}
        if AutoscalingObserver().outcome(twin.shown)["violated"]:  # the shield takes nothing away then
            targets = {one.name: max(targets[one.name], twin.shown[one.current]) for one in CONTROLS}
        twin._pass(torch.tensor([[targets[one.name] for one in CONTROLS]]))
    assert {(one.actor, one.reason) for one in records} == {("fallback", "no champion")}
    assert world.costs == pytest.approx(twin.costs, rel=1e-3)
    assert len(set(world.costs)) > 3


def test_the_log_is_what_training_reads(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    for _ in range(12):
        loop.step()
    loop.close()
    read = read_log(tmp_path / "steps")
    assert read.lost == ()
    assert [one.step for one in read.steps] == list(range(12))
    assert [one.mark for one in read.steps] == ["measured"] * 11 + ["missing"]
    assert {one.actor for one in read.steps} == {"policy"}
    assert read.steps[3].detail["said"] == pytest.approx(keep(dict(zip(NAMES, read.steps[3].observation, strict=True))))
    assert set(read.steps[3].detail["took_s"]) == {"observe", "decide", "act"}
    assert len(transitions_of_log(read)) == 11


@pytest.mark.parametrize(("age_s", "behind"), [(15.0, 0), (5.0, 1)])
def test_a_reward_is_that_of_the_interval_in_which_it_was_measured(tmp_path, age_s, behind):
    """Metrics of the world are an interval late; who says so by their age has rewards where they belong."""
    world = World(age_s=age_s, environment=autoscaling(noisy_metrics=False))
    world.state = world.state._replace(limit=0.4 * world.state.limit)  # so that each step violates by another amount
    loop = loop_of(world, tmp_path, Said(keep))
    true = []
    for _ in range(14):
        loop.step()
        latest = world.state.latest
        true.append(max(0.0, math.log(float(latest.p99_ms) / world.shown["slo_ms"])) + 4 * (1 - float(latest.served)))
    loop.close()
    steps = read_log(tmp_path / "steps").steps
    assert [one.step for one in steps] == list(range(14))
    assert [one.mark for one in steps] == ["measured"] * (12 + behind) + ["missing"] * (2 - behind)
    known = [one.violation for one in steps if one.mark == "measured"]
    assert known[behind:] == pytest.approx(true[:12], rel=1e-3)
    assert len(set(true)) == 14


@pytest.mark.parametrize(("late_s", "due_s", "mark"), [(2.0, None, "measured"), (4.0, None, "irregular"),
                                                       (-4.0, None, "irregular"), (4.0, 19.0, "measured")])
def test_a_step_of_another_length_is_marked(tmp_path, late_s, due_s, mark):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    if due_s is not None:
        loop.expect(due_s)
    loop.step()
    world.now += late_s
    loop.step()
    step = read_log(tmp_path / "steps").steps[0]
    assert (step.mark, step.detail["interval_s"]) == (mark, 15.0 + late_s)
    assert math.isfinite(step.reward) == (mark == "measured")


@pytest.mark.parametrize(("broken", "actor", "reason"), [
    ("reader", "fallback", "no measurements: Prometheus must answer"),
    ("present", "nobody", "actuator: target must be there"),
    ("lease", "nobody", "actuator: lease must be readable"),
])
def test_what_breaks_has_its_stated_end(tmp_path, broken, actor, reason):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    assert loop.step().actor == "policy"
    world.broken, before = broken, world.state
    record = loop.step()
    assert record.actor == actor
    assert record.reason.startswith(reason)
    if actor == "nobody":
        assert world.state is before
        assert record.targets == {}
        world.pass_by()
    world.broken = ""
    assert loop.step().actor == "policy"


@pytest.mark.parametrize(("lost", "actor"), [(("p99_ms",), "fallback"), (("cpu_utilization", "rate_rps"), "fallback")])
def test_a_missing_metric_hands_over_to_the_fallback_and_says_which(tmp_path, lost, actor):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep), hand_back_after=3)
    actors = []
    for step in range(10):
        world.lost = lost if step == 5 else ()
        record = loop.step()
        actors.append(record.actor)
        if step == 5:
            assert all(f"{name} is missing" in record.reason for name in lost)
            assert all(math.isfinite(value) for value in record.targets.values())
    assert actors == ["fallback"] * 2 + ["policy"] * 3 + [actor] * 3 + ["policy"] * 2


def test_a_stale_metric_is_no_metric(tmp_path):
    loop = loop_of(World(), tmp_path, Said(keep), fresh_s={"p99_ms": 4.0})
    record = loop.step()
    assert (record.actor, record.reason) == ("fallback", "p99_ms is 5 s old, more than 4 s")


@pytest.mark.parametrize("value", [-3.0, 1e9, math.inf])
def test_a_source_that_lies_is_not_believed(tmp_path, value):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    honest = world.read
    world.read = lambda: type(honest())({**honest().values, "cpu_utilization": value}, {})
    record = loop.step()
    assert record.actor == "fallback"
    assert "cpu_utilization is" in record.reason


@pytest.mark.parametrize(("age_s", "late"), [(15.0, True), (5.0, False)])
def test_a_share_of_what_was_set_follows_from_amounts_and_is_as_old_as_they_are(tmp_path, age_s, late):
    """Of the limits that stood in the interval that is measured: the last one, or by its age the one before."""
    shares = {"cpu_utilization": Share("cpu_used_cores", ("ready_replicas", "cpu_limit_cores")),
              "memory_utilization": Share("memory_used_mib", ("memory_limit_mib",))}
    world = World(lost=tuple(shares), age_s=age_s, environment=autoscaling(late_metrics=late))
    doubling = {"target_cpu_limit_cores": "cpu_limit_cores", "target_memory_limit_mib": "memory_limit_mib",
                "target_replicas": "replicas"}
    loop = loop_of(world, tmp_path, Said(lambda row: {name: row[of] * (2.0 if row["raised_s_ago"] % 2 else 1.5)
                                                      for name, of in doubling.items()}), shares=shares,
                   fresh_s={"cpu_utilization": 60.0})
    told = []
    for _ in range(6):
        shown = world.shown
        record = loop.step()
        told.append([(record.seen[name], shown[name]) for name in shares])
        assert not record.troubles
    for pairs in told[1:]:
        for found, true in pairs:
            assert found == pytest.approx(true, rel=1e-4)
    assert len({true for pairs in told for _, true in pairs}) > 6, "limits changed in every step"
    world.age_s = 1000.0
    assert any("cpu_utilization" in one for one in loop.step().troubles), "as old as the CPU that is used"
    world.age_s, world.lost = 5.0, (*shares, "cpu_used_cores")
    assert any("cpu_utilization" in one for one in loop.step().troubles)


def test_an_idle_service_is_no_impossible_one(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    honest = world.read
    world.read = lambda: type(honest())({**honest().values, "cpu_utilization": 0.0}, {})
    record = loop.step()
    assert record.actor == "policy"
    assert record.seen["cpu_utilization"] == 0.015625


LOAD = {"name": "load a core", "scale": "log", "terms": {"rate_rps": 1.0, "replicas": -1.0, "cpu_limit_cores": -1.0}}


def _familiar(world, low, high):
    """Training saw these multiples of the present load a core."""
    shown = world.shown
    load = shown["rate_rps"] / shown["replicas"] / shown["cpu_limit_cores"]
    spec = seen_spec({"margin": 1.5, "ranges": [{**LOAD, "minimum": low * load, "maximum": high * load}]}, NAMES)
    return Familiar(spec, dict.fromkeys(NAMES, 1.0))


def test_what_training_never_saw_is_the_fallback_s_until_it_is_over(tmp_path):
    world = World()
    models = OneModel(Said(keep, familiar=_familiar(world, 0.01, 100.0)))
    loop = loop_of(world, tmp_path, None, models=models, hand_back_after=2)
    assert [loop.step().actor for _ in range(2)] == ["fallback", "policy"]
    models.predictor.familiar = _familiar(world, 4.0, 5.0)
    record = loop.step()
    assert (record.actor, record.strange, record.said) == ("fallback", ("load a core",), None)
    assert record.reason.startswith("out of distribution: load a core is ")
    assert ", training saw " in record.reason
    assert record.done == record.targets != {}
    models.predictor.familiar = _familiar(world, 0.01, 100.0)
    assert [loop.step().actor for _ in range(2)] == ["fallback", "policy"]
    assert read_log(tmp_path / "steps").steps[2].detail["strange"] == ["load a core"]


@pytest.mark.parametrize("distribution", [Distribution(margin=10.0), Distribution(ignored=("replicas",))])
def test_an_operator_may_say_what_counts_as_out_of_distribution(tmp_path, distribution):
    world = World()
    models = OneModel(Said(keep, familiar=_familiar(world, 4.0, 5.0)))
    assert loop_of(world, tmp_path / "a", None, models=models).step().actor == "fallback"
    assert loop_of(world, tmp_path / "b", None, models=models, distribution=distribution).step().actor == "policy"


def _refuses(row):
    raise RefusedError("the model must answer with finite numbers, got nan")


@pytest.mark.parametrize(("predictor", "reason"), [
    (Said(_refuses), "policy: the model must answer with finite numbers"),
    (Said(keep, out_of_distribution=True), "workload is out of distribution")])
def test_a_policy_that_fails_is_replaced_in_the_same_step(tmp_path, predictor, reason):
    record = loop_of(World(), tmp_path, predictor).step()
    assert record.actor == "fallback"
    assert record.reason.startswith(reason)
    assert record.done == record.targets != {}


def test_an_answer_that_comes_too_late_is_not_used(tmp_path):
    world = World()

    def slow(row):
        world.now += 9.0
        return dict.fromkeys(keep(row), 1.0)

    record = loop_of(world, tmp_path, Said(slow)).step()
    assert (record.actor, record.reason) == ("fallback", "policy took 9 s, more than 5 s")
    assert record.said is not None


def test_nothing_is_set_of_what_is_no_number(tmp_path):
    record = loop_of(World(), tmp_path, Said(nonsense)).step()
    assert record.actor == "nobody"
    assert "target must be a finite number" in record.reason


def test_a_wild_policy_is_shielded_and_the_record_says_how(tmp_path):
    limits = [Limit(one.name, one.current, SAFE[one.name], one.whole) for one in CONTROLS]
    shield = Shield(limits, [Budget("cores", ("target_replicas", "target_cpu_limit_cores"), 30.0)])
    world = World()
    loop = loop_of(world, tmp_path, Said(dict.fromkeys(keep(world.shown), 1e6)), shield=shield)
    for _ in range(12):
        before = world.shown
        record = loop.step()
        assert any(change.reason == "range" for change in record.changes)
        cores = record.targets["target_replicas"] * record.targets["target_cpu_limit_cores"]
        assert cores <= max(30.001, before["replicas"] * before["cpu_limit_cores"] * 1.001)
        assert record.said["target_replicas"] == 1e6


def test_a_kill_switch_stops_everyone_and_the_fallback_begins_after_it(tmp_path):
    world, on = World(), [""]
    loop = loop_of(world, tmp_path, Said(keep), stops=lambda: on[0], hand_back_after=2)
    for _ in range(3):
        loop.step()
    on[0], before = "kill switch", world.state
    record = loop.step()
    assert (record.actor, record.reason, record.done) == ("nobody", "kill switch", None)
    assert world.state is before
    on[0] = ""
    assert [loop.step().actor for _ in range(3)] == ["fallback", "policy", "policy"]


def test_of_two_controllers_one_acts(tmp_path):
    world = World()
    one = loop_of(world, tmp_path / "one", Said(keep), holder="one")
    two = loop_of(world, tmp_path / "two", Said(keep), holder="two")
    assert one.step().actor == "policy"
    record = two.step()
    assert (record.actor, record.reason) == ("nobody", "one has the lease")
    one.close()
    assert two.step().actor == "policy"


def test_who_has_the_lease_comes_before_an_actuator_that_cannot_say_what_is_set(tmp_path, monkeypatch):
    world = World()
    one = loop_of(world, tmp_path / "one", Said(keep), holder="one")
    two = loop_of(world, tmp_path / "two", Said(keep), holder="two")
    one.step()

    def away():
        raise ActuatorError("gone", "no such group")

    monkeypatch.setattr(world, "present", away)
    assert [loop.step().reason for loop in (one, two)] == ["actuator: no such group", "one has the lease"]


def test_a_champion_that_is_revoked_while_it_acts_acts_no_more(tmp_path):
    world, models = World(), OneModel(Said(keep))
    loop = loop_of(world, tmp_path, None, models=models)
    assert loop.step().actor == "policy"
    models.refused = "version 1 is no champion any more"
    assert (loop.step().reason, loop.step().actor) == ("version 1 is no champion any more", "fallback")


def test_what_an_actuator_did_in_part_is_what_the_log_says(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    world.broken = "apply"
    record = loop.step()
    assert record.failure.startswith("actuator: target must not be changed by others")
    assert record.done == {"target_replicas": 2.0}
    world.broken = ""
    world.pass_by()
    loop.step()
    assert read_log(tmp_path / "steps").steps[0].targets[2] == 2.0


def test_a_full_disk_takes_the_policy_out_and_the_service_is_still_cared_for(tmp_path, monkeypatch):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    loop.step()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("models.control.training.trajectory_log.os.write", full)
        patched.setattr("serving.control.memory.write_file", full)
        record = loop.step()
        assert record.actor == "fallback"
        assert "No space left on device" in record.reason
        assert "memory: No space left on device" in record.failure
        assert record.done is not None
        assert loop.step().actor == "fallback"
    loop.step()  # memory could not be written in the step before
    assert loop.step().actor == "policy"


class Killed(BaseException):
    """In place of SIGKILL: nothing catches it."""


@pytest.mark.parametrize("place", ["read", "present", "acquire", "apply"])
def test_whoever_is_killed_at_any_point_goes_on_with_each_step_in_the_log_once(tmp_path, place):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    for _ in range(3):
        loop.step()
    honest = getattr(world, place)

    def dies(*_):
        raise Killed

    setattr(world, place, dies)
    with pytest.raises(Killed):
        loop.step()
    setattr(world, place, honest)
    again = loop_of(world, tmp_path, Said(keep))
    again.step()
    again.close()
    read = read_log(tmp_path / "steps")
    keys = [(one.episode, one.step) for one in read.steps]
    assert read.lost == ()
    assert keys == sorted(set(keys))
    assert keys[:3] == [(0, 0), (0, 1), (0, 2)]
    assert keys[-1] == (1, 0)
    assert ((0, 3) in keys) == (place == "apply")


def test_what_was_raised_and_lowered_is_remembered_across_a_restart(tmp_path):
    limits = [Limit(one.name, one.current, SAFE[one.name], one.whole, cool_down_s=300.0) for one in CONTROLS]
    world = measured(World())
    fewer = lambda row: keep(row) | {"target_memory_limit_mib": 0.9 * row["memory_limit_mib"]}  # noqa: E731
    loop = loop_of(world, tmp_path, Said(fewer), shield=Shield(limits))
    assert loop.step().changes == ()
    assert loop.step().changes[0].reason == "cool_down"
    again = loop_of(world, tmp_path, Said(fewer), shield=Shield(limits))
    assert again.step().changes[0].reason == "cool_down"


def test_what_someone_else_lowered_is_not_lowered_further_for_a_while(tmp_path):
    limits = [Limit(one.name, one.current, SAFE[one.name], one.whole, cool_down_s=40.0) for one in CONTROLS]
    world, less = measured(World()), [1.0]
    policy = lambda row: keep(row) | {"target_memory_limit_mib": less[0] * row["memory_limit_mib"]}  # noqa: E731
    loop = loop_of(world, tmp_path, Said(policy), shield=Shield(limits))
    loop.step()
    world.state = world.state._replace(memory=0.8 * world.state.memory)
    less[0] = 0.9
    assert [[change.reason for change in loop.step().changes] for _ in range(4)] == [
        ["cool_down"], ["cool_down"], ["cool_down"], []]


def test_replicas_that_it_raised_and_someone_lowered_at_once_count_as_raised(tmp_path):
    world, more = World(), [0.0]
    loop = loop_of(world, tmp_path, Said(lambda row: keep(row) | {"target_replicas": row["replicas"] + more[0]}))
    for _ in range(8):
        loop.step()
    replicas = world.state.replicas.clone()
    more[0] = 1.0
    loop.step()
    world.state, more[0] = world.state._replace(replicas=replicas), 0.0
    assert [loop.step().seen["raised_s_ago"] for _ in range(2)] == [15.0, 30.0]


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": "other"}', b"[1]"])
def test_a_memory_that_is_none_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "memory.json").write_bytes(content)
    with pytest.raises(InputError, match="memory must be a file that a controller wrote"):
        loop_of(World(), tmp_path, Said(keep))


def test_a_bundle_that_does_not_say_how_it_is_driven_is_refused(tmp_path, monkeypatch):
    from tests.serving.control import world as module

    def without(slo_ms: float, made=module.contract):
        return type(made(slo_ms)).from_json({key: value for key, value in made(slo_ms).to_json().items()
                                            if key != "driving"})

    monkeypatch.setattr(module, "contract", without)
    with pytest.raises(InputError, match="got no `driving`"):
        loop_of(World(), tmp_path, Said(keep))


def test_a_record_can_be_written_as_json(tmp_path):
    record = loop_of(World(), tmp_path, Said(keep)).step()
    assert json.loads(json.dumps(vars(record)))["actor"] == "policy"


def _raises(*_, **__):
    raise KeyError("a library's own error")


@pytest.mark.parametrize(("place", "actor", "reason"), [
    ("read", "fallback", "no measurements: KeyError"), ("present", "nobody", "actuator: KeyError"),
    ("acquire", "nobody", "actuator: KeyError")])
def test_an_error_of_any_type_ends_a_step_and_no_controller(tmp_path, place, actor, reason):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    honest = getattr(world, place)
    setattr(world, place, _raises)
    record = loop.step()
    assert (record.actor, record.reason.startswith(reason)) == (actor, True)
    setattr(world, place, honest)
    assert loop.step().actor == "policy"


def test_a_policy_and_an_actuator_that_raise_anything_do_not_end_it(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, Said(_raises))
    world.apply = _raises
    record = loop.step()
    assert record.actor == "fallback"
    assert record.reason == "policy: KeyError: \"a library's own error\""
    assert record.failure == "actuator: KeyError: \"a library's own error\""


def test_where_the_fallback_fails_too_nobody_acts(tmp_path):
    loop = loop_of(World(), tmp_path, None, models=OneModel(None, "no champion"))
    loop._parts.fallback.act = _raises
    record = loop.step()
    assert record.actor == "nobody"
    assert record.reason.startswith("no champion; fallback: KeyError")


def _reads(world, **wrong):
    honest = world.read
    world.read = lambda: Readings({**honest().values, **wrong}, honest().ages_s)


@pytest.mark.parametrize("lie", [{"cpu_utilization": 1e9}, {"cpu_utilization": -3.0}])
def test_the_fallback_does_not_follow_a_value_that_was_refused(tmp_path, lie):
    world, calm = World(), World()
    loop = loop_of(world, tmp_path / "a", None, models=OneModel(None, "no champion"), rule="hpa-cpu")
    other = loop_of(calm, tmp_path / "b", None, models=OneModel(None, "no champion"), rule="hpa-cpu")
    calm.lost = ("cpu_utilization",)
    _reads(world, **lie)
    for _ in range(5):
        assert loop.step().targets == other.step().targets


def test_a_value_that_was_refused_spoils_no_mean_of_the_load(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    loop.step()
    honest = world.read
    _reads(world, rate_rps=1e9)
    assert loop.step().actor == "fallback"
    world.read = honest
    record = loop.step()
    assert record.actor == "policy"
    assert record.seen["rate_25min_rps"] == pytest.approx(world.shown["rate_25min_rps"], rel=0.1)


def test_a_sample_from_the_future_has_no_age(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep), fresh_s={"p99_ms": 45.0})
    honest = world.read
    world.read = lambda: Readings(honest().values, {"p99_ms": -1.7e12})
    record = loop.step()
    assert (record.actor, "in the future" in record.reason) == ("fallback", True)


def test_what_was_deployed_is_what_was_there_first_also_after_gaps_and_restarts(tmp_path):
    world = measured(World())
    first = world.shown["cpu_limit_cores"]
    world.broken = "present"
    made = lambda: loop_of(world, tmp_path, None, models=OneModel(None, "no champion"), rule="static")  # noqa: E731
    assert made().step().actor == "nobody"
    world.broken = ""
    for _ in range(3):
        assert made().step().targets["target_cpu_limit_cores"] == pytest.approx(first)
        world._pass(torch.tensor([[1.2 * first, 512.0, 3.0]]))


@pytest.mark.parametrize("cores", [0.125, 16.0])
def test_after_a_restart_shares_are_of_what_stands_and_not_of_what_was_deployed_first(tmp_path, cores):
    """The rule is told both at a start; what it sets with another past has to be what it sets with none."""
    world = measured(World())
    fallback = make("vertical-cpu", {"cpu_down_window_s": 0.0})
    made = lambda name: loop_of(world, tmp_path / name, None, models=OneModel(None, "no champion"),  # noqa: E731
                                fallback=fallback)
    stood = torch.stack([world.state.limit, world.state.memory, world.state.replicas], dim=1)
    world._pass(torch.tensor([[cores, 8192.0, 1.0]]))
    assert made("old").step().actor == "fallback"
    for _ in range(3):  # until what stands has been measured for a while
        world._pass(stood)
    before = world.state
    targets = []
    for name in ("old", "new"):
        world.state, world.holder = before, ""
        targets.append(made(name).step().targets["target_cpu_limit_cores"])
    assert targets[0] == pytest.approx(targets[1])


@pytest.mark.parametrize("part", ["stops", "observer", "models"])
def test_a_part_that_raises_ends_the_step_and_not_the_controller(tmp_path, part, monkeypatch):
    world, stops = World(), [lambda: ""]
    loop = loop_of(world, tmp_path, Said(keep), stops=lambda: stops[0]())
    assert loop.step().actor == "policy"
    before = world.state
    with monkeypatch.context() as patched:
        if part == "stops":
            stops[0] = _raises
        elif part == "observer":
            patched.setattr(loop._parts.observer, "observe", _raises)
        else:
            patched.setattr(loop._parts.models, "current", _raises)
        record = loop.step()
    stops[0] = lambda: ""
    assert record.actor == "nobody"
    assert "KeyError" in record.reason
    assert world.state is before
    assert [loop.step().actor for _ in range(2)][-1] == "policy"


def test_a_lease_that_runs_out_and_a_switch_that_is_set_while_it_decides_are_seen(tmp_path):
    world, on = World(), [""]

    def taken(row):
        world.holder = "other"
        return keep(row)

    def switched(row):
        on[0] = "kill switch"
        return keep(row)

    for number, (policy, reason) in enumerate([(taken, "other has the lease"), (switched, "kill switch")]):
        world.holder, before = "", world.state
        record = loop_of(world, tmp_path / str(number), Said(policy), stops=lambda: on[0]).step()
        assert (record.actor, record.reason, record.done) == ("nobody", reason, None)
        assert world.state is before


def test_a_memory_that_cannot_be_written_takes_the_policy_out_before_it_acts(tmp_path, monkeypatch):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    assert loop.step().actor == "policy"

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("serving.control.memory.write_file", full)
        record = loop.step()
    assert record.actor == "fallback"
    assert record.reason.startswith("memory: No space left on device")


def test_an_apply_that_failed_changed_nothing_in_log_and_cool_down(tmp_path):
    limits = [Limit(one.name, one.current, SAFE[one.name], one.whole, cool_down_s=300.0) for one in CONTROLS]
    world = measured(World())
    less = lambda row: keep(row) | {"target_memory_limit_mib": 0.9 * row["memory_limit_mib"]}  # noqa: E731
    loop = loop_of(world, tmp_path, Said(less), shield=Shield(limits))
    before = world.shown["memory_limit_mib"]
    world.apply, honest = _raises, world.apply
    assert loop.step().done is None
    world.apply = honest
    world.pass_by()
    assert loop.step().changes == ()
    assert read_log(tmp_path / "steps").steps[0].targets[1] == pytest.approx(before)


def test_a_step_of_nobody_earns_nothing(tmp_path):
    world, on = World(), ["kill switch"]
    loop = loop_of(world, tmp_path, Said(keep), stops=lambda: on[0])
    loop.step()
    world.pass_by()
    loop.step()
    assert read_log(tmp_path / "steps").steps[0].mark == "missing"


@pytest.mark.parametrize(("signal", "value", "actor"), [
    ("replicas", 0.0, "nobody"), ("cpu_limit_cores", 0.02, "fallback")])
def test_what_someone_set_below_the_range_is_not_taken_for_its_end(tmp_path, signal, value, actor):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    honest = world.present
    world.present = lambda: {**honest(), signal: value}
    record = loop.step()
    assert record.actor == actor
    assert record.seen[signal] == value
    if actor == "fallback":
        assert record.targets["target_cpu_limit_cores"] <= 2 * value


def _unlimited(world):
    """The same in a group without a limit of memory, on a host with 64 GiB."""
    world.state = world.state._replace(memory=torch.full_like(world.state.memory, 65536.0))
    honest = world.present
    world.present = lambda: {**honest(), "memory_limit_mib": float(world.state.memory)}
    return measured(world)


def test_what_someone_set_above_the_range_comes_down_and_then_the_policy_acts(tmp_path):
    world = _unlimited(World())
    loop = loop_of(world, tmp_path, Said(keep))
    records = [loop.step() for _ in range(8)]
    assert (records[0].actor, records[0].seen["memory_limit_mib"]) == ("fallback", 65536.0)
    assert records[0].reason == "memory_limit_mib is 65536 MiB, outside of 32 to 32768"
    assert records[0].targets["target_memory_limit_mib"] < 65536.0
    assert not any(change.reason in ("blind", "missed") for record in records for change in record.changes)
    assert records[-1].actor == "policy"


def test_what_is_above_the_range_stays_while_measurements_are_missing(tmp_path):
    world = _unlimited(World(lost=("p99_ms",)))
    record = loop_of(world, tmp_path, Said(keep)).step()
    assert record.targets["target_memory_limit_mib"] == 65536.0
    assert "blind" in [change.reason for change in record.changes]


def test_what_is_held_above_the_range_keeps_no_policy_out(tmp_path):
    world, told = _unlimited(World()), []
    held = Shield([Limit(one.name, one.current, SAFE[one.name], one.whole, held=one.current == "memory_limit_mib")
                   for one in CONTROLS])
    record = loop_of(world, tmp_path, Said(lambda row: told.append(row) or keep(row)), shield=held).step()
    assert (record.actor, record.reason, record.troubles) == ("policy", "", ())
    assert told[0]["memory_limit_mib"] == 32768.0, "the end of what it may see"
    assert record.targets["target_memory_limit_mib"] == record.seen["memory_limit_mib"] == 65536.0
    assert "memory_limit_mib" in record.outside


def test_more_replicas_than_can_be_observed_are_no_blindness_though_all_of_them_serve(tmp_path):
    world = measured(World())
    honest = world.present
    world.present = lambda: {**honest(), "replicas": 100.0, "ready_replicas": 100.0}
    record = loop_of(world, tmp_path, Said(keep)).step()
    assert record.troubles == ("replicas is 100 count, outside of 1 to 64",)
    assert record.targets["target_replicas"] < 100.0


def test_a_step_after_some_that_failed_is_as_long_as_it_was(tmp_path):
    """Its interval is no single step's: irregular, without a reward."""
    world = World(age_s=0.0)
    loop = loop_of(world, tmp_path, Said(keep))
    for _ in range(3):
        loop.step()
    observe = loop._parts.observer.observe
    loop._parts.observer.observe = lambda *_: 1 / 0
    for _ in range(3):
        assert loop.step().actor == "nobody"
        world.pass_by()
    loop._parts.observer.observe = observe
    loop.step()
    loop.step()
    loop.close()
    third = next(step for step in read_log(tmp_path / "steps").steps if step.step == 2)
    assert third.mark == "irregular"
    assert third.detail["interval_s"] == 4 * STEP_S


def test_after_a_stop_that_is_seen_only_right_before_acting_the_fallback_begins(tmp_path):
    looks = []

    def stops() -> str:
        looks.append(1)
        return "kill switch: STOP in its folder" if len(looks) == stopped_at else ""

    stopped_at = 0
    world = World()
    loop = loop_of(world, tmp_path, Said(keep), stops=stops, hand_back_after=2)
    while loop.step().actor != "policy":
        pass
    before = len(looks)
    loop.step()
    stopped_at = len(looks) + (len(looks) - before)  # the last look of the next step
    stopped = loop.step()
    assert (stopped.actor, stopped.done) == ("nobody", None)
    kept = read_memory(tmp_path / "memory.json")
    assert kept is not None
    assert kept.pending[-1]["detail"]["actor"] == "nobody", "killed now, the log must not say that it acted"
    world.pass_by()
    assert loop.step().actor == "fallback"


def test_while_acting_is_stopped_nothing_is_given_back_either(tmp_path):
    """What a killed controller left is given back by whoever takes the lease: that is acting."""
    world = World()
    world.acquire = lambda holder: pytest.fail("nobody takes a lease while acting is stopped")
    world.restore = lambda: pytest.fail("nobody gives back while acting is stopped")
    loop = loop_of(world, tmp_path, Said(keep), stops=lambda: "kill switch: STOP in its folder")
    assert loop.step().reason == "kill switch: STOP in its folder"
    assert loop.close(give_back=True) == "kill switch: STOP in its folder: nothing was given back"


@pytest.mark.parametrize(("ratio", "lost", "lowering"), [(0.1, (), True), (18.0, (), False), (0.1, ("p99_ms",), False)])
def test_at_the_end_nothing_is_given_back_that_would_be_lowered_where_the_service_may_need_it(tmp_path, ratio, lost,
                                                                                          lowering):
    """Someone ends the controller while latency is at many times the objective, or nobody can see it."""
    world, given = measured(World(lost=lost), times_slo=ratio), []
    world.restore = lambda *, lowering: given.append(lowering)
    loop = loop_of(world, tmp_path, Said(keep))
    loop.step()
    assert loop.close(give_back=True) == ""
    assert given == [lowering]
    unseen = loop_of(world, tmp_path / "unseen", Said(keep))
    unseen.close(give_back=True)
    assert given == [lowering, False], "before its first step a controller has seen nothing"


@pytest.mark.parametrize(("age_s", "every_s", "why"), [
    (20.0, 5.0, ""), (math.nan, 1.0, ""), (25.0, 5.0, "what is measured is 25 s old, more than 4 steps of 5 s")])
def test_steps_too_short_for_rewards_are_said(tmp_path, age_s, every_s, why):
    world = World(age_s=age_s)
    found = loop_of(world, tmp_path, Said(keep)).without_rewards(every_s)
    assert why in found
    assert bool(found) == bool(why)


def test_while_the_objective_is_missed_nobody_takes_anything_away_not_even_to_the_safe_range(tmp_path):
    """Prometheus dead, or latency at many times the objective: what an operator raised by hand stays."""
    safe = {**SAFE, "target_cpu_limit_cores": SafeRange(0.125, 0.8, 0.25, 1.0)}
    limits = [Limit(one.name, one.current, safe[one.name], one.whole) for one in CONTROLS]
    world = World(environment=autoscaling(late_metrics=False))
    world.state = world.state._replace(limit=torch.full_like(world.state.limit, 4.0))
    ratio, honest = [18.0], world.read
    world.read = lambda: (found := honest()) and replace(
        found, values={**found.values, "p99_ms": ratio[0] * world.shown["slo_ms"], "served_share": 1.0})
    loop = loop_of(world, tmp_path, Said(lambda row: keep(row) | {"target_cpu_limit_cores": 0.8}),
                   shield=Shield(limits), hand_back_after=1)
    for _ in range(6):
        assert [change.reason for change in loop.step().changes] == ["missed"]
    world.broken = "reader"
    for _ in range(6):
        record = loop.step()
        assert record.actor == "fallback"
        assert world.present()["cpu_limit_cores"] == 4.0
    world.broken, ratio[0] = "", 0.5
    while loop.step().actor != "policy":
        pass
    assert 0.8 < world.present()["cpu_limit_cores"] <= 3.0
    for _ in range(10):
        loop.step()
    assert world.present()["cpu_limit_cores"] == pytest.approx(0.8)


def test_without_measurements_the_fallback_takes_nothing_away(tmp_path):
    """This one goes to what was deployed, whatever it sees; it may do so only where somebody sees."""
    world = measured(World())
    loop = loop_of(world, tmp_path, Said(keep), fallback=make("static", {"cpu_scale": 0.5}), hand_back_after=100)
    before = world.present()["cpu_limit_cores"]
    world.broken = "reader"
    blind = loop.step()
    assert blind.actor == "fallback"
    assert [change.reason for change in blind.changes] == ["blind"]
    assert world.present()["cpu_limit_cores"] == pytest.approx(before)
    world.broken = ""
    assert loop.step().targets["target_cpu_limit_cores"] < before
