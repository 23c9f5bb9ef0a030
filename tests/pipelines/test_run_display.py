"""What a run shows: one line a step without a terminal, a table that fits 80 columns, and the exit code."""

import io
from typing import Any

import pytest
from rich.console import Console

from pipelines.run_display import RunDisplay
from tests.e2e.processes import wait_until

METRICS = {"test_mse": 0.00123, "test_accuracy": 0.987, "twin_test_accuracy": 0.9, "verification_iterations": 2,
           "verification_seconds": 12.34}


def gates(*failed: str) -> dict[str, Any]:
    names = ("specification", "test_accuracy", "champion_mse", "baseline_mse", "parity", "latency")
    return {"passed": not failed, "gates": [{"name": name, "passed": name not in failed} for name in names]}


def entry(workload: str, status: str = "registered", **changes: Any) -> dict[str, Any]:
    return {"workload": workload, "status": status, "message": "why", "metrics": METRICS, "verdict": "PROVED",
            "gates": gates(), "version": 12, "alias": "challenger", "bundle": f"/b/{workload}", **changes}


def shown(summary: dict[str, Any], width: int = 80) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(summary_table(summary))
    return text.getvalue()


FAILED = entry("mysql", "failed", metrics=None, gates=None, verdict=None, version=None, alias=None, bundle=None)
SUMMARY = {"report": "/r/index.html", "entries": [
    entry("training"), entry("redis", "rejected", gates=gates("champion_mse", "latency"), alias=None, bundle=None),
    FAILED]}


def test_the_table_fits_80_columns_and_cuts_no_number() -> None:
    text = shown(SUMMARY)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    (row,) = [line.split() for line in text.splitlines() if "training" in line]
    assert row == ["training", "0.00123", "0.987", "0.900", "PROVED", "2", "12.3", "6", "of", "6", "12", "challenger"]


def test_the_table_names_the_gates_that_failed_and_the_workload_that_has_none() -> None:
    text = " ".join(shown(SUMMARY, 120).split())
    assert "4 of 6: champion_mse, latency" in text and "mysql failed" in text


def test_the_notes_give_reasons_bundles_and_the_report() -> None:
    assert summary_notes(SUMMARY) == ["redis: why", "mysql: why", "bundle: /b/training", "report: /r/index.html"]


@pytest.mark.parametrize(("status", "code"), [("registered", 0), ("no new data", 0), ("rejected", 1), ("failed", 1),
                                              ("error", 1)])
def test_the_exit_code_is_1_as_soon_as_one_workload_is_not_let_through(status: str, code: int) -> None:
    assert run_exit_code({"entries": [entry("a"), entry("b", status)]}) == code


def test_without_a_terminal_each_finished_step_is_one_line() -> None:
    text = io.StringIO()
    with RunDisplay(Console(file=text, width=80), ("redis",)) as display:
        for event in (
            {"event": "start", "step": "finetune", "workload": "redis"},
            {"event": "progress", "step": "finetune", "workload": "redis", "epoch": 1, "epochs": 2, "loss": 0.5},
            {"event": "end", "step": "finetune", "workload": "redis", "seconds": 1.25},
            {"event": "start", "step": "gate", "workload": ""},
            {"event": "failed", "step": "gate", "workload": "", "message": "no"},
            {"event": "result", "summary": {}},
        ):
            display.show(event)
    assert text.getvalue() == "finetune redis: 1.2 s\ngate: FAILED\n"


def test_on_a_terminal_every_kind_of_progress_is_a_bar_of_80_columns() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, force_interactive=True)
    with RunDisplay(console, ("training",)) as display:
        display.show({"event": "start", "step": "finetune", "workload": "training"})
        for progress, note in (({"epoch": 120, "epochs": 150, "loss": 0.01234}, "epoch 120, loss 0.01234"),
                               ({"status": "PROVED", "counterexamples": 4, "epoch": 3}, "PROVED, 4 counterexamples"),
                               ({"proved_share": 0.25, "open_boxes": 12345, "worst_bound": -1e-3},
                                "12345 boxes open, bound -1.00e-03")):
            display.show({"event": "progress", "step": "finetune", "workload": "training", **progress})
            display.show({"event": "progress", "step": "from the cache", "workload": "", **progress})
            wait_until(lambda note=note: note in text.getvalue(), 20, note)  # drawn ten times a second
    assert "0:00:0" in text.getvalue() and "…" not in text.getvalue()


def test_steps_that_the_cache_answers_count_as_done() -> None:
    """A resumed run begins with the first step that is not cached; at its end the bar is full."""
    text = io.StringIO()
    with RunDisplay(Console(file=text, width=80, force_terminal=True), ("redis", "nginx")) as display:
        for name, workload in (("verify", "redis"), ("export", "redis"), ("report", "")):
            display.show({"event": "start", "step": name, "workload": workload})
            display.show({"event": "end", "step": name, "workload": workload, "seconds": 1.0})
            (total,) = [task for task in display._progress.tasks if task.description == "pipeline"]
            expected = {"verify": 5 + 2, "export": 5 + 3, "report": 8 + 3 * 2}[name]
            assert (total.completed, total.total) == (expected, 14)


def test_quiet_prints_nothing() -> None:
    text = io.StringIO()
    with RunDisplay(Console(file=text, force_terminal=True), ("redis",), quiet=True) as display:
        display.show({"event": "start", "step": "gate"})
        display.show({"event": "end", "step": "gate", "seconds": 1.0})
    assert text.getvalue() == ""
