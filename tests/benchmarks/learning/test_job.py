"""The learning benchmark: tasks of its methods, entries made for real, and what a repeated command does not make."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main as run_benchmark
from benchmarks.learning import lipschitz_monotone, performance
from benchmarks.learning.data_sets import LINNOS_FILE, RECORDED, DataSet
from benchmarks.learning.job import BY_CONSTRUCTION, Job, Prepared, find_directions, prepare, run_job, run_pretraining
from benchmarks.learning.methods import METHODS, make_tasks
from benchmarks.pipeline.measurements.task_file import read_task
from components.progress import PROGRESS_VARIABLE
from tests.benchmarks.learning.linnos_trace import trace, write_trace
from tests.benchmarks.sample_results import performance_results
from tests.e2e import tiny


def test_methods_differ_only_where_they_say() -> None:
    tasks = make_tasks(read_task(), list(METHODS), {"epochs": 7, "iterations": None})
    assert {name: task.settings["method"] for name, task in tasks.items()} == {
        "monotone": "monotone", "counterexample_guided": "counterexample_guided", "certified": "certified",
        "certified_guided": "certified_guided", "plain": "plain", "monotone_not_pretrained": "monotone",
        "lipschitz_monotone": "plain"}
    assert tasks["monotone_not_pretrained"].pretrain_epochs == 0
    assert all(task.settings["epochs"] == 7 for task in tasks.values())
    different = {key for key, value in tasks["monotone"].settings.items() if tasks["plain"].settings[key] != value}
    assert different == {"method"}


def test_a_method_that_a_task_makes_equal_to_another_is_left_out() -> None:
    task = {**read_task(), "training": {"pretrain_epochs": 0}}
    assert set(METHODS) - set(make_tasks(task, list(METHODS), {})) == {"monotone_not_pretrained"}
    assert list(make_tasks(task, ["monotone_not_pretrained"], {})) == ["monotone_not_pretrained"]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """Features and backbones of a tiny problem, for all of our methods and the peer's."""
    monkeypatch.setenv(PROGRESS_VARIABLE, "")  # set by every job; put back at the end
    path = tmp_path / "telemetry.parquet"
    tiny.telemetry(["redis"]).to_parquet(path)
    data = DataSet(RECORDED, path, "", tiny.task(["redis"]))
    made = Prepared(tmp_path / "work", {RECORDED: data},
                    {RECORDED: make_tasks(data.task, list(METHODS), {"epochs": 6, "iterations": 1})})
    prepare(made, RECORDED, 0)
    return made


def test_entries_are_what_the_pipeline_s_steps_found(prepared: Prepared) -> None:
    found = {}
    for method in ("monotone", "certified", "plain", "monotone_not_pretrained"):
        run_pretraining(prepared, RECORDED, method, 0)
        found[method] = run_job(prepared, Job(RECORDED, method, 0, "redis"))
    assert all(entry["status"] == "done" for entry in found.values())
    assert found["monotone"]["verdict"] == found["monotone_not_pretrained"]["verdict"] == "PROVED"
    metrics = found["monotone"]["metrics"]
    parts = ("training", "pretraining", "verification", "proof", "checking")
    assert metrics["proved_seconds"] == pytest.approx(sum(metrics[f"{part}_seconds"] for part in parts))
    assert metrics["pretraining_seconds"] > 0 == found["monotone_not_pretrained"]["metrics"]["pretraining_seconds"]
    # all but the pretraining is a part of the job
    assert metrics["proved_seconds"] - metrics["pretraining_seconds"] < found["monotone"]["seconds"]
    assert metrics["test_mse"] < metrics["constant_mse"]
    # the unverified learner is the twin of the others, and nothing looks for its counterexamples in training
    plain = found["plain"]["metrics"]
    assert plain["twin_test_mse"] == metrics["twin_test_mse"]
    assert plain["test_mse"] == pytest.approx(plain["twin_test_mse"], rel=1e-4), "measured by onnxruntime and by torch"
    assert plain["own_counterexamples"] == 0.0 and "proved_seconds" not in plain
    assert len({entry["metrics"]["constant_mse"] for entry in found.values()}) == 1
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    directions = find_directions(prepared, RECORDED, 0, "redis")
    assert directions["rows"] == found["monotone"]["rows"]["train"]
    assert all(one["sign"] == 1 and one["others_equal"] > 0 for one in directions["features"].values())


@pytest.mark.skipif(lipschitz_monotone.missing() is not None, reason=str(lipschitz_monotone.missing()))
def test_a_peer_s_entry_is_of_the_same_split(prepared: Prepared) -> None:
    entry = run_job(prepared, Job(RECORDED, "lipschitz_monotone", 0, "redis"))
    assert entry["verdict"] == BY_CONSTRUCTION and entry["rows"]["train"] + entry["rows"]["test"] == tiny.ROWS
    assert entry["metrics"]["lipschitz_constant"] in lipschitz_monotone.CONSTANTS
    assert entry["metrics"]["baseline_mse"] < entry["metrics"]["constant_mse"]


def test_a_workload_that_the_gate_stops_is_a_failed_entry(prepared: Prepared) -> None:
    (prepared.work / RECORDED / "0" / "features" / "status.json").write_text('{"redis": "column is empty"}')
    entry = run_job(prepared, Job(RECORDED, "monotone", 0, "redis"))
    assert (entry["status"], entry["error"]) == ("failed", "featurize: column is empty")
    assert find_directions(prepared, RECORDED, 0, "redis") == {}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The jobs that each call of the command would have run; each is done at once."""
    made: list[list[Any]] = []

    def run(jobs: list[Any], prepared: Any, options: Any, results: dict[str, Any]) -> int:
        made.append(jobs)
        done = performance_results()["entries"][0]
        results["entries"] += [{**done, **vars(job)} for job in jobs]
        performance.write_results(options.output, results)
        return 0

    monkeypatch.setattr(performance, "_run", run)
    return made


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Recorded telemetry and a LinnOS file that are there, one method, an output; seeds and data sets come after it."""
    (tmp_path / "samples.parquet").write_bytes(b"stands for telemetry")
    path = tmp_path / LINNOS_FILE
    path.parent.mkdir()
    write_trace(path, trace(60))
    return ["--telemetry", str(tmp_path / "samples.parquet"), "--data-folder", str(tmp_path),
            "--output", str(tmp_path / "performance.json"), "--methods", "monotone"]


def _made(jobs: list[Any]) -> set[tuple[str, int]]:
    return {(job.data, job.seed) for job in jobs}


def test_finished_entries_are_not_made_again(runs: list[list[Any]], command: list[str], tmp_path: Path) -> None:
    command += ["--data", "recorded", "--seeds"]
    assert run_benchmark(["performance", *command, "0"]) == 0
    run_benchmark(["performance", *command, "0", "1"])
    assert [sorted({job.seed for job in jobs}) for jobs in runs] == [[0], [1]]
    run_benchmark(["performance", *command, "0", "--epochs", "3"])  # other settings: its entries are others
    assert sorted({job.seed for job in runs[-1]}) == [0]
    (tmp_path / "samples.parquet").write_bytes(b"other telemetry")
    run_benchmark(["performance", *command, "0", "--epochs", "3"])
    assert sorted({job.seed for job in runs[-1]}) == [0]
    entries = json.loads((tmp_path / "performance.json").read_text())["entries"]
    assert {entry["seed"] for entry in entries} == {0}


def test_a_data_set_s_entries_outlive_a_change_of_another(
    runs: list[list[Any]], command: list[str], tmp_path: Path,
) -> None:
    command += ["--seeds", "0"]
    assert run_benchmark(["performance", *command]) == 0
    assert _made(runs[-1]) == {("recorded", 0), ("linnos", 0)}
    (tmp_path / "samples.parquet").write_bytes(b"other telemetry")
    run_benchmark(["performance", *command, "--data", "recorded"])
    run_benchmark(["performance", *command])
    assert [_made(jobs) for jobs in runs[1:]] == [{("recorded", 0)}, set()]
    write_trace(tmp_path / LINNOS_FILE, trace(60, seed=1))
    run_benchmark(["performance", *command])
    assert _made(runs[-1]) == {("linnos", 0)}


def test_other_learning_code_drops_the_entries_of_every_data_set(
    runs: list[list[Any]], command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    command += ["--seeds", "0"]
    run_benchmark(["performance", *command])
    monkeypatch.setattr(performance, "learning_code_version", lambda: "other")
    run_benchmark(["performance", *command, "--data", "linnos"])
    results = json.loads((tmp_path / "performance.json").read_text())
    assert {entry["data"] for entry in results["entries"]} == set(results["data"]) == {"linnos"}


def test_a_file_of_another_format_is_begun_again(runs: list[list[Any]], command: list[str], tmp_path: Path) -> None:
    old = {"format": "assay-performance/1", "learning_code_version": performance.learning_code_version(),
           "entries": [{"method": "monotone", "seed": 0, "workload": "redis"}]}
    (tmp_path / "performance.json").write_text(json.dumps(old))
    assert run_benchmark(["performance", *command, "--data", "linnos", "--seeds", "0"]) == 0
    assert json.loads((tmp_path / "performance.json").read_text())["format"] == performance.FORMAT


def test_public_data_that_are_absent_are_left_out_with_a_line(
    runs: list[list[Any]], command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / LINNOS_FILE).unlink()
    assert run_benchmark(["performance", *command, "--seeds", "0"]) == 0
    assert "data set linnos is left out" in capsys.readouterr().err
    assert _made(runs[-1]) == {("recorded", 0)}
    assert run_benchmark(["performance", *command, "--seeds", "0", "--data", "linnos"]) == 2


def test_missing_telemetry_is_bad_usage(runs: list[list[Any]], command: list[str], tmp_path: Path) -> None:
    (tmp_path / "samples.parquet").unlink()
    assert run_benchmark(["performance", *command, "--seeds", "0"]) == 2
    assert runs == []


def test_a_damaged_public_file_is_bad_usage(
    runs: list[list[Any]], command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / LINNOS_FILE).write_bytes(b"not packed")
    assert run_benchmark(["performance", *command, "--seeds", "0"]) == 2
    assert "LinnOS data must be" in capsys.readouterr().err
    assert runs == []


def test_a_peer_that_is_not_installed_is_left_out_with_its_command(
    runs: list[list[Any]], command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(lipschitz_monotone, "installed_version", lambda: None)
    assert run_benchmark(["performance", *command, "lipschitz_monotone", "--seeds", "0"]) == 0
    assert lipschitz_monotone.INSTALL in capsys.readouterr().err
    assert {job.method for job in runs[-1]} == {"monotone"}
