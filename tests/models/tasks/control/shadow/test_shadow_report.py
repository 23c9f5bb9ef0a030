"""What a shadow came to, on a server whose answers are known in closed form: the log, the replay, numbers and page."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from feature_store.errors import InputError
from models.control.training.trajectory_log import Header, TrajectoryLog
from models.tasks.control.shadow.intervals import apart, block_of, mean_with_ends, median_with_ends
from models.tasks.control.shadow.replay import AS_SET, FALLBACK, POLICY, replay
from models.tasks.control.shadow.report import shadow_report
from models.tasks.control.shadow.shadow_log import read_shadow
from models.tasks.control.shadow.verdict import next_steps, span
from tests.environments.backlog_acting import STEP_S, TICK
from tests.models.tasks.control.shadow.shadow_steps import (
    HEADER,
    double_of_the_load,
    shadow_step,
    task_of,
    write_log,
)

DAY = int(86_400 / STEP_S)
NBSP = "\N{NO-BREAK SPACE}"


def report_of(folder, steps, environment="tests.environments.replayed_backlog"):
    return shadow_report(task_of(environment), "shop", write_log(folder, steps), double_of_the_load(), "task.yaml")


def varied(number: int) -> float:
    """A load that rises and falls by a tenth in an hour: a step varies, the mean of an hour is 10."""
    return 10.0 + math.sin(2 * math.pi * number * STEP_S / 3600.0)


# ---------------------------------------------------------------------------------------------------------- the log


def test_what_was_set_and_what_would_have_been_are_read_apart(tmp_path):
    log = read_shadow(write_log(tmp_path, [shadow_step(0), shadow_step(1, actor="nobody", reason="stopped")]),
                      "backlog", "shop")
    assert log.targets[:, 0].tolist() == [30.0, 30.0]
    assert log.would[0, 0] == 22.5 and np.isnan(log.would[1, 0])
    assert log.hours == pytest.approx(2 * STEP_S / 3600)


def test_a_step_s_load_is_what_the_next_one_saw_and_the_longest_stretch_without_a_gap_counts(tmp_path):
    numbers = [*range(5), *range(7, 17), *range(20, 23)]
    log = read_shadow(write_log(tmp_path, [shadow_step(number, rate=number + 0.5) for number in numbers]),
                      "backlog", "shop")
    stretch = log.stretch(("rate_rps",))
    assert stretch["rate_rps"].tolist() == [number + 0.5 for number in range(8, 17)]
    assert [numbers[row] for row in stretch.index] == list(range(7, 16))
    assert stretch["window_s"].unique().tolist() == [STEP_S]


def test_a_restart_between_two_steps_of_the_run_before_is_no_gap(tmp_path):
    steps = [*(shadow_step(number, seconds=10.0 * number + 0.3 * (number % 2)) for number in range(6)),
             *(shadow_step(number, episode=1, seconds=64.9 + 10.0 * number) for number in range(6))]
    log = read_shadow(write_log(tmp_path, steps), "backlog", "shop")
    assert log.place.tolist() == list(range(12))


@pytest.mark.parametrize(("steps", "message"), [
    ([shadow_step(0, shadow=False), shadow_step(1)], "log must be of a shadow, got one of a controller that acted"),
    ([replace(shadow_step(0), application="other")], "log must have a step of shop, got none"),
    ([shadow_step(0, interval_s=None)], "log must have two steps at least"),
])
def test_what_is_no_log_of_a_shadow_is_one_line(tmp_path, steps, message):
    with pytest.raises(InputError, match=message):
        read_shadow(write_log(tmp_path, steps), "backlog", "shop")


def test_a_log_of_another_task_is_refused(tmp_path):
    TrajectoryLog(tmp_path / "steps", Header("other", HEADER.signals, HEADER.controls)).append([shadow_step(0)])
    with pytest.raises(InputError, match="log must be of the task backlog, got one of other"):
        read_shadow(tmp_path, "backlog", "shop")


# ----------------------------------------------------------------------------------------------------- the intervals


def test_blocks_are_an_hour_or_a_tenth_of_a_shorter_run():
    assert block_of(DAY, STEP_S) == 360 and block_of(500, STEP_S) == 50 and block_of(5, STEP_S) == 1


def test_ends_cover_the_mean_as_often_as_they_say():
    """Runs of 4 equal values, each normal: the ends of 95 % miss the true mean 0 in about 5 % of 200 runs."""
    random, missed = np.random.default_rng(0), 0
    for _ in range(200):
        _, low, high = mean_with_ends(np.repeat(random.normal(size=60), 4), 20)
        missed += not low <= 0.0 <= high
    assert 2 <= missed <= 22


def test_variations_widen_an_interval_and_equal_ones_do_not():
    time = np.random.default_rng(1).normal(size=200)
    alone = mean_with_ends(time, 10)
    equal = mean_with_ends(np.repeat(time[:, None], 6, axis=1), 10)
    apart_by = mean_with_ends(time[:, None] + np.arange(-3.0, 3.0), 10)
    assert equal == pytest.approx(alone)
    assert apart_by[2] - apart_by[1] > 3 * (alone[2] - alone[1])


def test_one_value_has_no_ends_and_none_has_no_mean():
    assert mean_with_ends(np.array([2.0]), 1)[0] == 2.0 and np.isnan(mean_with_ends(np.array([2.0]), 1)[1:]).all()
    assert np.isnan(mean_with_ends(np.array([]), 1)).all()


@pytest.mark.parametrize("ends", [mean_with_ends, median_with_ends])
def test_a_few_steps_have_no_ends_however_equal_they_are(ends):
    assert ends(np.zeros(7), 1)[0] == 0.0 and np.isnan(ends(np.zeros(7), 1)[1:]).all()
    assert np.isnan(ends(np.arange(14.0).reshape(7, 2), 1)[1:]).all() and ends(np.zeros(8), 1) == [0.0, 0.0, 0.0]


def test_medians_do_not_follow_a_single_peak():
    values = np.ones(100)
    values[7] = 1e6
    assert median_with_ends(values, 10) == [1.0, 1.0, 1.0]
    assert apart([1.0, 0.5, 1.5], [2.0, 1.6, 2.4]) and not apart([1.0, 0.5, 1.7], [2.0, 1.6, 2.4])
    assert not apart([1.0, 1.0, 1.0], [1.03, 1.03, 1.03])


# -------------------------------------------------------------------------------------------------------- the replay


def test_the_same_load_is_replayed_under_what_was_set_the_policy_and_the_fallback(tmp_path):
    log = read_shadow(write_log(tmp_path, [shadow_step(number) for number in range(200)]), "backlog", "shop")
    found = replay(task_of(), "shop", log, double_of_the_load())
    assert not isinstance(found, str)
    assert {who: one.cost.tolist() for who, one in found.played.items()} == {
        AS_SET: [pytest.approx(3.0)] * 2, POLICY: [pytest.approx(2.0)] * 2, FALLBACK: [pytest.approx(4.0)] * 2}
    assert len(found.rows) == 199 and found.warm_up == 20 and found.held == ()


def test_whatever_was_set_is_set_again_step_by_step_beyond_limits_and_rates(tmp_path):
    sets = [8.0 if number % 10 < 5 else 240.0 for number in range(100)]
    log = read_shadow(write_log(tmp_path, [shadow_step(number, is_set=one) for number, one in enumerate(sets)]),
                      "backlog", "shop")
    found = replay(task_of(), "shop", log, double_of_the_load())
    assert not isinstance(found, str)
    assert found.played[AS_SET].targets[:, 0, 0].tolist() == sets[:-1]


def test_a_control_that_the_shadow_never_changed_follows_what_was_set(tmp_path):
    steps = [shadow_step(number, targets={"target_capacity_rps": 30.0}) for number in range(100)]
    log = read_shadow(write_log(tmp_path, steps), "backlog", "shop")
    found = replay(task_of(), "shop", log, double_of_the_load())
    assert not isinstance(found, str)
    assert found.held == ("target_capacity_rps",)
    assert found.played[POLICY].cost.tolist() == [pytest.approx(3.0)] * 2


@pytest.mark.parametrize(("steps", "environment", "message"), [
    ([shadow_step(number) for number in range(100)], "tests.environments.backlog", "the system has no replay"),
    ([shadow_step(number) for number in range(40)], "tests.environments.replayed_backlog",
     r"has 39 steps, and 60 are needed"),
    ([shadow_step(number, seconds=30.0 * number, interval_s=30.0) for number in range(100)],
     "tests.environments.replayed_backlog", "the shadow's steps are 30 s apart, the twin's 10 s"),
])
def test_what_cannot_be_replayed_is_said_and_the_page_has_all_else(tmp_path, steps, environment, message):
    found, html = report_of(tmp_path, steps, environment)
    assert message.replace("\\", "") in found["replay"]
    assert "What the policy would have come to is not known" in found["verdict"]
    assert "Nothing was replayed" in html and html.count("<svg") == 2
    assert "missed its objective in 0" in found["verdict"]


# ------------------------------------------------------------------------------------------- numbers, sentences, page


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """A day in which all went well, and three times as much was set as came."""
    steps = [shadow_step(number, rate=varied(number), is_set=30.0) for number in range(DAY + 2)]
    return report_of(tmp_path_factory.mktemp("day"), steps)


def test_the_verdict_is_what_the_policy_saves_with_its_interval_beside_what_was_set(day):
    found, html = day
    assert found["replay"]["saved"][POLICY][0] == pytest.approx(1 / 3, abs=1e-3)
    assert found["replay"]["saved"][FALLBACK][0] == pytest.approx(-1 / 3, abs=1e-3)
    assert found["verdict"].startswith(f"In 23.95{NBSP}hours the policy would have saved 33.3{NBSP}% (33.")
    assert f"at 0{NBSP}% of violating steps beside 0{NBSP}% under what was set" in found["verdict"]
    assert f"The policy could not decide in 0{NBSP}% of the steps." in found["verdict"]
    assert found["verdict"] in html and html.count("<svg") == 2


def test_where_all_is_well_the_next_step_is_to_act(day):
    found, html = day
    assert found["doubts"] == [] and len(found["next"]) == 1
    assert found["next"][0].startswith("Let it act: take off whoever sets the service now, then assay control "
                                       "--workload shop")
    assert "ready to act" in html and "nothing differs by more than its intervals and 5 %" in html


def test_a_policy_that_did_not_decide_is_not_let_act_before_its_reason_is_seen_to(tmp_path):
    found, html = report_of(tmp_path, [shadow_step(number, rate=varied(number), actor="fallback", reason="kill switch")
                                       for number in range(200)])
    assert found["next"][1:] == [f"See first why the policy did not decide in 100{NBSP}% of the steps: kill switch."]
    assert "not ready to act" in html


@pytest.mark.parametrize("measured", [0, 30])
def test_where_too_few_outcomes_were_measured_nothing_is_alike_and_the_policy_is_not_let_act(tmp_path, measured):
    steps = [shadow_step(number, rate=varied(number)) for number in range(200)]
    steps = [replace(one, reward=math.nan, cost=math.nan, violation=math.nan, violated=math.nan, mark="irregular")
             if number >= measured else one for number, one in enumerate(steps)]
    found, html = report_of(tmp_path, steps)
    assert "violated" not in found["replay"]["told"] and len(found["next"][1:]) == len(found["doubts"]) == 1
    assert found["next"][1].startswith("See first that the outcome is measured.") and "not ready to act" in html
    assert "not to be believed yet" in found["verdict"] and "service are alike" not in html


@pytest.mark.parametrize("key", ["saved", "more_violating"])
def test_an_end_that_is_not_known_lets_nothing_act(day, key):
    replayed = day[0]["replay"]
    found = {**day[0], "allowed_violating_share": -1.0, "replay": {
        **replayed, key: {**replayed[key], POLICY: [0.5, math.nan, math.nan]}}}
    assert next_steps(found, "task.yaml")[0].startswith("Do not let this policy act")


def test_an_interval_that_is_not_known_is_not_printed():
    assert span([0.5, math.nan, math.nan], 0.0) == f"50.0{NBSP}%"
    assert span([0.5, -0.1, 0.6], 0.0) == f"50.0{NBSP}% (0.0 to 60.0{NBSP}%)"


def test_what_was_measured_has_means_intervals_and_units(day):
    found, html = day
    assert found["measured"]["rate_rps"] == pytest.approx([10.0, 10.0, 10.0], abs=0.05)
    assert found["measured"]["violated"] == [0.0, 0.0, 0.0]
    assert found["units"]["rate_rps"] == "1/s" and "wait_s" not in found["measured"]  # it never changes
    assert "blocks of 60" in html and "capacity over mean load" in html


def test_a_twin_that_is_none_is_said_and_to_be_fitted_again(tmp_path):
    waits = np.random.default_rng(0).uniform(2.5, 3.5, DAY + 2)
    steps = [shadow_step(number, rate=varied(number), wait_s=float(wait)) for number, wait in enumerate(waits)]
    found, html = report_of(tmp_path, steps)
    assert found["replay"]["apart"] == ["violated", "wait_s"]
    assert f"Under what was set the twin says 0.0625{NBSP}s for wait, and " in "".join(found["doubts"])
    assert "Fit the twin again, for it differs from the service in violating steps, wait" in found["next"][0]
    assert f"says 0{NBSP}% for violating steps, and 100{NBSP}% was measured" in html


def test_a_short_run_out_of_distribution_with_gaps_says_what_to_do_first(tmp_path):
    steps = [shadow_step(number, rate=varied(number)) for number in range(100)]
    steps += [shadow_step(number, actor="fallback", strange=["rate_rps"], changes=[
        {"control": "target_capacity_rps", "reason": "rate", "wanted": 90.0, "allowed": 60.0}],
        reason=f"out of distribution: rate_rps is {number}.5, training saw 1 to 2") for number in range(100, 120)]
    steps += [shadow_step(number, actor="nobody", reason="actuator: nothing is known", troubles=["a"])
              for number in range(130, 140)]
    found, html = report_of(tmp_path, steps)
    assert found["decided"]["actors"] == {"policy": 100, "fallback": 20, "nobody": 10}
    assert found["decided"]["reasons"][0] == ("out of distribution: rate_rps is …, training saw … to …", 20)
    assert found["decided"]["shield"] == [["target_capacity_rps", "rate", 20]]
    assert (found["missing_steps"], found["replay"]["left_out_steps"]) == (10, 31)
    first, second, third = found["next"][:3]
    assert first.startswith(f"Let the shadow run on: it has watched for 21.67{NBSP}minutes")
    assert second.startswith("See to the measurements first") and "(actuator: nothing is known)" in second
    assert f"15.4{NBSP}% of the steps were beyond" in third
    assert f"could not decide in 23.1{NBSP}% of the steps, most often because: out of distribution" in found["verdict"]
    assert "31 of 130 steps are left out" in html and "capacity: rate" in html


def test_a_policy_that_saves_nothing_is_not_let_act(tmp_path):
    found, html = report_of(tmp_path, [shadow_step(number, rate=varied(number), is_set=15.0)
                                       for number in range(DAY + 2)])
    assert found["verdict"].startswith(f"In 23.95{NBSP}hours the policy would have cost 33.")
    assert any(one.startswith("Do not let this policy act") for one in found["next"]) and "not ready to act" in html


def test_another_bundle_than_the_one_that_decided_is_said(tmp_path):
    _, html = report_of(tmp_path, [shadow_step(number, version="v0") for number in range(70)])
    assert "In the log decided: bundle v0; replayed is v1." in html


def test_steps_whose_outcome_is_not_known_count_for_nothing(tmp_path):
    unknown = replace(shadow_step(70), reward=np.nan, cost=np.nan, violation=np.nan, violated=np.nan, mark="missing")
    found, _ = report_of(tmp_path, [*(shadow_step(number) for number in range(70)), unknown])
    assert found["measured"]["cost"][0] == pytest.approx(3.0) and TICK == 0.0625


def test_a_step_in_which_nobody_knew_what_was_set_is_a_gap_and_spoils_no_number(tmp_path):
    steps = [shadow_step(number, rate=varied(number)) for number in range(200)]
    steps[40] = replace(steps[40], targets=(math.nan,))
    found, html = report_of(tmp_path, steps)
    assert found["replay"]["left_out_steps"] > 40 and all(map(math.isfinite, found["replay"]["saved"][POLICY]))
    assert "nan" not in found["verdict"].lower() and "1000000" not in html


def test_steps_under_another_objective_are_not_replayed_under_this_one(tmp_path):
    steps = [shadow_step(number, rate=varied(number)) for number in range(200)]
    place = [name for name, _ in HEADER.signals].index("slo_s")
    for number in range(60):
        seen = list(steps[number].observation)
        seen[place] *= 2.0
        steps[number] = replace(steps[number], observation=tuple(seen))
    found, _ = report_of(tmp_path, steps)
    assert 60 <= found["replay"]["left_out_steps"] < 60 + found["steps"] - 130


@pytest.mark.parametrize("detail", [
    {"at": "foo"}, {"at": "2026-01-01T00:00:00"}, {"interval_s": "x"}, {"targets": "x"}, {"changes": [{}]},
    {"strange": 5}, {"targets": {"target_capacity_rps": None}}, {"targets": {"target_capacity_rps": 1e308}},
    {"interval_s": 1e308}], ids=str)
def test_a_record_that_no_controller_wrote_is_lost_alone(tmp_path, detail):
    steps = [shadow_step(number, rate=varied(number)) for number in range(100)]
    steps[7] = replace(steps[7], detail={**steps[7].detail, **detail})
    found, _ = report_of(tmp_path, steps)
    assert found["lost_records"] == 1 and found["steps"] == 99


@pytest.mark.parametrize("value", [1e308, -1e308, 1e200, 1.1e15])
def test_a_value_that_no_service_has_counts_as_not_known_and_is_counted(tmp_path, value):
    steps = [shadow_step(number, rate=varied(number)) for number in range(200)]
    for number in (5, 6, 190):
        steps[number] = replace(steps[number], observation=(value,) * len(HEADER.signals), targets=(value,),
                                **dict.fromkeys(("reward", "cost", "violation", "violated"), value))
    steps[100] = replace(steps[100], violated=1.5)
    found, html = report_of(tmp_path, steps)
    assert found["impossible_values"] == 3 * (len(HEADER.signals) + 1 + 3) + 1
    assert f"{found['impossible_values']} values that no service has (beyond 1e+15, or a share beyond 0 to 1)" in html
    numbers = [*found["measured"].values(), *found["replay"]["saved"].values()]
    assert np.isfinite(numbers).all() and np.abs(numbers).max() < 100.0 and "infinite" not in html
    assert found["measured"]["violated"] == [0.0, 0.0, 0.0]


def test_a_last_step_that_lacks_a_setting_hides_no_day(tmp_path):
    steps = [shadow_step(number, rate=varied(number)) for number in range(200)]
    place = [name for name, _ in HEADER.signals].index("slo_s")
    seen = (*steps[-1].observation[:place], math.nan, *steps[-1].observation[place + 1:])
    found, _ = report_of(tmp_path, [*steps[:-1], replace(steps[-1], observation=seen)])
    assert found["replay"]["left_out_steps"] == 1 + 20  # the last, and the warm-up
    assert read_shadow(tmp_path, "backlog", "shop").last("slo_s") == 2.0


def test_a_clock_that_jumps_fills_no_memory_and_a_gap_is_not_watched(tmp_path):
    tracemalloc.start()
    found, html = report_of(tmp_path, [shadow_step(number, rate=varied(number), seconds=10.0 * number + 1e9 * (
        number >= 50)) for number in range(150)])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**27 and found["missing_steps"] == 100_000_000 and html.count("<svg") == 2
    assert found["next"][0].startswith(f"Let the shadow run on: it has watched for 25{NBSP}minutes")


def test_a_log_of_other_controls_is_said(tmp_path):
    TrajectoryLog(tmp_path / "steps", Header(HEADER.task, HEADER.signals, (("target_other", "1/s"),))).append(
        [shadow_step(number) for number in range(100)])
    found, _ = shadow_report(task_of(), "shop", tmp_path, double_of_the_load(), "t")
    assert "does not have the controls target_capacity_rps" in found["replay"]


def test_of_too_few_steps_it_is_said_that_there_is_no_interval(tmp_path):
    found, html = report_of(tmp_path, [shadow_step(number, rate=varied(number)) for number in range(4)])
    assert f"missed its objective in 0.0{NBSP}% of the steps, which are too few for an interval" in found["verdict"]
    assert all(math.isnan(end) for one in found["measured"].values() for end in one[1:])
    assert "Where ends are missing, too few steps are known for an interval." in html
    _, html = report_of(tmp_path / "more", [shadow_step(number) for number in range(20)])
    assert "too few for an interval" not in html


def test_what_nobody_could_measure_is_said_and_is_no_zero(tmp_path):
    steps = [replace(shadow_step(number), reward=math.nan, cost=math.nan, violation=math.nan, violated=math.nan,
                     mark="irregular") for number in range(20)]
    found, html = report_of(tmp_path, steps)
    assert "nobody could measure how often the service missed its objective" in found["verdict"]
    assert "not known" in html and "nan" not in html.lower().replace("finance", "")
