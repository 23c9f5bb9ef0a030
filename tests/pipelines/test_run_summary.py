"""What a run ends with: a table that fits 80 columns, also of long names and of many workloads, and the exit code."""

import io
from typing import Any

import pytest
from rich.console import Console

from models.reporting.formatting import significant
from models.tasks.supervised.task_error import task_error
from pipelines.run_summary import HOW_TO_REVIEW, run_exit_code, summary_notes, summary_table

METRICS = {"test_mse": 0.00123, "test_accuracy": 0.987, "twin_test_accuracy": 0.9, "verification_iterations": 2,
           "verification_seconds": 12.34}


def figures(value: float = 0.00041234, twin: float | None = 1234.5, unit: str = "ms") -> list[dict[str, Any]]:
    """As a kind of task makes them."""
    return [{"name": "error", "value": value, "unit": unit, "meaning": "the mean absolute error on test rows"},
            {"name": "twin's", "value": twin, "unit": unit, "meaning": "the unverified network's"},
            {"name": "right", "value": 98.7, "unit": "%", "meaning": "the share of rows predicted right"}]


def gates(*failed: str) -> dict[str, Any]:
    names = ("specification", "test_accuracy", "champion_mse", "baseline_mse", "parity", "latency")
    return {"passed": not failed, "gates": [
        {"name": name, "passed": name not in failed, "reason": f"{name} is as it is"} for name in names]}


def entry(workload: str, status: str = "registered", **changes: Any) -> dict[str, Any]:
    return {"workload": workload, "status": status, "message": "why", "metrics": METRICS, "figures": figures(),
            "badness": 0.01, "verdict": "PROVED", "gates": gates(), "version": 12, "alias": "challenger",
            "bundle": f"/b/performance/{workload}/12", **changes}


def shown(summary: dict[str, Any], width: int = 80) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(summary_table(summary))
    return text.getvalue()


NOTHING: dict[str, Any] = {"metrics": None, "figures": [], "badness": None, "gates": None, "verdict": None,
                           "version": None, "alias": None, "bundle": None}
SUMMARY = {"report": "/r/index.html", "entries": [
    entry("training"), entry("redis", "rejected", gates=gates("champion_mse", "latency"), alias=None, bundle=None),
    entry("mysql", "failed", **NOTHING)]}


def test_the_table_fits_80_columns_and_cuts_no_number() -> None:
    text = shown(SUMMARY)
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    (row,) = [line.split() for line in text.splitlines() if "training" in line]
    assert row == ["training", "0.000412", "1,230", "98.7", "PROVED", "6", "of", "6", "12", "challenger"]
    assert "ms      ms" in text


def test_the_table_counts_gates_and_names_what_became_of_each_workload() -> None:
    lines = [line.split() for line in shown(SUMMARY).splitlines()]
    assert ["redis", "0.000412", "1,230", "98.7", "PROVED", "4", "of", "6", "12", "rejected"] in lines
    assert ["mysql", "failed"] in lines


def test_units_that_differ_stand_beside_the_numbers() -> None:
    other = entry("sizing", figures=figures(13.37, None, "%"))
    text = shown({"report": "", "entries": [entry("redis"), other]})
    assert "0.000412 ms" in text and "13.4 %" in text and max(map(len, text.splitlines())) <= 80


def test_markup_in_a_name_is_printed_as_it_is() -> None:
    assert "[red]x[/]" in shown({"report": "", "entries": [entry("[red]x[/]")]})


def test_the_notes_give_reasons_bundles_and_the_report() -> None:
    assert summary_notes(SUMMARY)[1:] == ["training: why", "redis: why", "  champion_mse: champion_mse is as it is",
                                          "  latency: latency is as it is", "mysql: why",
                                          "wait for a review: training version 12", f"  {HOW_TO_REVIEW}",
                                          "bundle: /b/performance/training/12", "report: /r/index.html"]
    assert summary_notes(SUMMARY)[0].startswith("columns: error, the mean absolute error on test rows")


def test_a_challenger_gets_a_line_for_each_thing_that_keeps_it_from_being_champion() -> None:
    weaker = {"report": "/r", "entries": [entry("training", message="better; weaker: box a; box b", bundle=None)]}
    assert summary_notes(weaker)[1:] == ["training: better", "  weaker: box a", "  box b",
                                         "wait for a review: training version 12", f"  {HOW_TO_REVIEW}", "report: /r"]
    new_champion = {"report": "/r", "entries": [entry("training", alias="champion", bundle=None)]}
    assert summary_notes(new_champion)[1:] == ["report: /r"]


def test_who_waits_is_told_by_the_role_whatever_the_alias_is_called() -> None:
    champion = entry("redis", alias="challenger", role="champion", bundle=None)
    waiting = entry("nginx", alias="next", role="challenger", message="better; weaker: box a", bundle=None)
    assert summary_notes({"report": "/r", "entries": [champion, waiting]})[1:] == [
        "nginx: better", "  weaker: box a", "wait for a review: nginx version 12", f"  {HOW_TO_REVIEW}", "report: /r"]
    assert "next" in shown({"report": "", "entries": [waiting]}), "an alias is shown as it is called"


def test_of_a_thousand_workloads_the_worst_are_shown_and_the_rest_is_counted() -> None:
    name = "a-workload-with-a-rather-long-name-of-the-spark-cluster-in-frankfurt"
    entries = [entry(f"{name}-{number:04d}", alias="champion", figures=figures(number / 1000), badness=number / 1000)
               for number in range(1000)]
    for number in (3, 500, 501):
        entries[number] |= {"status": "failed", **NOTHING}
    summary = {"report": "/r/index.html", "entries": entries}
    lines, notes = shown(summary).splitlines(), summary_notes(summary)
    assert max(map(len, lines)) <= 80 and len(lines) < 60
    text = "".join(line[:30].strip() for line in lines)
    assert "0003" in text and "0500" in text and "0999" in text and "0100" not in text
    assert "1,000 workloads: 997 registered as champion, 3 failed" in notes
    assert "median error 0.499 ms, largest 0.999 ms" in notes
    assert "bundles: 997 in /b/performance, each as WORKLOAD/VERSION" in notes and len(notes) < 12


def test_of_many_versions_that_wait_the_first_are_named() -> None:
    entries = [entry(f"w{number}", bundle=None) for number in range(12)]
    (line,) = [note for note in summary_notes({"report": "", "entries": entries}) if note.startswith("wait for")]
    assert "w9 version 12" in line and "w10" not in line and line.endswith(" and 2 more")


def test_each_thing_that_keeps_a_challenger_back_is_a_line() -> None:
    notes = summary_notes({"report": "", "entries": [entry("redis", message="not better; a smaller box")]})
    assert notes[1:3] == ["redis: not better", "  a smaller box"]


def test_many_reasons_are_counted() -> None:
    entries = [entry(f"w{number}", "rejected", bundle=None, alias=None) for number in range(50)]
    notes = summary_notes({"report": "", "entries": entries})
    assert "40 more reasons: in the report" in notes and sum(note.endswith(": why") for note in notes) == 10


@pytest.mark.parametrize(("status", "code"), [("registered", 0), ("unchanged", 0), ("no new data", 0), ("rejected", 1),
                                              ("failed", 1), ("error", 1)])
def test_the_exit_code_is_1_as_soon_as_one_workload_is_not_let_through(status: str, code: int) -> None:
    assert run_exit_code({"entries": [entry("a"), entry("b", status)]}) == code


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (0.000412345, "0.000412"), (1.0, "1"), (12.345, "12.3"),
                                             (1234.5, "1,230"), (999_999, "1,000,000"), (-0.5, "-0.5")])
def test_three_significant_digits_without_an_exponent(value: float, text: str) -> None:
    assert significant(value) == text


def test_the_error_of_telemetry_is_absolute_in_the_unit_of_the_target() -> None:
    evidence = {"target": {"unit": "ms", "minimum": 2.0, "maximum": 12.0},
                "metrics": {"test_mae": 0.05, "twin_test_mae": 0.1, "baseline_mae": 0.2}}
    assert task_error(evidence) == {"name": "mean absolute error", "unit": "ms", "share": 0.05, "value": 0.5,
                                    "twin": 1.0, "baseline": 2.0}


def test_the_error_of_a_few_runs_is_a_percentage() -> None:
    evidence = {"target": {"unit": "ln(s)", "minimum": 2.0, "maximum": 12.0},
                "metrics": {"test_mae": 0.05, "test_mape": 0.125, "baseline_mape": 0.5}}
    found = task_error(evidence)
    assert found is not None and (found["value"], found["unit"], found["twin"], found["baseline"]) == (
        12.5, "%", None, 50.0)


@pytest.mark.parametrize("evidence", [None, {}, {"metrics": {"test_mse": 0.1}}, {"metrics": {"test_mae": 0.1}}])
def test_what_was_not_measured_is_no_error(evidence: dict[str, Any] | None) -> None:
    assert task_error(evidence) is None
