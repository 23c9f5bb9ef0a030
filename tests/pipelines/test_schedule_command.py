"""`assay schedule --local` as typed by a user: an entry in the real crontab, which is put back as it was."""

import json
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.command_line import app
from tests.e2e import tiny
from tests.pipelines.schedules.test_local import OWN, needs_crontab, own_crontab, read_crontab

__all__ = ["own_crontab"]  # a fixture


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ASSAY_CONFIG", str(tiny.write_yaml(tiny.configuration(), tmp_path / "mlflow.yaml")))
    tiny.write_yaml(tiny.task(), tmp_path / "tiny.yaml")
    tiny.telemetry(rows=5).to_parquet(tmp_path / "samples.parquet", index=False)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def create(*more: str) -> Result:
    return call("schedule", "create", "--cron", "0 2 * * *", "--local", "--task", "tiny.yaml", "--telemetry",
                "samples.parquet", "--name", "nightly", *more)


def entry() -> list[str]:
    """The words of our crontab line."""
    content = read_crontab()
    assert content is not None and content.startswith(OWN)
    line, end = content.removeprefix(OWN).decode().split("\n")
    assert end == "" and line.startswith("0 2 * * * ")
    return shlex.split(line.replace("\\%", "%"), comments=True)


@needs_crontab
@pytest.mark.usefixtures("own_crontab")
class TestLocalSchedule:
    def test_the_entry_runs_what_was_asked_for_from_any_folder(self, project: Path) -> None:
        done = create("--seed", "3", "--json")
        assert done.exit_code == 0, done.output
        (made,) = json.loads(done.stdout)
        assert made["target"] == "crontab" and len(made["next_runs"]) == 3
        words = entry()
        assert words[words.index("--task") + 1] == str(project / "tiny.yaml")
        assert words[words.index("--telemetry") + 1] == str(project / "samples.parquet")
        assert words[words.index("--seed") + 1] == "3" and "--scheduled" in words
        assert f"ASSAY_HOME={project / 'home'}" in words
        # without it the shipped mlflow.yaml would decide, with its approval: auto
        assert words[words.index("--config") + 1] == str(project / "mlflow.yaml")

    def test_what_a_run_is_told_can_be_told_to_a_schedule(self) -> None:
        told = ("--workload", "redis", "--method", "plain", "--shards", "1", "--parallelism", "2")
        done = create(*told)
        assert done.exit_code == 0, done.output
        words = entry()
        assert set(zip(told[::2], told[1::2], strict=True)) <= set(pairwise(words))
        assert words[words.index("run") - 1].endswith("/assay") and "--scheduled" in words

    def test_a_monitor_is_scheduled_listed_and_deleted_like_training(self, project: Path) -> None:
        create()
        done = call("schedule", "create", "monitor", "--cron", "*/5 * * * *", "--local", "--task", "tiny.yaml",
                    "--telemetry", "samples.parquet", "--workload", "redis", "--act", "--json")
        assert done.exit_code == 0, done.output
        assert [one["name"] for one in json.loads(done.stdout)] == ["monitor-tiny"]
        line = (read_crontab() or b"").decode().splitlines()[-1]
        words = shlex.split(line.replace("\\%", "%"), comments=True)
        assert line.startswith("*/5 * * * * cd ") and line.endswith(" # assay schedule monitor-tiny")
        assert words[words.index("monitor"):words.index(">>") + 2] == [
            "monitor", "--task", str(project / "tiny.yaml"), "--telemetry", str(project / "samples.parquet"), "--seed",
            "0", "--config", str(project / "mlflow.yaml"), "--workload", "redis", "--act", ">>",
            str(project / "home/logs/schedule-monitor-tiny.log")]
        listed = json.loads(call("schedule", "list", "--local", "--json").stdout)
        assert [(one["name"], one["cron"]) for one in listed] == [("nightly", "0 2 * * *"), (
            "monitor-tiny", "*/5 * * * *")]
        assert call("schedule", "delete", "monitor-tiny", "--local").exit_code == 0
        entry()  # the other one is still there, and nothing else

    def test_what_the_crontab_says_is_a_monitor_that_looks(self, project: Path) -> None:
        """Its line, as cron starts it: without our environment, in another folder."""
        call("schedule", "create", "monitor", "--cron", "*/5 * * * *", "--local", "--task", "tiny.yaml", "--telemetry",
             "samples.parquet")
        line = (read_crontab() or b"").decode().splitlines()[-1].removeprefix("*/5 * * * * ").replace("\\%", "%")
        assert subprocess.run(["/bin/sh", "-c", line], env={}, cwd="/", check=False).returncode == 1
        log = (project / "home/logs/schedule-monitor-tiny.log").read_text()
        assert log.startswith("no workload of this task is in the ledger yet: run the train pipeline\npage: ")
        assert (project / "home/monitor/tiny.html").is_file()

    def test_it_is_listed_replaced_and_deleted(self) -> None:
        create()
        done = create()
        assert "replaced the schedule of that name" in " ".join(done.stdout.split())
        assert "nightly" in call("schedule", "list", "--local").stdout
        gone = call("schedule", "delete", "nightly", "--local")
        assert gone.exit_code == 0 and "deleted nightly" in gone.stdout
        assert read_crontab() == OWN
        assert json.loads(call("schedule", "list", "--local", "--json").stdout) == []

    def test_deleting_what_is_not_there_changes_nothing(self) -> None:
        create()
        before = read_crontab()
        done = call("schedule", "delete", "nihtly", "--local")
        assert done.exit_code == 2 and "did you mean 'nightly'?" in done.stderr
        assert read_crontab() == before

    def test_bad_input_writes_no_entry(self) -> None:
        assert create("--workload", "x").exit_code == 2
        assert call("schedule", "create", "--cron", "x", "--local").exit_code == 2
        assert "expected `assay schedule create monitor`" in create("--act").stderr
        unmonitored = call("schedule", "create", "monitor", "--cron", "0 2 * * *", "--local", "--task",
                           str(tiny.ROOT / "tests/kinds/table_controller.yaml"))
        assert unmonitored.exit_code == 2 and "must be of a kind that is monitored" in unmonitored.stderr
        trained = call("schedule", "create", "monitor", "--cron", "0 2 * * *", "--local", "--budget", "2")
        assert trained.exit_code == 2 and "no option of training alone, got 2.0 (--budget)" in trained.stderr
        cluster = call("schedule", "create", "monitor", "--cron", "0 2 * * *", "--endpoint", "http://127.0.0.1:1")
        assert cluster.exit_code == 2 and "the CronJob assay-monitor" in cluster.stderr
        assert read_crontab() == OWN
