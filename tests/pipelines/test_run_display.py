"""What a run shows while it goes: bars on a terminal, one line a step without one."""

import io

from rich.console import Console

from pipelines.run_display import RunDisplay
from tests.e2e.processes import wait_until


def test_without_a_terminal_each_finished_step_is_one_line() -> None:
    text = io.StringIO()
    with RunDisplay(Console(file=text, width=80), ("redis", "nginx")) as display:
        for event in (
            {"event": "start", "step": "ingest", "shard": "redis and 1 more"},
            {"event": "end", "step": "ingest", "shard": "redis and 1 more", "seconds": 0.5},
            {"event": "start", "step": "finetune", "shard": "redis"},
            {"event": "progress", "step": "finetune", "shard": "redis", "epoch": 1, "epochs": 2, "loss": 0.5},
            {"event": "end", "step": "finetune", "shard": "redis", "seconds": 1.25},
            {"event": "start", "step": "gate", "shard": ""},
            {"event": "failed", "step": "gate", "shard": "", "message": "no"},
            {"event": "result", "summary": {}},
        ):
            display.show(event)
    assert text.getvalue() == "ingest: 0.5 s\nfinetune redis: 1.2 s\ngate: FAILED\n", "all is no shard"


def test_on_a_terminal_every_kind_of_progress_is_a_bar_of_80_columns() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, force_interactive=True)
    with RunDisplay(console, ("training",)) as display:
        display.show({"event": "start", "step": "finetune", "shard": "training"})
        for progress, note in (({"epoch": 120, "epochs": 150, "loss": 0.01234}, "epoch 120, loss 0.01234"),
                               ({"status": "PROVED", "counterexamples": 4, "epoch": 3}, "PROVED, 4 counterexamples"),
                               ({"done": 0.5, "said": "round 3 of 6"}, "round 3 of 6"),
                               ({"proved_share": 0.25, "open_boxes": 12345, "worst_bound": -1e-3},
                                "12345 boxes open, bound -1.00e-03")):
            display.show({"event": "progress", "step": "finetune", "shard": "training", **progress})
            display.show({"event": "progress", "step": "from the cache", "shard": "", **progress})
            wait_until(lambda note=note: note in text.getvalue(), 20, note)  # drawn ten times a second
    assert "0:00:0" in text.getvalue() and "…" not in text.getvalue()


def test_steps_that_the_cache_answers_count_as_done() -> None:
    """A resumed run begins with the first step that is not cached; at its end the bar is full."""
    text = io.StringIO()
    with RunDisplay(Console(file=text, width=80, force_terminal=True), ("redis", "nginx")) as display:
        for name, workload in (("verify", "redis"), ("export", "redis"), ("pages", "redis"), ("report", "")):
            display.show({"event": "start", "step": name, "shard": workload})
            if workload:
                display.show({"event": "workload", "step": name, "shard": workload, "workload": workload})
            display.show({"event": "end", "step": name, "shard": workload, "seconds": 1.0})
            (total,) = [task for task in display._progress.tasks if task.description == "pipeline"]
            expected = {"verify": 5 + 2, "export": 5 + 3, "pages": 7 + 3 * 2 + 1, "report": 8 + 4 * 2}[name]
            assert (total.completed, total.total) == (expected, 16)


def test_quiet_prints_nothing() -> None:
    text = io.StringIO()
    with RunDisplay(Console(file=text, force_terminal=True), ("redis",), quiet=True) as display:
        display.show({"event": "start", "step": "gate"})
        display.show({"event": "end", "step": "gate", "seconds": 1.0})
    assert text.getvalue() == ""


def test_a_log_of_a_thousand_workloads_is_short_and_names_what_failed() -> None:
    names = tuple(f"a-workload-with-a-rather-long-name-{number:04d}" for number in range(1000))
    text = io.StringIO()
    with RunDisplay(Console(file=text, width=80), names) as display:
        for shard in (names[:500], names[500:]):
            label = f"{shard[0]} and 499 more"
            for step in ("finetune", "verify", "export", "pages"):
                display.show({"event": "start", "step": step, "shard": label})
                for name in shard:
                    display.show({"event": "workload", "step": step, "shard": label, "workload": name})
                kind = "failed" if (step, shard[0]) == ("export", names[500]) else "end"
                display.show({"event": kind, "step": step, "shard": label, "seconds": 1.0, "message": "no"})
    lines = text.getvalue().splitlines()
    assert 20 <= len(lines) <= 30 and f"export {names[500]} and 499 more: FAILED" in lines
    assert any("steps done, the last: " in line for line in lines)


def test_a_stage_with_nothing_to_do_says_why() -> None:
    text = io.StringIO()
    with RunDisplay(Console(file=text, width=80), ("redis",)) as display:
        display.show({"event": "note", "step": "pretrain", "shard": "", "message": "there is nothing to pretrain"})
    assert text.getvalue() == "pretrain: there is nothing to pretrain\n"


def test_a_long_name_is_cut_in_the_middle_of_a_bar_and_breaks_no_line() -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, force_interactive=True)
    with RunDisplay(console, ("redis", "a-workload-with-a-rather-long-name-0007")) as display:
        display.show({"event": "start", "step": "finetune", "shard": "a-workload-with-a-rather-long-name-0007"})
        wait_until(lambda: "name-0007" in text.getvalue(), 20, "the end of the name")
        assert max(len(task.description) for task in display._progress.tasks) <= 24
