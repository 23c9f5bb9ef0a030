"""Feed-forward and feedback: each term by hand, and what the rule is worth with its defaults."""

import math

import numpy as np
import pytest

from models.control.simulation.rollout import roll_out
from systems.autoscaling.rules.rules import make
from systems.autoscaling.simulator.simulator import Autoscaling

RULE = "feedforward-p99"
PLAIN = {"demand_headroom": 1.9, "demand_least_headroom": 1.0, "demand_most_headroom": 16.0, "demand_lead_s": 0.0,
         "demand_peak_share": 0.0, "demand_p99_target": 0.5, "replicas_cores": 1.0, "replicas_down_window_s": 0.0,
         "cpu_least": 0.125, "cpu_most": 16.0}
# 4 of 4 replicas of one core serve 100 requests a second at 3 cores: 0.03 core seconds a request
SEEN = {"cpu_limit_cores": 1.0, "memory_limit_mib": 1000.0, "replicas": 4.0, "ready_replicas": 4.0,
        "cpu_utilization": 0.75, "memory_utilization": 0.35, "p99_ms": 50.0, "slo_ms": 100.0, "served_share": 1.0,
        "rate_rps": 100.0, "rate_1min_rps": 100.0}


def started(**settings: float):
    rule = make(RULE, {**PLAIN, **settings})
    rule.start(1)
    return rule


def acted(rule, seconds, **changed: float):
    targets = rule.act({name: np.array([value]) for name, value in {**SEEN, **changed}.items()}, seconds)
    return {name.removeprefix("target_"): float(value[0]) for name, value in targets.items()}


def test_needed_cores_are_the_cost_of_a_request_times_the_rate_times_the_headroom():
    targets = acted(started(), 0.0)
    assert targets["replicas"] == 6  # 0.03 * 100 * 1.9
    assert targets["cpu_limit_cores"] == pytest.approx(5.7 / 4)  # until two more serve, the four have all of it
    assert targets["memory_limit_mib"] == pytest.approx(350 / 0.7)


def test_limits_come_down_as_replicas_begin_to_serve():
    rule = started()
    acted(rule, 0.0)
    raised = {"replicas": 6.0, "cpu_limit_cores": 1.5}
    # metrics are an interval late: 0.75 is of what stood then, 4 replicas of one core
    assert acted(rule, 15.0, ready_replicas=5.0, **raised) == {
        "replicas": 6.0, "cpu_limit_cores": pytest.approx(5.7 / 5), "memory_limit_mib": pytest.approx(350 / 0.7)}
    # of 5 of 1.5 cores: 0.4 is 3 cores again
    targets = acted(rule, 30.0, ready_replicas=6.0, cpu_utilization=0.4, **raised)
    assert targets["cpu_limit_cores"] == pytest.approx(5.7 / 6)


def test_limits_are_shared_over_the_replicas_that_stay():
    targets = acted(started(replicas_cores=3.0), 0.0)
    assert targets["replicas"] == 2
    assert targets["cpu_limit_cores"] == pytest.approx(5.7 / 2)


@pytest.mark.parametrize(("mean", "expected"), [(70.0, 100 + 60 * 30 / 60), (130.0, 100.0)])
def test_a_rising_rate_is_extrapolated_and_a_falling_one_is_not(mean, expected):
    targets = acted(started(demand_lead_s=60.0), 0.0, rate_1min_rps=mean)
    assert targets["cpu_limit_cores"] == pytest.approx(0.03 * expected * 1.9 / 4)


def test_a_share_of_the_last_peak_is_kept_until_its_window_has_gone():
    rule = started(demand_peak_share=0.5, demand_peak_window_s=600.0, demand_request_half_life_s=1e8)
    assert acted(rule, 0.0, rate_rps=400.0, cpu_utilization=1.0)["replicas"] == 8  # 0.01 * 400 * 1.9
    low = {"rate_rps": 100.0, "cpu_utilization": 0.25}  # 0.01 core seconds a request again
    for seconds in (15.0, 570.0):
        targets = acted(rule, seconds, **low)
        assert targets["replicas"] == 4 and targets["cpu_limit_cores"] == pytest.approx(0.01 * 200 * 1.9 / 4)
    assert acted(rule, 625.0, **low)["replicas"] == 2


@pytest.mark.parametrize(("p99", "gain"), [(100.0, 0.3), (25.0, 0.1)])
def test_the_headroom_is_integrated_from_latency_over_its_target(p99, gain):
    rule = started(demand_gain_up=0.3, demand_gain_down=0.1)
    before = acted(rule, 0.0, p99_ms=p99)["cpu_limit_cores"]
    after = acted(rule, 30.0, p99_ms=p99)["cpu_limit_cores"]
    expected = math.exp(gain * math.log(p99 / 50.0) * 0.5)
    assert after == pytest.approx(before * expected, rel=1e-9)


def test_lost_requests_count_as_a_missed_objective():
    rule = started(demand_gain_up=0.3)
    before = acted(rule, 0.0, served_share=0.9)["cpu_limit_cores"]
    after = acted(rule, 60.0, served_share=0.9, p99_ms=1.0)["cpu_limit_cores"]
    assert after == pytest.approx(before * math.exp(0.3))


def test_the_headroom_rests_while_replicas_start_and_without_a_latency():
    rule = started(demand_gain_up=0.5)
    before = acted(rule, 0.0)["cpu_limit_cores"]
    acted(rule, 60.0, p99_ms=1000.0, replicas=6.0)
    acted(rule, 120.0, p99_ms=math.nan)
    assert acted(rule, 120.0)["cpu_limit_cores"] == pytest.approx(before)


def test_fewer_replicas_are_asked_for_once_the_window_asked_for_no_more():
    rule = started(replicas_down_window_s=60.0, demand_request_half_life_s=1e8)
    assert acted(rule, 0.0)["replicas"] == 6
    low = {"rate_rps": 50.0, "cpu_utilization": 0.375}
    assert [acted(rule, seconds, **low)["replicas"] for seconds in (15.0, 45.0, 60.0)] == [6, 6, 3]


@pytest.mark.parametrize("unknown", ["rate_rps", "cpu_utilization"])
def test_without_the_load_nothing_is_taken_away(unknown):
    rule = started()
    missing = {unknown: math.nan}
    targets = acted(rule, 0.0, **missing, p99_ms=1.0)
    assert targets["replicas"] == 4 and targets["cpu_limit_cores"] == 1.0


def test_with_its_defaults_it_is_cheaper_than_the_hpa_and_misses_the_objective_less():
    environment = Autoscaling()
    episodes = environment.draw("held_out", 200, 161, seed=5)
    own, other = (roll_out(environment, make(name), episodes, 160) for name in (RULE, "hpa-cpu-p99-vpa-memory"))
    assert own.cost.mean() < 0.75 * other.cost.mean()
    assert own.violated.mean() < 0.7 * other.violated.mean()
