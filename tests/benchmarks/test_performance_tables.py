"""The learning benchmark's tables: means and spread over the seeds, and what the paper says beside them."""

import pytest

from benchmarks import performance_tables
from tests.benchmarks.sample_results import performance_results


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


def test_every_method_has_its_rows() -> None:
    text = performance_tables.methods_table(performance_results())
    assert len(text.splitlines()) == 2 + 4
    assert "counterexample-guided (Algorithm 1) | search | REFUTED | 1.20 | 1.50 | 2.00 | 70.0" in text


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
    assert line.startswith("2,000 samples (data 0123456789ab), seeds 0, 1.")
