"""The parent of a local run: it follows events, turns a failed step into an error, and takes its children with it.

The runner is a small script in these tests; tests/e2e starts the real one.
"""

import fcntl
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import AssayError, InputError
from feature_store.file_lock import file_lock
from models.tasks.task import parse_task
from pipelines import local_run, process_group, run_folders
from pipelines.local_run import AT_WORK_NAME, KEPT_RUNS, RunFailedError, RunOutcome, run_local
from pipelines.request import TrainRequest
from tests.e2e import tiny
from tests.e2e.processes import processes_of, wait_until

SUMMARY = {"report": "/r", "entries": []}


def request(name: str = "mine") -> TrainRequest:
    return TrainRequest(parse_task(tiny.task(), "tiny"), "name: tiny", ("redis", "nginx"), (("redis",), ("nginx",)),
                        (("redis", "nginx"),), 1, "/t.parquet", "", "d", "c", 0, name)


class Runner:
    """Stands in for the Python that runs pipelines.local_process: a shell script of the test's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = folder / "home"
        self._program = folder / "python"
        monkeypatch.setattr(local_run.sys, "executable", str(self._program))
        self.seen: list[dict[str, Any]] = []

    def does(self, script: str, *events: dict[str, Any]) -> None:
        """The runner writes the events and then does `script`."""
        lines = "".join(f"echo '{json.dumps(event)}' >> \"$ASSAY_PROGRESS\"\n" for event in events)
        self._program.write_text(f"#!/bin/sh\n{lines}{script}\n")
        self._program.chmod(self._program.stat().st_mode | stat.S_IXUSR)

    def run(self, name: str = "mine", resume: bool = True) -> RunOutcome:
        return run_local(request(name), self.home, self.seen.append, resume)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    return Runner(tmp_path, monkeypatch)


def start(step: str, workload: str = "") -> dict[str, Any]:
    return {"event": "start", "step": step, "shard": workload}


def failed(step: str, workload: str = "", **more: Any) -> dict[str, Any]:
    return {"event": "failed", "step": step, "shard": workload, "message": "no such thing", **more}


def test_events_come_in_order_and_the_last_summary_is_the_outcome(runner: Runner) -> None:
    runner.does("exit 0", start("ingest"), start("report"), {"event": "result", "summary": SUMMARY})
    outcome = runner.run()
    assert [event["event"] for event in runner.seen] == ["start", "start", "result"]
    assert outcome.summary == SUMMARY and outcome.folder == runner.home / "runs" / "mine"


@pytest.mark.parametrize(("event", "code", "where"), [
    (failed("ingest", "redis and 1 more"), 2, "step ingest; log: "),
    (failed("register", exit_code=1), 1, "step register; log: "),
    (failed("verify", "redis", exit_code=2), 2, "step verify, shard of redis; log: ")])
def test_a_failed_step_is_the_error_of_the_run(runner: Runner, event: dict[str, Any], code: int, where: str) -> None:
    runner.does("exit 1", start("ingest"), event, failed("report"))
    with pytest.raises(RunFailedError, match="no such thing") as caught:
        runner.run()
    assert where in str(caught.value) and caught.value.exit_code == code
    assert isinstance(caught.value, AssayError)


@pytest.mark.parametrize("script", ["exit 3", "exit 0", "kill -9 $$"])
def test_a_run_that_ends_without_a_result_says_how_to_go_on(runner: Runner, script: str) -> None:
    runner.does(script, start("ingest"))
    with pytest.raises(RunFailedError, match="run the same command again to resume") as caught:
        runner.run()
    assert caught.value.exit_code == 2


def test_what_the_runner_prints_goes_to_the_log(runner: Runner) -> None:
    runner.does("echo out; echo err >&2; exit 0", {"event": "result", "summary": SUMMARY})
    assert (runner.run().folder / "kfp.log").read_text() == "out\nerr\n"


def test_the_runner_is_told_where_everything_is(runner: Runner) -> None:
    runner.does('echo "$ASSAY_PROGRESS $TMPDIR $2"; ls -d "$TMPDIR"', {"event": "result", "summary": SUMMARY})
    folder = runner.run().folder
    words = (folder / "kfp.log").read_text().split()
    assert words == [str(folder / name) for name in ("events.jsonl", "tmp")] + ["pipelines.local_process"] + [
        str(folder / "tmp")]
    assert not (folder / "tmp").exists()
    assert {path.stat().st_mode & 0o777 for path in (folder / "request.json", folder / "kfp.log")} == {0o600}
    specification = json.loads((folder / "request.json").read_text())
    assert specification["arguments"]["workloads"] == ["redis", "nginx"]
    assert specification["cache_root"] == str(runner.home / "cache")


def test_fresh_uses_no_cache(runner: Runner) -> None:
    runner.does("exit 0", {"event": "result", "summary": SUMMARY})
    folder = runner.run(resume=False).folder
    assert json.loads((folder / "request.json").read_text())["cache_root"] is None


def test_an_interrupt_ends_the_runner_and_its_steps(runner: Runner) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    runner.does("sleep 600 & sleep 600", start("ingest"))
    with pytest.raises(KeyboardInterrupt):
        run_local(request(), runner.home, interrupt)
    wait_until(lambda: not processes_of(runner.home), 20, "no process is left")


def test_a_runner_that_ignores_sigterm_is_killed(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process_group, "PATIENCE_S", 0.5)
    runner.does("trap '' TERM; while :; do sleep 1; done", start("ingest"))
    with pytest.raises(KeyboardInterrupt):
        run_local(request(), runner.home, interrupt)
    wait_until(lambda: not processes_of(runner.home), 5, "no process is left")


def old_runs(home: Path, count: int) -> list[Path]:
    """Folders of runs, the oldest first, beside somebody's that is older still."""
    folders = [home / "runs" / "notes", *(home / "runs" / f"old-{number}" for number in range(count))]
    for age, folder in enumerate(folders):
        folder.mkdir(parents=True)
        if folder.name != "notes":
            (folder / "request.json").write_text('{"pipeline_root": ""}')
        os.utime(folder, (age, age))
    return folders[1:]


def test_only_the_newest_runs_are_kept(runner: Runner) -> None:
    old = old_runs(runner.home, KEPT_RUNS + 2)
    runner.does("exit 0", {"event": "result", "summary": SUMMARY})
    runner.run()
    names = {path.name for path in (runner.home / "runs").iterdir()}
    assert names == {"mine", "notes", *(path.name for path in old[3:])} and len(names) == KEPT_RUNS + 1
    assert not (runner.home / "trash").exists()


def test_nothing_is_dropped_beside_a_run_which_may_read_what_an_earlier_one_wrote(runner: Runner) -> None:
    old = old_runs(runner.home, KEPT_RUNS + 2)
    runner.does("exit 0", {"event": "result", "summary": SUMMARY})
    with file_lock(old[-1] / AT_WORK_NAME):
        runner.run("beside")
    assert all(path.is_dir() for path in old)
    runner.run("alone")
    assert [path.is_dir() for path in old] == [False] * 4 + [True] * (KEPT_RUNS - 2)


@pytest.mark.parametrize("at_work", [False, True])
def test_a_lock_that_another_account_left_counts_as_any_other(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, at_work: bool,
) -> None:
    """Of a run by sudo, say: it can be read, and not written."""
    old = old_runs(runner.home, KEPT_RUNS + 2)
    theirs = old[-1] / AT_WORK_NAME
    theirs.touch()

    def lock(path: Path) -> Any:
        if path == theirs:
            raise PermissionError(13, "Permission denied", str(path))
        return file_lock(path)

    monkeypatch.setattr(run_folders, "file_lock", lock)
    runner.does("exit 0", {"event": "result", "summary": SUMMARY})
    with theirs.open("rb") as held:
        if at_work:
            fcntl.flock(held, fcntl.LOCK_EX)
        runner.run()
    assert [path.is_dir() for path in old] == ([True] * len(old) if at_work else [False] * 3 + [True] * (len(old) - 3))


def test_an_interrupt_while_old_runs_are_deleted_leaves_none_by_halves(
    runner: Runner, monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = old_runs(runner.home, KEPT_RUNS + 2)

    def interrupt(path: Path, **_: Any) -> None:
        (path / "request.json").unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(local_run.shutil, "rmtree", interrupt)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert not old[0].exists() and all((path / "request.json").is_file() for path in old[1:])
    assert len(list((runner.home / "trash").iterdir())) == 1


def test_old_runs_stay_where_the_trash_is_a_link(runner: Runner, tmp_path: Path) -> None:
    old = old_runs(runner.home, KEPT_RUNS + 2)
    (runner.home / "trash").symlink_to(tmp_path)
    runner.does("exit 0", {"event": "result", "summary": SUMMARY})
    runner.run()
    assert all(path.is_dir() for path in old)


def test_a_folder_that_cannot_be_written_is_an_error_of_ours(runner: Runner) -> None:
    runner.home.write_text("a file")
    with pytest.raises(RunFailedError, match="run: expected a folder that can be written"):
        runner.run()
    assert sys.executable == local_run.sys.executable


def test_of_two_first_runs_of_one_name_the_second_is_told_so(runner: Runner) -> None:
    """Both looked before either had a folder; the first one's goes on as it was."""
    runner.does("exit 0", {"event": "result", "summary": SUMMARY})
    folder = runner.run().folder
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(InputError) as caught:
        runner.run()
    assert str(caught.value) == (f"run name must be new, got 'mine', which another run has just taken "
                                 f"({folder}); leave it out or choose another")
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
