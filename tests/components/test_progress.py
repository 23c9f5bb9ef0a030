"""The events that steps write: whole lines, also from several processes at once, and errors with their exit code."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.progress import PROGRESS_VARIABLE, emit, read_events, step
from feature_store.errors import InputError, RefusedError
from tests.e2e.tiny import ROOT


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(PROGRESS_VARIABLE, str(path))
    return path


def test_a_step_reports_start_progress_and_end(events: Path) -> None:
    with step("finetune", ["redis", "nginx"]) as progress:
        progress({"epoch": 1})
        progress.done("redis")
        progress.note("")
        progress.note("nothing to do")
    start, middle, done, note, end = read_events(events)[0]
    kinds = ["start", "progress", "workload", "note", "end"]
    assert [event["event"] for event in (start, middle, done, note, end)] == kinds
    assert {(event["step"], event["shard"]) for event in (start, middle, done, note, end)} == {
        ("finetune", "redis and 1 more")}
    assert done["workload"] == "redis" and note["message"] == "nothing to do" and end["workloads"] == 2
    assert middle["epoch"] == 1 and end["at"] >= start["at"] and end["peak_mb"] > 1


def test_a_step_s_start_is_the_time_that_its_process_has_been_there_before(events: Path) -> None:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", """
import time
time.sleep(0.2)
from components.progress import step
with step("ingest"):
    time.sleep(0.1)
"""], cwd=ROOT, check=True)
    lived, end = time.monotonic() - began, read_events(events)[0][-1]
    assert 0.2 <= end["startup_s"] <= lived - end["seconds"] + 0.02, "the kernel counts in hundredths of a second"


@pytest.mark.parametrize(
    ("error", "message", "exit_code"),
    [(InputError("no such column"), "no such column", 2), (RefusedError("not signed"), "not signed", 1),
     (ValueError("what"), "ValueError: what", 2), (KeyboardInterrupt(), "KeyboardInterrupt: ", 2)],
)
def test_a_step_that_fails_says_why_and_with_which_exit_code(
    events: Path, error: BaseException, message: str, exit_code: int
) -> None:
    with pytest.raises(type(error)), step("ingest"):
        raise error
    failed = read_events(events)[0][-1]
    assert (failed["event"], failed["message"], failed["exit_code"]) == ("failed", message, exit_code)


def test_reading_goes_on_where_it_stopped_and_leaves_half_a_line(events: Path) -> None:
    emit({"number": 1})
    first, offset = read_events(events)
    with events.open("a") as file:
        file.write('{"number": 2}\n{"numb')
    second, offset = read_events(events, offset)
    with events.open("a") as file:
        file.write('er": 3}\n')
    third, _ = read_events(events, offset)
    assert [event["number"] for event in (*first, *second, *third)] == [1, 2, 3]


def test_a_line_that_a_full_disk_tore_costs_no_other(events: Path) -> None:
    emit({"number": 1})
    with events.open("a") as file:
        file.write('{"numb')
    for number in (2, 3):
        emit({"number": number})
    assert [event["number"] for event in read_events(events)[0]] == [1, 3]


def test_no_file_yet_is_no_event(tmp_path: Path) -> None:
    assert read_events(tmp_path / "none") == ([], 0)


def test_without_a_file_events_go_to_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(PROGRESS_VARIABLE, raising=False)
    emit({"event": "start"})
    assert json.loads(capsys.readouterr().out)["event"] == "start"


def test_lines_of_parallel_steps_do_not_mix(events: Path) -> None:
    code = "import sys; from components.progress import emit\n" \
           "for k in range(200): emit({'who': sys.argv[1], 'text': 'x' * 500})"
    writers = [subprocess.Popen([sys.executable, "-c", code, name], cwd=ROOT) for name in ("a", "b")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found = read_events(events)[0]
    assert sorted(event["who"] for event in found) == ["a"] * 200 + ["b"] * 200
    assert {len(event["text"]) for event in found} == {500}
