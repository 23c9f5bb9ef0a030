"""Values, units, spread, goals and peers of the pipeline benchmark's tables."""

from benchmarks.pipeline import tables as pipeline_tables
from tests.benchmarks.sample_results import pipeline_results


def _row(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_goal_s_row_has_median_spread_goal_and_peers() -> None:
    row = _row(pipeline_tables.goals_table(pipeline_results()), "one prediction")
    assert row == ["one prediction with all checks", "0.310 s (0.300 s to 0.350 s, 3 values)", "< 1 s", "yes",
                   "plain onnxruntime: 0.300 s; a peer: not installed"]


def test_a_goal_that_is_missed_says_no() -> None:
    row = _row(pipeline_tables.goals_table(pipeline_results()), "share of the run")
    assert row[1:4] == ["30.0 % (29.0 % to 31.0 %, 3 values)", "< 25 %", "**no**"]


def test_a_failed_measurement_is_shown_as_not_met() -> None:
    row = _row(pipeline_tables.goals_table(pipeline_results()), "recorder")
    assert row[1] == "failed: FileNotFoundError: no card" and row[3] == "no"


def test_trial_sizes_and_a_busy_machine_are_confessed() -> None:
    results = pipeline_results()
    assert "Trial sizes" not in pipeline_tables.goals_table(results)
    results["measurements"]["serving"] |= {"quick": True, "load_average_before": 6.5, "code_changed_meanwhile": True}
    text = pipeline_tables.goals_table(results)
    assert "Trial sizes, numbers without meaning: serving." in text
    assert "(load average): serving 6.50." in text
    assert "The code was changed while these ran: serving." in text


def test_small_times_are_in_milliseconds() -> None:
    assert _row(pipeline_tables.stages_table(pipeline_results()), "ingest")[2:] == ["50.0 ms", "1.50 s", "0.200 GB"]


def test_shares_of_a_run_add_up() -> None:
    text = pipeline_tables.shares_table(pipeline_results())
    assert _row(text, "own work") == ["own work of the steps", "70.0 s", "70.0 % to 70.0 %"]


def test_scale_shows_seconds_per_workload_and_exponents() -> None:
    text = pipeline_tables.scale_table(pipeline_results())
    assert _row(text, "**whole run**") == ["**whole run**", "10.0 s", "20.0 s", "**0.50**", ""]
    assert _row(text, "whole run, per workload")[1:3] == ["2.00 s", "1.00 s"]
    assert _row(text, "validate")[-1] == "0.250 GB"


def test_the_machine_line_leaves_out_what_is_not_installed() -> None:
    line = pipeline_tables.machine_line(pipeline_results())
    assert "pandas 3.1.1" in line and "duckdb" not in line
