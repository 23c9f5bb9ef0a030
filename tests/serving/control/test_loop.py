"""A controller in the simulated world: it does what was trained, and in every trouble what is stated."""

import errno
import json
import math
from pathlib import Path

import pytest
import torch

from feature_store.errors import InputError, RefusedError
from models.controllers.rules import make
from models.environments.autoscaling.interface import CONTROLS
from models.learners.policy import Policy, PolicyShape
from models.training.reinforcement.trajectories import from_log, transitions
from models.training.reinforcement.trajectory_log import read_log
from serving.control.shield import Budget, Limit, Shield
from tests.serving.control.world import NAMES, SAFE, OneModel, Said, World, keep, loop_of, nonsense


def _policy(environment) -> Policy:
    torch.manual_seed(0)
    shape = PolicyShape(environment.signals, environment.controls, environment.features, anchors=environment.anchors)
    policy = Policy(shape, torch.Generator().manual_seed(1))
    with torch.no_grad():
        policy.biases[-1].add_(torch.tensor([0.02, -0.01, 0.1]))
    return policy


def _answers(policy):
    def answer(row):
        targets = policy(torch.tensor([[row[name] for name in NAMES]]))[0].tolist()
        return dict(zip((control.name for control in CONTROLS), targets, strict=True))
    return answer


def test_a_policy_beside_a_live_system_does_what_it_does_in_training(tmp_path):
    world, twin = World(), World()
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
        targets = rule.act(shown, 15.0 * step)
        twin._pass(torch.tensor([[float(targets[one.name][0]) for one in CONTROLS]]))
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
    assert len(transitions(from_log(read))) == 11


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


def test_an_idle_service_is_no_impossible_one(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    honest = world.read
    world.read = lambda: type(honest())({**honest().values, "cpu_utilization": 0.0}, {})
    record = loop.step()
    assert record.actor == "policy"
    assert record.seen["cpu_utilization"] == 0.015625


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
        patched.setattr("models.training.reinforcement.trajectory_log.os.write", full)
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
    world = World()
    fewer = lambda row: keep(row) | {"target_memory_limit_mib": 0.9 * row["memory_limit_mib"]}  # noqa: E731
    loop = loop_of(world, tmp_path, Said(fewer), shield=Shield(limits))
    assert loop.step().changes == ()
    assert loop.step().changes[0].reason == "cool_down"
    again = loop_of(world, tmp_path, Said(fewer), shield=Shield(limits))
    assert again.step().changes[0].reason == "cool_down"


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": "other"}', b"[1]"])
def test_a_memory_that_is_none_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "memory.json").write_bytes(content)
    with pytest.raises(InputError, match="memory must be a file that a controller wrote"):
        loop_of(World(), tmp_path, Said(keep))


def test_a_bundle_that_does_not_say_how_it_is_driven_is_refused(tmp_path, monkeypatch):
    from tests.serving.control import world as module

    def without(slo_ms: float, made=module.contract):
        return type(made(slo_ms)).from_json({key: value for key, value in made(slo_ms).to_json().items()
                                            if key != "control"})

    monkeypatch.setattr(module, "contract", without)
    with pytest.raises(InputError, match="got no `control`"):
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
