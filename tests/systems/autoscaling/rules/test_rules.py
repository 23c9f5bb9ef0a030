"""What every rule has to keep: settings, missing and absurd metrics, one application beside thousands."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.control.contract.controller import Controller
from systems.autoscaling.interface import CONTROLS, SIGNALS
from systems.autoscaling.rules.rules import RULES, make

every_rule = pytest.mark.parametrize("name", RULES)


def observed(rng, applications, missing=0.0):
    """Plausible observations; some are missing."""
    observation = {}
    for signal in SIGNALS:
        if signal.scale == "log":
            values = np.exp(rng.uniform(np.log(signal.low), np.log(signal.high), applications))
        else:
            values = rng.uniform(signal.low, signal.high, applications)
        observation[signal.name] = values
    observation["replicas"] = np.ceil(observation["replicas"])
    observation["ready_replicas"] = np.floor(observation["replicas"] * rng.uniform(0, 1, applications))
    observation["cpu_utilization"] = rng.uniform(0.05, 1.0, applications)
    observation["memory_utilization"] = rng.uniform(0.1, 1.1, applications)
    for signal in SIGNALS:
        lost = rng.random(applications) < missing
        observation[signal.name] = np.where(lost, np.nan, observation[signal.name]).astype(np.float32)
    return observation


def drawn(name, rng, applications):
    """Settings for each application, within what tuning searches."""
    values = {}
    for setting in RULES[name].declared:
        if setting.choices:
            values[setting.name] = rng.choice(setting.choices, applications)
        elif setting.search:
            numbers = rng.uniform(*setting.search, applications)
            values[setting.name] = np.round(numbers) if setting.whole else numbers
    return values


def part_of(observation, index):
    return {name: values[index] for name, values in observation.items()}


@every_rule
def test_settings_make_the_rule_again_also_through_json(name):
    rule = make(name)
    assert rule.name == name
    again = make(rule.name, json.loads(json.dumps(dict(rule.settings))))
    assert again.settings == rule.settings
    assert set(rule.settings) == {setting.name for setting in RULES[name].declared}


@every_rule
def test_every_setting_changes_or_is_declared_with_a_default_in_its_range(name):
    for setting in RULES[name].declared:
        assert setting.meaning
        if setting.choices:
            assert setting.default in setting.choices
        else:
            assert setting.low <= setting.default <= setting.high
        if setting.search:
            assert setting.low <= setting.search[0] < setting.search[1] <= setting.high


@every_rule
def test_acting_is_finite_and_in_bounds_whatever_is_observed(name):
    rule: Controller = make(name)
    rng = np.random.default_rng(5)
    applications = 64
    rule.start(applications)
    absurd = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e30)
    for step in range(25):
        observation = observed(rng, applications, missing=0.3)
        for values in observation.values():
            hit = rng.random(applications) < 0.2
            values[hit] = rng.choice(absurd, hit.sum()).astype(np.float32)
        if step == 7:
            observation = {}
        targets = rule.act(observation, 15.0 * step)
        assert set(targets) == {control.name for control in CONTROLS}
        for control in CONTROLS:
            values = targets[control.name]
            assert values.shape == (applications,)
            assert np.isfinite(values).all()
            assert (values >= control.low).all() and (values <= control.high).all()


@every_rule
def test_many_applications_with_their_own_settings_equal_each_alone(name):
    rng = np.random.default_rng(11)
    applications = 6
    chosen = drawn(name, rng, applications)
    together = make(name, chosen)
    alone = [make(name, {key: values[number].item() for key, values in chosen.items()})
             for number in range(applications)]
    for rule, count in ((together, applications), *((rule, 1) for rule in alone)):
        rule.start(count)
    for step in range(50):
        observation = observed(rng, applications, missing=0.1)
        at_once = together.act(observation, 15.0 * step)
        for number, rule in enumerate(alone):
            one = rule.act(part_of(observation, [number]), 15.0 * step)
            for control in CONTROLS:
                assert at_once[control.name][number] == one[control.name][0], (control.name, step)


@every_rule
def test_start_forgets_everything(name):
    rng = np.random.default_rng(3)
    observations = [observed(rng, 4) for _ in range(30)]
    fresh, used = make(name), make(name)
    used.start(4)
    for step, observation in enumerate(observations[::-1]):
        used.act(observation, 100.0 * step)
    for rule in (fresh, used):
        rule.start(4)
    for step, observation in enumerate(observations):
        first, second = fresh.act(observation, 15.0 * step), used.act(observation, 15.0 * step)
        assert all((first[control.name] == second[control.name]).all() for control in CONTROLS)


@every_rule
def test_nothing_known_leaves_everything_as_it_was_last_seen(name):
    rule = make(name)
    rule.start(1)
    seen = {"cpu_limit_cores": np.array([1.5]), "memory_limit_mib": np.array([512.0]), "replicas": np.array([7.0])}
    rule.act(seen, 0.0)
    targets = rule.act({}, 15.0)
    assert {key: float(value[0]) for key, value in targets.items()} == {
        "target_cpu_limit_cores": 1.5, "target_memory_limit_mib": 512.0, "target_replicas": 7.0}


def test_unknown_rules_settings_and_values_are_refused_in_one_line():
    with pytest.raises(InputError, match=r"rule must be one of static, .*, got 'hpa-cpux'; did you mean 'hpa-cpu"):
        make("hpa-cpux")
    with pytest.raises(InputError, match=r"did you mean 'replicas_cpu_target'\? \(rule hpa-cpu\)"):
        make("hpa-cpu", {"replicas_cpu_targets": 0.5})
    with pytest.raises(InputError, match=r"value must be a number from 0\.01 to 2, got 7\.0"):
        make("hpa-cpu", {"replicas_cpu_target": 7.0})
    with pytest.raises(InputError, match="value must be a number"):
        make("hpa-cpu", {"replicas_cpu_target": float("nan")})
    with pytest.raises(InputError, match="value must be a number, got 'much'"):
        make("hpa-cpu", {"replicas_cpu_target": "much"})
    with pytest.raises(InputError, match=r"each of 3 applications, got 2 \(hpa-cpu, setting replicas_cpu_target\)"):
        make("hpa-cpu", {"replicas_cpu_target": np.array([0.5, 0.6])}).start(3)
    with pytest.raises(InputError, match="settings must be one value each to be written"):
        make("hpa-cpu", {"replicas_cpu_target": np.array([0.5, 0.6])}).settings  # noqa: B018


def steady(**changes):
    values = {"cpu_limit_cores": 1.0, "memory_limit_mib": 1024.0, "replicas": 4.0, "ready_replicas": 4.0,
              "cpu_utilization": 0.5, "memory_utilization": 0.4, "p99_ms": 50.0, "slo_ms": 100.0, "rate_rps": 100.0}
    return {name: np.atleast_1d(np.asarray(value, dtype=float)) for name, value in {**values, **changes}.items()}


@pytest.mark.parametrize("name", ["hpa-cpu", "hpa-cpu-p99-vpa-memory", "hpa-vpa", "autopilot"])
@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.02, 1.5), min_size=2, max_size=12, unique=True))
def test_more_utilization_never_asks_for_fewer_replicas(name, shares):
    shares = np.sort(shares)
    rule = make(name)
    rule.start(len(shares))
    observation = {key: np.broadcast_to(value, shares.shape) for key, value in steady().items()}
    for step in range(3):
        targets = rule.act({**observation, "cpu_utilization": shares}, 15.0 * step)
    assert (np.diff(targets["target_replicas"]) >= 0).all()


def after(name, observations, **chosen):
    """Targets after the last of some observations, 15 s apart."""
    rule = make(name, chosen)
    rule.start(1)
    for step, observation in enumerate(observations):
        targets = rule.act(observation, 15.0 * step)
    return {key: float(value[0]) for key, value in targets.items()}


def test_metrics_that_are_late_are_set_against_the_limits_of_their_time():
    raised = [steady(cpu_utilization=0.9), steady(cpu_utilization=0.9, cpu_limit_cores=2.0)]
    assert after("hpa-cpu", raised, replicas_cpu_target=0.6, replicas_down_window_s=0.0)["target_replicas"] == 3
    used = after("vertical-cpu", raised, cpu_cpu_target=0.5, cpu_down_window_s=0.0)["target_cpu_limit_cores"]
    assert used == pytest.approx(0.9 * 1.0 / 0.5)


DEPLOYED = ({"cpu_limit_cores": 4.0, "memory_limit_mib": 4096.0, "replicas": 16.0},
            {"cpu_limit_cores": 0.25, "memory_limit_mib": 128.0, "replicas": 1.0})


@pytest.mark.parametrize("deployed", DEPLOYED, ids=["more", "less"])
@pytest.mark.parametrize("lost", [(), ("ready_replicas",)], ids=["all is seen", "not who serves"])
def test_shares_are_of_what_stands_and_not_of_what_a_controller_says_was_deployed_first(deployed, lost):
    """As the loop does it at each start; then somebody doubles the limits, and shares are of those before."""
    seen = [{name: value for name, value in steady(cpu_utilization=0.9, **changes).items() if name not in lost}
            for changes in ({}, {"cpu_limit_cores": 2.0}, {"cpu_limit_cores": 2.0})]
    first = {name: np.array([deployed.get(name, np.nan)]) for name in seen[0]}
    for looks in (seen[:1], seen[:2], seen):
        for observations in (looks, [first, *looks]):
            found = after("vertical-cpu", observations, cpu_cpu_target=0.5, cpu_down_window_s=0.0)
            assert found["target_cpu_limit_cores"] == pytest.approx({1: 1.8, 2: 1.8, 3: 3.6}[len(looks)])


def test_replicas_that_started_after_the_metrics_count_as_idle_on_the_way_up():
    seen = [steady(cpu_utilization=0.9, replicas=8.0), steady(cpu_utilization=0.9, replicas=8.0, ready_replicas=8.0)]
    assert after("hpa-cpu", seen, replicas_cpu_target=0.6)["target_replicas"] == 8  # 4 * 0.9 / 8 is no more than 0.6


@pytest.mark.parametrize(("ready", "expected"), [(0.5, 1.0), (0.8, 2.0), (1.0, 2.0)])
def test_a_replica_that_starts_within_the_interval_counts_and_half_a_replica_is_none(ready, expected):
    seen = steady(replicas=1.0, ready_replicas=ready, cpu_utilization=1.0)
    assert after("hpa-cpu", [seen, seen], replicas_cpu_target=0.5)["target_replicas"] == expected


def test_keda_divides_the_rate_by_the_threshold():
    assert after("keda-rate", [steady()], replicas_threshold_rps=11.0)["target_replicas"] == 8  # doubled; 10 are wanted
    assert after("keda-rate", [steady(), steady(replicas=8.0)], replicas_threshold_rps=11.0)["target_replicas"] == 10
    assert after("keda-rate", [steady(), steady(replicas=8.0)], replicas_threshold_rps=12.0)["target_replicas"] == 8
    # without a threshold: 100/s take 2 cores, a core at 40 % serves 20/s
    assert after("keda-rate", [steady()], replicas_threshold_rps=0.0, replicas_cpu_target=0.4)["target_replicas"] == 5


def test_keda_beside_a_moving_limit_keeps_the_threshold_of_the_deployed_one():
    moved = [steady(), steady(cpu_limit_cores=2.0), steady(cpu_limit_cores=2.0, cpu_utilization=0.25)]
    chosen = {"replicas_cpu_target": 0.4, "replicas_down_window_s": 0.0}
    assert after("keda-rate-aimd-p99", moved, **chosen)["target_replicas"] == 5
    assert after("keda-rate", moved, **chosen)["target_replicas"] < 5


def test_keda_goes_to_idle_replicas_after_a_whole_cooldown():
    chosen = {"replicas_threshold_rps": 10.0, "replicas_activation_rps": 5.0, "replicas_cooldown_s": 60.0,
              "replicas_min_replicas": 3.0, "replicas_idle_replicas": 1.0, "replicas_down_window_s": 0.0}
    quiet = [steady()] + [steady(rate_rps=1.0)] * 9
    trail = [after("keda-rate", quiet[:end], **chosen)["target_replicas"] for end in range(1, 9)]
    assert trail == [8.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]


def test_a_forecast_adds_replicas_before_a_rise_and_removes_none():
    rising = [steady(rate_rps=100.0 * 1.1 ** step) for step in range(12)]
    chosen = {"replicas_threshold_rps": 20.0, "replicas_up_percent": 1000.0}
    ahead = {**chosen, "replicas_trend": 0.5, "replicas_horizon_s": 60.0}
    with_forecast, without = after("keda-forecast", rising, **ahead), after("keda-rate", rising, **chosen)
    assert with_forecast["target_replicas"] > without["target_replicas"]


def test_aimd_adds_above_the_target_and_takes_a_share_below():
    slow, fast, between = (steady(p99_ms=value) for value in (90.0, 10.0, 70.0))
    chosen = {"cpu_p99_target": 0.8, "cpu_p99_low": 0.5, "cpu_increase": 0.25, "cpu_decrease": 0.1}
    assert after("aimd-p99", [slow], **chosen)["target_cpu_limit_cores"] == 1.25
    assert after("aimd-p99", [between], **chosen)["target_cpu_limit_cores"] == 1.0
    assert after("aimd-p99", [fast], **chosen)["target_cpu_limit_cores"] == pytest.approx(0.9)
    assert after("aimd-p99", [slow, fast], **chosen)["target_cpu_limit_cores"] == 1.0  # waits 60 s
    both = {**chosen, "cpu_mode": "MIAD"}
    assert after("aimd-p99", [slow], **both)["target_cpu_limit_cores"] == 1.25
    assert after("aimd-p99", [steady(p99_ms=10.0, cpu_limit_cores=2.0)], **both)["target_cpu_limit_cores"] == 1.9
    assert after("aimd-p99-replicas", [slow])["target_replicas"] == 5  # 4.25, rounded away from 4


def test_autopilot_takes_the_largest_use_of_the_horizon_and_removes_one_replica_at_a_time():
    busy, calm = steady(cpu_utilization=0.9), steady(cpu_utilization=0.1)
    chosen = {"replicas_cpu_target": 0.6, "replicas_average_s": 1.0, "replicas_horizon_s": 60.0,
              "replicas_decay_s": 30.0}
    assert after("autopilot", [busy], **chosen)["target_replicas"] == 6
    assert after("autopilot", [busy] + [calm] * 3, **chosen)["target_replicas"] == 6
    assert after("autopilot", [busy] + [calm] * 4, **chosen)["target_replicas"] == 3
    assert after("autopilot", [busy] + [calm] * 5, **chosen)["target_replicas"] == 4  # 15 s after it asked for 3


@pytest.mark.parametrize(("statistic", "expected"), [("average", 0.4), ("peak", 0.8), ("percentile", 0.8)])
def test_autopilot_limits_follow_their_statistic(statistic, expected):
    # half of the time 0.8 cores, the rest nothing: the load-adjusted histogram holds 0.8 alone
    observations = [steady(cpu_utilization=0.8 if step % 2 else 0.001) for step in range(40)]
    limit = after("autopilot", observations, cpu_statistic=statistic, cpu_margin=0.0, cpu_hold_s=1.0,
                  cpu_percentile=0.5)
    assert limit["target_cpu_limit_cores"] == pytest.approx(expected, rel=0.06)


def test_vertical_rules_set_the_limit_for_the_demand_or_the_latency():
    assert after("vertical-cpu", [steady(cpu_utilization=0.9)], cpu_cpu_target=0.6)["target_cpu_limit_cores"] == 1.5
    assert after("vertical-cpu", [steady(cpu_utilization=0.9), steady(cpu_utilization=0.1)], cpu_cpu_target=0.6,
                 cpu_down_window_s=60.0)["target_cpu_limit_cores"] == 1.5
    slow = steady(p99_ms=400.0, cpu_utilization=0.1)
    assert after("vertical-cpu-p99", [slow], cpu_p99_target=1.0, cpu_p99_exponent=0.5)["target_cpu_limit_cores"] == 2.0


def test_static_keeps_a_share_of_what_was_deployed():
    moved = [steady(), steady(replicas=9.0, cpu_limit_cores=3.0)]
    targets = after("static", moved, replicas_scale=2.0, cpu_scale=0.5)
    assert (targets["target_replicas"], targets["target_cpu_limit_cores"]) == (8.0, 0.5)


def test_rules_run_without_torch_pandas_and_scipy():
    program = ("import sys\nfrom systems.autoscaling.rules.rules import make\nmake('autopilot')\n"
               "print([name for name in ('torch', 'pandas', 'scipy', 'optuna') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
