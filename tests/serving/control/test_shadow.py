"""A controller in shadow: it decides in every step, sets nothing, and its log says what really was set."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from feature_store.errors import InputError
from models.control.training.trajectory_log import read_log
from serving.actuators.shadow import Shadow
from serving.control.memory import read_memory
from serving.control.parts import Settings
from serving.control.start import ControlRequest, control, line_of, place_of
from serving.kept_bundles import kept_bundle
from systems.autoscaling.interface import CONTROLS
from tests.deploy.light_place import VALUES
from tests.feature_store.prometheus_server import faulty_server
from tests.serving.actuators.test_shadow import CURRENT, NeverSet, answers
from tests.serving.control.policy_bundle import write_champion
from tests.serving.control.world import Said, World, keep, loop_of, measured

REQUEST = ControlRequest("nginx", Path("controller.yaml"), "autoscaling", "watch", shadow=True)


class Watched(World):
    """An application that somebody else scales meanwhile; a shadow is all that looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.shadow = Shadow(Looked(self), CURRENT)

    def acquire(self, holder):
        return self.shadow.acquire(holder)

    def apply(self, targets):
        applied = self.shadow.apply(targets)
        self.pass_by()
        return applied


class Looked:
    """Its present values, and nothing else."""

    name = "an application"

    def __init__(self, world) -> None:
        self._world = world

    def present(self):
        return World.present(self._world)


def more(row):
    return {name: 2.0 * value for name, value in keep(row).items()}


@pytest.fixture
def shadowed(tmp_path):
    """Three steps whose policy would double everything, and the log of them."""
    world = measured(Watched())
    world.present = world.shadow.present
    before = dict(world.shown)
    loop = loop_of(world, tmp_path, Said(more), shadow=True)
    records = [loop.step() for _ in range(3)]
    assert loop.close() == ""
    return before, records, read_log(tmp_path / "steps")


def test_what_is_set_stays_and_the_log_says_so_and_what_would_have_been_set(shadowed):
    before, records, log = shadowed
    assert [one.actor for one in records] == ["policy"] * 3
    names = [name for name, _ in log.header.controls]
    for step, record in zip(log.steps, records, strict=True):
        was = {control.name: pytest.approx(record.seen[control.current]) for control in CONTROLS}
        assert dict(zip(names, step.targets, strict=True)) == was
        assert step.actor == "fallback"  # no policy set it: training must not take it for one's
        assert step.detail["actor"] == "policy" and step.detail["shadow"] is True
        assert step.detail["targets"]["target_replicas"] == 2.0 * record.seen["replicas"]
        assert step.detail["done"]["target_replicas"] == before["replicas"]


def test_rewards_are_those_of_what_was_set(shadowed):
    _, _, log = shadowed
    assert [step.mark for step in log.steps] == ["measured", "measured", "missing"]


def test_a_line_shows_what_would_be_set_beside_what_is(shadowed):
    _, records, _ = shadowed
    assert "would set cpu_limit_cores" in line_of(records[0])
    seen = records[0].seen["replicas"]
    assert f"replicas {2 * seen:.4g} (is {seen:.4g})" in line_of(records[0])
    assert "unchanged" in line_of(replace(records[0], targets={}, done=None))


def test_a_shadow_that_is_killed_before_it_looked_at_what_was_set_leaves_no_word_of_its_own_targets(tmp_path):
    world = measured(Watched())
    world.present = world.shadow.present
    loop = loop_of(world, tmp_path, Said(more), shadow=True)
    world.apply = None  # what comes after the memory was written fails
    record = loop.step()
    (pending,) = read_memory(tmp_path / "memory.json").pending
    assert record.failure and pending["detail"]["shadow"] is True
    assert sorted(pending["targets"]) == pytest.approx(sorted(record.seen[one.current] for one in CONTROLS))


def test_a_controller_that_acts_is_none():
    assert Settings().shadow is False


def test_its_folder_is_none_of_a_controller(tmp_path):
    assert place_of(REQUEST, tmp_path) == tmp_path / "shadow/autoscaling/nginx"
    assert place_of(replace(REQUEST, shadow=False), tmp_path) == tmp_path / "controllers/autoscaling/nginx"


def _started(tmp_path, request, state, part):
    values = {**VALUES, "replicas": 2, "ready_replicas": 2, "cpu": 1.5}
    records, lines = [], []
    with faulty_server(answers(values)) as (url, _):
        (tmp_path / "controller.yaml").write_text(json.dumps({
            "prometheus": url, "hand_back_after": 1, "signals": {name: name for name in VALUES}, **part}))
        control(replace(request, controller=tmp_path / "controller.yaml"), state, records.append, lines.append)
    return records, lines


PART = {"watch": {"signals": {"replicas": "replicas", "ready_replicas": "ready_replicas", "cpu_limit_cores": "cpu",
                              "memory_limit_mib": 256}}}


@pytest.mark.parametrize("by_bundle", [False, True])
def test_it_starts_with_the_champion_or_a_bundle_and_says_that_it_sets_nothing(tmp_path, by_bundle):
    state = write_champion(tmp_path / "home")
    bundle = kept_bundle(state.home, "autoscaling", "nginx", 1) if by_bundle else None
    request = replace(REQUEST, steps=2, every=0.2, bundle=bundle)
    records, lines = _started(tmp_path, request, state, PART)
    assert "knows, in shadow, every 0.2 s, sets nothing, objective: slo_ms 15 ms; log: " in lines[0]
    assert lines[0].startswith("the policy of bundle") and "watches what http://127.0.0.1" in lines[0]
    assert [one.done for one in records] == [{"target_replicas": 2.0, "target_cpu_limit_cores": 1.5,
                                             "target_memory_limit_mib": 256.0}] * 2
    assert not (state.home / "controllers").exists()
    assert len(read_log(state.home / "shadow/autoscaling/nginx/steps").steps) == 2


def test_a_present_value_that_nobody_knows_is_said_at_the_start(tmp_path):
    state = write_champion(tmp_path / "home")
    part = {"watch": {"signals": {**PART["watch"]["signals"], "memory_limit_mib": "nothing"}}}
    records, lines = _started(tmp_path, replace(REQUEST, steps=1), state, part)
    assert lines[1].startswith("nothing is decided while nobody knows memory_limit_mib (what http")
    assert [(one.actor, one.reason) for one in records] == [("nobody", "actuator: memory_limit_mib is not known")]


@pytest.mark.parametrize("shadow_first", [False, True])
def test_the_log_of_a_controller_and_that_of_a_shadow_are_never_mixed(tmp_path, shadow_first):
    state, dry_run = write_champion(tmp_path / "home"), {"dry_run": {
        "cpu_limit_cores": 1.5, "memory_limit_mib": 256, "replicas": 2, "ready_replicas": 2}}
    one = replace(REQUEST, steps=2, every=0.2, folder=tmp_path / "folder", shadow=shadow_first,
                  actuator="watch" if shadow_first else "dry-run")
    other = replace(one, shadow=not shadow_first, actuator="dry-run" if shadow_first else "watch")
    _started(tmp_path, one, state, {**PART, **dry_run})
    with pytest.raises(InputError, match=r"folder must be of a .* alone, got one with the log of a "):
        _started(tmp_path, other, state, {**PART, **dry_run})
    _started(tmp_path, one, state, {**PART, **dry_run})
    assert len(read_log(tmp_path / "folder/steps").steps) == 4


@pytest.mark.parametrize(("change", "message"), [
    ({"actuator": "dry-run"}, "got dry-run, which has nothing to look at"),
    ({"give_back": True}, "give-back must be left out in shadow"),
])
def test_what_makes_no_sense_in_shadow_is_refused_before_anything_is_read(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        control(replace(REQUEST, **change), write_champion(tmp_path / "home"), print, print)
    assert not (tmp_path / "home/shadow").exists()


def test_never_set_fails_where_it_is_set():
    with pytest.raises(AssertionError, match="apply was asked for"):
        NeverSet().apply({})
