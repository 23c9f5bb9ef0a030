"""The learning benchmark's tables: means and spread over the seeds, and what the paper says beside them."""

import copy
from typing import Any

import pytest

from benchmarks.learning import performance_tables
from benchmarks.learning.methods import METHODS
from tests.benchmarks.sample_results import peer_entry, performance_results


def _of(results: dict[str, Any], method: str, workload: str) -> list[dict[str, Any]]:
    return [entry for entry in results["entries"] if (entry["method"], entry["workload"]) == (method, workload)]


def _row(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_workload_s_row_has_mean_and_spread_over_the_seeds() -> None:
    row = _row(performance_tables.verified_table(performance_results()), "search")
    assert row == ["search", "PROVED", "90.5 ± 0.7", "87.0 ± 0.0", "+3.5 ± 0.7", "85.0 ± 0.0", "100.0 ± 0.0",
                   "25.0 ± 0.0", "12.5", "82.3 % (Solr)"]


def test_a_workload_that_the_paper_left_out_says_so() -> None:
    row = _row(performance_tables.verified_table(performance_results()), "redis")
    assert row[-2:] == ["", "not evaluated"]


def test_verdicts_that_differ_are_counted() -> None:
    results = performance_results()
    results["entries"][1]["verdict"] = "UNKNOWN"
    assert _row(performance_tables.verified_table(results), "search")[1] == "1 PROVED, 1 UNKNOWN"


def test_a_worse_verified_learner_shows_a_negative_difference() -> None:
    results = performance_results()
    for entry in results["entries"]:
        entry["metrics"]["test_accuracy"] = 0.8
    assert _row(performance_tables.verified_table(results), "search")[4] == "-7.0 ± 0.0"


def test_every_method_has_a_name() -> None:
    assert set(performance_tables.METHOD_NAMES) == set(METHODS)


def test_a_learner_s_row_reads_its_error_against_boosting_and_the_mean() -> None:
    text = performance_tables.methods_table(performance_results())
    row = _row(text, "search | monotone by construction, then proved")
    assert row == ["search", "monotone by construction, then proved", "PROVED", "1.20 ± 0.00", "0.60 ± 0.00",
                   "0.10 ± 0.00", "90.5 ± 0.7", "+3.5 ± 0.7", "100.0 ± 0.0", "2.0 ± 0.0", "12.5 ± 0.0"]


def test_the_table_has_a_part_a_data_set_and_a_row_a_workload_and_method() -> None:
    parts = performance_tables.methods_table(performance_results()).split("### ")
    assert [part.partition("\n")[0] for part in parts[1:]] == ["Recorded telemetry",
                                                               "LinnOS, decreasing as in the paper's DSL"]
    rows = [[line.split("|")[2].strip() for line in part.splitlines() if line.startswith(("| redis", "| search",
                                                                                         "| linnos"))]
            for part in parts[1:]]
    references = ["*monotone gradient boosting*", "*mean of the training side*"]
    assert rows == [["monotone by construction, then proved", "monotone, not pretrained", *references,
                     "monotone by construction, then proved", "counterexample-guided (Algorithm 1)",
                     "plain (never verified in training)", *references],
                    ["certified training", "plain (never verified in training)", *references, "queue_now"]]


def test_an_unproved_learner_has_no_seconds_until_proved() -> None:
    row = _row(performance_tables.methods_table(performance_results()), "search | counterexample-guided (Algorithm 1)")
    assert row[2] == "REFUTED" and row[-1] == ""


def test_a_peer_is_set_beside_plain_training_and_has_no_goal() -> None:
    results = performance_results()
    results["entries"] += [peer_entry(seed, "search", 0.86) for seed in (0, 1)]
    text = performance_tables.methods_table(results)
    row = _row(text, "search | Lipschitz monotone network (peer)")
    assert row[2] == "by construction (not checked)" and row[7:] == ["-1.0 ± 0.0", "", "", ""]
    assert text.count("Lipschitz monotone network (peer)") == 1


def _goal(results: dict[str, Any], learner: str) -> list[str]:
    """Of the recorded telemetry: workloads on which the goal is met, and not."""
    part = performance_tables.methods_table(results).split("### ")[1]
    return _row(part[part.index("Goal: "):], learner)[1:]


def test_the_goal_is_met_where_proved_accurate_and_quick() -> None:
    met, missed = _goal(performance_results(), "monotone by construction, then proved")
    assert met == "search"
    assert missed == "redis (plain training not measured)"


@pytest.mark.parametrize(("metric", "value", "missing"), [
    ("test_accuracy", 0.8651, None), ("test_accuracy", 0.8649, "-0.5 points"), ("test_accuracy", 0.85, "-2.0 points"),
    ("proved_seconds", 59.9, None), ("proved_seconds", 61.0, "61 s"),
])
def test_the_goal_is_missed_by_what_is_named(metric: str, value: float, missing: str | None) -> None:
    results = copy.deepcopy(performance_results())
    for entry in _of(results, "monotone", "search"):
        entry["metrics"][metric] = value
    met, missed = _goal(results, "monotone by construction, then proved")
    assert met == ("none" if missing else "search")
    assert (f"search ({missing})" in missed) == bool(missing)


def test_one_seed_that_is_not_proved_misses_the_goal() -> None:
    results = performance_results()
    _of(results, "monotone", "search")[1]["verdict"] = "TIMEOUT"
    del _of(results, "monotone", "search")[1]["metrics"]["proved_seconds"]
    assert "search (1 PROVED, 1 TIMEOUT)" in _goal(results, "monotone by construction, then proved")[1]


def test_directions_are_said_with_what_the_data_say() -> None:
    text = performance_tables.methods_table(performance_results())
    assert _row(text, "linnos | queue_now") == [
        "linnos", "queue_now", "decreasing", "+0.50", "+0.25", "0.200, 0.200, 0.150 (1 of 2)",
        "0.200, 0.200, 0.150 (1 of 2)"]


def test_a_small_error_keeps_its_digits() -> None:
    results = performance_results()
    for entry in _of(results, "certified", "linnos"):
        entry["metrics"]["test_mse"] = 0.0000321
    assert _row(performance_tables.methods_table(results), "linnos | certified training")[3] == "0.0321"


def test_pretraining_is_set_against_none() -> None:
    row = _row(performance_tables.ablation_table(performance_results()), "redis")
    assert row == ["redis", "80.0", "90.5 ± 0.7", "1.20", "1.20 ± 0.00"]


def test_a_metric_that_was_not_finite_is_no_silent_gap() -> None:
    results = performance_results()
    results["entries"][0]["metrics"]["test_accuracy"] = None
    with pytest.raises(ValueError, match="test_accuracy must be finite"):
        performance_tables.verified_table(results)


def test_settings_name_data_seeds_and_samples() -> None:
    line = performance_tables.settings_line(performance_results())
    assert line.startswith("Recorded telemetry: 2,000 samples (data 0123456789ab), seeds 0, 1.")
    assert "\n\nLinnOS, decreasing as in the paper's DSL: 1,000 samples (data fedcba987654), seeds 0." in line
