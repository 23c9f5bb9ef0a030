"""Steps that last longer or shorter than due, rates that differ, and time that passes inside a call.

In the other tests' world a step lasts as long as is due, all rates are equal and calls take no time, so that what
counts steps or asks too early is not told from what counts seconds and asks again.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest

from serving.control.shield import Limit, Shield
from serving.fallback_spec import SafeRange
from systems.autoscaling.interface import CONTROLS
from systems.autoscaling.observer import AutoscalingObserver
from tests.serving.control.world import STEP_S, Said, World, keep, loop_of

LENGTHS = (7.5, 15.0, 41.0, 15.5, 90.0)  # s, of steps that are due every 15
READING_S = 2.5
MEMORY = "target_memory_limit_mib"
CALM = 0  # seed of a world in which the objective is kept, so that targets may fall
MEANS = {"rate_1min_rps": 60.0, "rate_5min_rps": 300.0, "rate_25min_rps": 1500.0}  # s
# down and up, of every control another
RATES = {"target_cpu_limit_cores": (0.1, 0.5), MEMORY: (0.3, 0.2), "target_replicas": (0.6, 2.0)}


def limits(cool_down_s: float = 0.0) -> list[Limit]:
    return [Limit(one.name, one.current, SafeRange(1e-3, 1e6, *RATES[one.name]), cool_down_s=cool_down_s)
            for one in CONTROLS]


def stepped(world: World, loop: Any, length_s: float = STEP_S) -> Any:
    record = loop.step()
    if record.done is None:
        world.pass_by()
    world.now += length_s - STEP_S
    return record


class Counting(AutoscalingObserver):
    def __init__(self) -> None:
        super().__init__()
        self.passed: list[float] = []

    def observe(self, measured: Any, present: Any, seconds: float) -> dict[str, float]:
        self.passed.append(seconds)
        return super().observe(measured, present, seconds)


def test_observer_and_fallback_are_told_the_seconds_that_passed(tmp_path, monkeypatch) -> None:
    observer, asked, world = Counting(), [], World()
    monkeypatch.setattr("tests.serving.control.world.AutoscalingObserver", lambda: observer)
    read = world.read

    def slowly() -> Any:  # from one begin to the next is what passed, not from an answer to the next question
        world.now += READING_S
        return read()

    monkeypatch.setattr(world, "read", slowly)

    class Rule:
        def start(self, applications: int) -> None:
            """Nothing to forget."""

        def act(self, readings: Any, seconds: float) -> Any:
            asked.append(seconds)
            return {control.name: readings[control.current] for control in CONTROLS}

    loop = loop_of(world, tmp_path, Said(keep), fallback=Rule())
    for length in LENGTHS:
        stepped(world, loop, length - READING_S)
    assert observer.passed == pytest.approx([0.0, *LENGTHS[:-1]])
    assert asked[0] == 0.0  # what was deployed
    assert asked[1:] == pytest.approx([sum(LENGTHS[:count]) for count in range(len(LENGTHS))])


def test_seconds_in_which_a_step_failed_to_look_are_not_lost(tmp_path, monkeypatch) -> None:
    observer, world = Counting(), World()
    monkeypatch.setattr("tests.serving.control.world.AutoscalingObserver", lambda: observer)
    loop = loop_of(world, tmp_path, Said(keep))
    stepped(world, loop, 7.5)
    monkeypatch.setattr("serving.control.loop.checked", lambda *_: 1 / 0)
    assert loop.step().reason.startswith("step: ")
    monkeypatch.undo()
    world.now += 33.0
    loop.step()
    assert observer.passed == pytest.approx([0.0, 40.5])


@pytest.mark.parametrize(("length_s", "held"), [(7.5, 5), (15.0, 2), (30.0, 1), (39.0, 1), (45.0, 0)])
def test_a_cool_down_is_of_seconds_however_long_steps_last(tmp_path, length_s: float, held: int) -> None:
    world = World(CALM)
    loop = loop_of(world, tmp_path, Said(lambda row: keep(row) | {MEMORY: 0.9 * row["memory_limit_mib"]}),
                   shield=Shield(limits(cool_down_s=40.0)))
    reasons = [[change.reason for change in stepped(world, loop, length_s).changes] for _ in range(9)]
    once = [[], *[["cool_down"]] * held]
    assert reasons == (once * 9)[:9]


def test_each_target_moves_at_its_own_rate(tmp_path) -> None:
    for factor, side in ((1e-3, 0), (1e3, 1)):
        world = World(CALM)
        loop = loop_of(world, tmp_path / str(side),
                       Said(lambda row, factor=factor: {name: factor * value for name, value in keep(row).items()}),
                       shield=Shield(limits()))
        record = loop.step()
        for control in CONTROLS:
            moved = record.targets[control.name] / record.seen[control.current] - 1.0
            assert moved == pytest.approx(RATES[control.name][side] * (-1, 1)[side]), control.name


def _tripped_while(place: str, world: World, trip: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A policy; `trip` is called once, in the second step, inside of the call that `place` names."""
    calls = {"count": 0}

    def then(call: Any, at: int) -> Any:
        def wrapped(*arguments: Any) -> Any:
            calls["count"] += 1
            found = call(*arguments)
            if calls["count"] == at:
                trip()
            return found

        return wrapped

    if place == "policy":
        return Said(then(keep, 2))
    if place == "lease":  # asked for twice a step: when it looks, and before it acts
        monkeypatch.setattr(world, "acquire", then(world.acquire, 4))
    if place == "writing":
        from serving.control.memory import Memory

        monkeypatch.setattr(Memory, "write", then(Memory.write, 2))
    return Said(keep)


@pytest.mark.parametrize("place", ["policy", "writing", "lease"])
def test_a_stop_that_comes_while_a_step_is_made_holds_in_that_step(tmp_path, monkeypatch, place: str) -> None:
    world, why = World(), [""]
    policy = _tripped_while(place, world, lambda: why.__setitem__(0, "stopped by an operator"), monkeypatch)
    loop = loop_of(world, tmp_path, policy, stops=lambda: why[0])
    assert loop.step().actor == "policy"
    before = world.state
    record = loop.step()
    assert why[0], "it was never tripped"
    assert world.state is before and (record.actor, record.targets, record.done) == ("nobody", {}, None)
    assert record.reason == "stopped by an operator"


@pytest.mark.parametrize("place", ["policy", "writing"])
def test_a_lease_that_is_lost_while_a_step_is_made_is_not_acted_on(tmp_path, monkeypatch, place: str) -> None:
    world = World()
    policy = _tripped_while(place, world, lambda: setattr(world, "holder", "another"), monkeypatch)
    loop = loop_of(world, tmp_path, policy)
    assert loop.step().actor == "policy"
    before = world.state
    record = loop.step()
    assert world.holder == "another"
    assert world.state is before and (record.actor, record.reason) == ("nobody", "another has the lease")


def test_means_of_a_rate_that_changes_follow_seconds_and_not_steps() -> None:
    observer, row = AutoscalingObserver(), dict.fromkeys(AutoscalingObserver.measured, 1.0)
    observer.observe(row | {"rate_rps": 10.0}, {"replicas": 1.0}, 0.0)
    expected = dict.fromkeys(MEANS, 10.0)
    for rate, length_s in ((40.0, 7.5), (3.0, 41.0), (90.0, 22.0), (20.0, 400.0)):
        seen = observer.observe(row | {"rate_rps": rate}, {"replicas": 1.0}, length_s)
        expected = {name: rate + math.exp(-length_s / time_s) * (expected[name] - rate)
                    for name, time_s in MEANS.items()}
        assert {name: seen[name] for name in MEANS} == pytest.approx(expected)


GAP_S = 2 * 3600.0  # a controller that was suspended, with its process


def test_what_someone_raised_during_a_long_gap_counts_as_raised_now() -> None:
    """Nobody knows when in the gap: what is told is never more than the truth."""
    observer, row = AutoscalingObserver(), dict.fromkeys(AutoscalingObserver.measured, 1.0)
    for seconds in (0.0, *[15.0] * 30):
        seen = observer.observe(row, {"replicas": 2.0}, seconds)
    assert seen["raised_s_ago"] > 300.0
    assert observer.observe(row, {"replicas": 3.0}, GAP_S)["raised_s_ago"] == STEP_S
    assert observer.observe(row, {"replicas": 3.0}, GAP_S)["raised_s_ago"] > 300.0


def test_after_a_long_gap_means_and_peak_are_those_of_now() -> None:
    observer, row = AutoscalingObserver(), dict.fromkeys(AutoscalingObserver.measured, 1.0)
    observer.observe(row | {"rate_rps": 500.0}, {"replicas": 2.0}, 0.0)
    seen = observer.observe(row | {"rate_rps": 4.0}, {"replicas": 2.0}, GAP_S)
    assert seen["rate_peak_5min_rps"] == 4.0
    assert {name: seen[name] for name in MEANS} == pytest.approx(
        {name: 4.0 + 496.0 * math.exp(-GAP_S / time_s) for name, time_s in MEANS.items()})


def test_what_someone_lowered_during_a_long_gap_is_not_lowered_further_for_a_while(tmp_path) -> None:
    world, less = World(CALM), [1.0]
    loop = loop_of(world, tmp_path, Said(lambda row: keep(row) | {MEMORY: less[0] * row["memory_limit_mib"]}),
                   shield=Shield(limits(cool_down_s=40.0)))
    stepped(world, loop, GAP_S)
    world.state, less[0] = world.state._replace(memory=0.8 * world.state.memory), 0.9
    assert [[change.reason for change in stepped(world, loop, 25.0).changes] for _ in range(3)] == [
        ["cool_down"], ["cool_down"], []]
