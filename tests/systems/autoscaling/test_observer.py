"""What a controller works out beside a live application is what the environment shows a policy in training."""

import json
import math

import pytest
import torch

from feature_store.errors import InputError
from systems.autoscaling.interface import SIGNALS, STEP_SECONDS
from systems.autoscaling.observer import AutoscalingObserver
from systems.autoscaling.simulator.simulator import Autoscaling, Physics

NAMES = [signal.name for signal in SIGNALS]
PRESENT = ("cpu_limit_cores", "memory_limit_mib", "replicas", "ready_replicas")


def _row(observation):
    return dict(zip(NAMES, observation[0].tolist(), strict=True))


def _measured(row):
    return {name: row[name] for name in AutoscalingObserver.measured}


@pytest.fixture(scope="module")
def shown():
    """What the environment shows of one application, while replicas go up and down."""
    environment = Autoscaling(physics=Physics(neighbours=False))
    state = environment.reset(environment.draw("train", 1, 80, seed=3))
    rows = []
    for step in range(60):
        observation = environment.observe(state)
        rows.append(_row(observation))
        targets = observation[:, :3].clone()
        targets[:, 2] *= 1.5 if step % 17 == 5 else 0.8 if step % 5 == 0 else 1.0
        state, _ = environment.step(state, targets)
    return rows


def _observed(rows, observer):
    return [observer.observe(_measured(row), {name: row[name] for name in PRESENT}, STEP_SECONDS * (number > 0))
            for number, row in enumerate(rows)]


def test_load_and_time_since_raising_are_those_of_the_environment(shown):
    observer = AutoscalingObserver()
    found = _observed(shown, observer)
    for own, row in zip(found, shown, strict=True):
        for name in ("rate_1min_rps", "rate_5min_rps", "rate_25min_rps", "rate_peak_5min_rps"):
            assert own[name] == pytest.approx(row[name], rel=1e-4), name
    raised = [row["raised_s_ago"] for row in shown]
    first = raised.index(STEP_SECONDS)
    assert [own["raised_s_ago"] for own in found[first:]] == pytest.approx(raised[first:])
    assert raised.count(STEP_SECONDS) > 2
    assert set(found[0]) | {"slo_ms"} == set(NAMES)


def test_a_restart_goes_on_where_it_was_but_counts_replicas_as_raised_now(shown):
    whole, before, after = AutoscalingObserver(), AutoscalingObserver(), AutoscalingObserver()
    expected = _observed(shown, whole)
    _observed(shown[:30], before)
    after.restore(json.loads(json.dumps(before.state())))
    found = [after.observe(_measured(row), {name: row[name] for name in PRESENT}, STEP_SECONDS) for row in shown[30:]]
    assert found[0]["raised_s_ago"] == STEP_SECONDS
    for own, other in zip(found, expected[30:], strict=True):
        assert own.pop("raised_s_ago") <= other.pop("raised_s_ago")
        assert own == other


@pytest.mark.parametrize("gap", ["start", "restart", "unknown"])
def test_where_nobody_looked_replicas_may_have_been_raised(gap):
    observer, before = AutoscalingObserver(), AutoscalingObserver()
    for seconds in (0.0, *[15.0] * 30):
        before.observe({"rate_rps": 5.0}, {"replicas": 2.0}, seconds)
    if gap == "restart":
        observer.restore(before.state())
    if gap == "unknown":
        observer = before
        observer.observe({"rate_rps": 5.0}, {}, 15.0)
    seen = [observer.observe({"rate_rps": 5.0}, {"replicas": 2.0}, seconds)["raised_s_ago"]
            for seconds in (15.0, 15.0, 15.0)]
    assert seen == [15.0, 15.0, 30.0]


def test_at_a_faster_rate_it_is_never_more_than_the_truth():
    observer = AutoscalingObserver()
    for _ in range(300):
        observer.observe({"rate_rps": 5.0}, {"replicas": 2.0}, 1.0)
    told = [observer.observe({"rate_rps": 5.0}, {"replicas": 3.0}, 1.0)["raised_s_ago"] for _ in range(40)]
    assert all(value <= max(15.0, step + 1.0) for step, value in enumerate(told))
    assert told[-1] > 30.0

def test_replicas_that_someone_else_raised_during_a_restart_count_as_raised_now():
    before, after = AutoscalingObserver(), AutoscalingObserver()
    before.observe({"rate_rps": 5.0}, {"replicas": 2.0}, 0.0)
    after.restore(before.state())
    assert after.observe({"rate_rps": 5.0}, {"replicas": 3.0}, 900.0)["raised_s_ago"] == STEP_SECONDS


def test_replicas_that_someone_else_lowers_at_once_were_raised_nevertheless():
    observer = AutoscalingObserver()
    for _ in range(10):
        observer.observe({"rate_rps": 5.0}, {"replicas": 2.0}, 15.0)
    observer.acted({"replicas": 2.0, "cpu_limit_cores": 9.0})
    assert observer.observe({"rate_rps": 5.0}, {"replicas": 2.0}, 15.0)["raised_s_ago"] > 60.0
    observer.acted({"replicas": 4.0})
    told = [observer.observe({"rate_rps": 5.0}, {"replicas": 2.0}, 15.0)["raised_s_ago"] for _ in range(3)]
    assert told == [15.0, 30.0, 45.0]


def test_a_missing_rate_moves_no_mean_and_stays_missing():
    observer = AutoscalingObserver()
    observer.observe({"rate_rps": 8.0}, {"replicas": 1.0}, 0.0)
    seen = observer.observe({"rate_rps": math.nan}, {"replicas": 1.0}, 15.0)
    assert math.isnan(seen["rate_rps"])
    assert seen["rate_1min_rps"] == 8.0
    assert math.isnan(observer.observe({}, {}, 15.0)["replicas"])


def test_a_clock_that_goes_back_makes_nothing_younger():
    observer = AutoscalingObserver()
    observer.observe({"rate_rps": 8.0}, {"replicas": 1.0}, 0.0)
    observer.observe({"rate_rps": 8.0}, {"replicas": 2.0}, 15.0)
    assert observer.observe({"rate_rps": 8.0}, {"replicas": 2.0}, -500.0)["raised_s_ago"] == STEP_SECONDS


@pytest.mark.parametrize("state", [{}, {"replicas": 1.0}, None, "broken"])
def test_a_state_that_is_none_is_refused(state):
    whole = AutoscalingObserver().state()
    if state is None:
        state = whole | {"raised_s_ago": math.nan}
    elif state == "broken":
        state = whole | {"replicas": "three"}
    with pytest.raises(InputError, match="observer's state"):
        AutoscalingObserver().restore(state)


def test_reward_and_violations_are_those_of_the_environment():
    environment = Autoscaling(physics=Physics(late_metrics=False, noisy_metrics=False))
    state = environment.reset(environment.draw("train", 300, 12, seed=5))
    for _ in range(10):
        state, outcome = environment.step(state, environment.observe(state)[:, :3])
    observation = environment.observe(state)
    raw = torch.stack([state.shown.cpu, state.shown.memory, state.shown.p99_ms, state.shown.served], dim=1)
    inside = [n for n in range(300) if 1.0 < raw[n, 2] < 65536 and raw[n, :2].min() > 0.016]
    assert len(inside) > 200
    off = []
    for number in inside:
        found = AutoscalingObserver().outcome(dict(zip(NAMES, observation[number].tolist(), strict=True)))
        off.append(math.log(found["cost"] / float(outcome.cost[number])))
        assert found["reward"] == pytest.approx(float(outcome.reward[number]), abs=1e-4)
        assert found["violated"] == float(outcome.violated[number])
    # the mean load is estimated: within a fifth of the true one at the median
    assert abs(sorted(off)[len(off) // 2]) < 0.2


def test_an_outcome_of_what_was_not_measured_is_not_known():
    row = dict.fromkeys(NAMES, 1.0) | {"p99_ms": math.nan}
    assert all(math.isnan(value) for value in AutoscalingObserver().outcome(row).values())
