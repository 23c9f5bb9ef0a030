"""The benchmark of few-shot learners, on a small made-up file: one seed, two methods."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.__main__ import main as run_benchmark
from benchmarks.adaptation import accuracy as adaptation
from benchmarks.adaptation.methods import METHODS
from benchmarks.harness import entries
from benchmarks.harness.code_digest import ROOT, _reached
from benchmarks.harness.jobs import in_processes
from models.adaptation.learner import NONE, supports
from models.adaptation.pool.validation import absolute_percentage_errors

MAPPING = """
workload: {column: workload}
configuration:
  provider: {column: provider, kind: category}
  nodes: {column: nodes}
target: {name: runtime_s, column: runtime}
groups:
  algorithm: {column: algorithm}
"""
METHOD_NAMES = ("additive", "support_mean")


def write_runs(folder: Path, seed: int = 0, name: str = "runs") -> Path:
    """10 workloads of 5 algorithms under 12 configurations."""
    rng = np.random.default_rng(seed)
    rows = [{"workload": f"w{w}", "algorithm": f"a{w % 5}", "provider": provider, "nodes": 2**size,
             "runtime": float(np.exp(3 + 0.2 * w - 0.3 * size + 0.1 * rng.normal()))}
            for w in range(10) for provider in "ABC" for size in range(4)]
    folder.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
    (folder / "mapping.yaml").write_text(MAPPING)
    return folder / f"{name}.csv"


@pytest.fixture(autouse=True)
def one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all of the code takes longer than the rest."""
    monkeypatch.setattr(adaptation, "code_digest", lambda *_: "code")


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a process takes longer than what it measures: two tests do."""
    def one_after_the_other(measure: Callable[..., Any], jobs: Sequence[Any], count: int,
                            keep: Callable[[Any, Any], str]) -> None:
        for job in jobs:
            print(keep(job, measure(*job)), file=sys.stderr)

    monkeypatch.setattr(adaptation, "in_processes", one_after_the_other)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_runs(tmp_path)


def run(file: Path, *more: str, splits: tuple[str, ...] = ("workload",), methods: tuple[str, ...] = METHOD_NAMES,
        seeds: tuple[int, ...] = (0,), mapping: str = "mapping.yaml") -> int:
    return run_benchmark([
        "adaptation-accuracy", "--file", str(file), "--mapping", str(file.parent / mapping),
        "--output", str(file.parent / "out.json"), "--jobs", "1",
        "--splits", *splits, "--methods", *methods, "--seeds", *map(str, seeds), *more])


def content(file: Path) -> dict[str, Any]:
    return json.loads((file.parent / "out.json").read_text())


def keys(file: Path) -> set[tuple[Any, ...]]:
    return {(entry["split"], entry["seed"], entry["method"], entry["bases"]) for entry in content(file)["entries"]}


def test_every_split_method_and_choice_of_runs_has_an_entry(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "in_processes", in_processes)
    splits = ("workload", "algorithm", "provider", "configuration")
    assert run(file, splits=splits) == 0
    assert keys(file) == {(kind, 0, method, bases) for kind in splits for method in METHOD_NAMES
                          for bases in ("random", "chosen")}
    for entry in content(file)["entries"]:
        assert entry["data"] == "runs" and len(entry["mape"]) == 3
        assert all(0 < error < 2 for error in entry["mape"])
        assert entry["pool_workloads"] in (4, 5) and entry["new_workloads"] in (5, 6)
    assert content(file)["data"]["runs"] == {"workloads": 10, "configurations": 12, "runs": 120, "failed_runs": 0,
                                             "noise": None, "flags": []}


def test_workloads_that_differ_in_level_are_predicted_by_level_and_effects(file: Path) -> None:
    run(file)
    errors = {(entry["method"], entry["bases"]): entry["mape"] for entry in content(file)["entries"]}
    for bases in ("random", "chosen"):
        assert max(errors["additive", bases]) < 0.2 < min(errors["support_mean", bases])  # noise of 10 %


def test_default_learner_also_chooses_one_after_the_other_and_is_told_everything(file: Path) -> None:
    assert run(file, methods=(adaptation.DEFAULT,)) == 0
    found = {entry["bases"]: entry for entry in content(file)["entries"]}
    assert set(found) == {"random", "chosen", "planned", "sequential", "all"}
    assert {bases: len(entry["mape"]) for bases, entry in found.items()} == {
        "random": 3, "chosen": 3, "planned": 3, "sequential": 3, "all": 1}


def test_all_other_configurations_are_measured_in_the_workload_split_alone(file: Path) -> None:
    assert run(file, methods=(adaptation.DEFAULT,), splits=("configuration",)) == 0
    assert {bases for *_, bases in keys(file)} == {"random", "chosen", "planned", "sequential"}


def test_same_seed_gives_the_same_errors(file: Path, tmp_path: Path) -> None:
    other = write_runs(tmp_path / "other")
    for one in (file, other):
        run(one)
    first, second = ([entry["mape"] for entry in content(one)["entries"]] for one in (file, other))
    assert first == second


def test_entries_that_are_there_are_not_made_again(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(file, methods=("additive",))
    first = content(file)["entries"]
    capsys.readouterr()
    assert run(file) == 0
    assert "2 entries are there already, 2 to be made" in capsys.readouterr().err
    assert [entry for entry in content(file)["entries"] if entry["method"] == "additive"] == first
    whole = content(file)
    assert run(file) == 0
    assert "4 entries are there already, 0 to be made" in capsys.readouterr().err
    assert content(file) == whole


def test_entry_does_not_depend_on_what_was_there_already(file: Path, tmp_path: Path) -> None:
    """Random supports are drawn alike whether or not others are drawn in the same go."""
    run(file, methods=("additive",))
    run(file)
    other = write_runs(tmp_path / "other")
    run(other)
    first, second = ({(entry["method"], entry["bases"]): entry["mape"] for entry in content(one)["entries"]}
                     for one in (file, other))
    assert first == second


def test_code_of_an_entry_is_that_of_the_learners_and_of_what_reads_the_data() -> None:
    assert {"benchmarks.adaptation.splits", "models.adaptation.closed_form.neighbours", "models.adaptation.design",
            "feature_store.measurements"} <= set(_reached("benchmarks.adaptation.accuracy", "", ROOT))


def test_entries_of_other_code_are_made_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "code_digest", lambda *_: "old")
    run(file, seeds=(0, 1))
    monkeypatch.setattr(adaptation, "code_digest", lambda *_: "new")
    run(file, seeds=(1,))
    assert {(entry["seed"], entry["code"]) for entry in content(file)["entries"]} == {(1, "new")}


@pytest.mark.parametrize("change", ["file", "mapping", "provider"])
def test_entries_of_other_input_are_made_again(file: Path, change: str) -> None:
    run(file)
    before = content(file)["entries"]
    if change == "file":
        write_runs(file.parent, seed=1)
    if change == "mapping":
        (file.parent / "mapping.yaml").write_text(MAPPING.replace("kind: category", "kind: category, default: none"))
    assert run(file, *(("--provider", "nodes") if change == "provider" else ())) == 0
    after = content(file)["entries"]
    assert len(after) == len(before) == 4
    assert not {entry["input"] for entry in before} & {entry["input"] for entry in after}


def test_entries_of_other_data_stay(file: Path) -> None:
    run(file)
    other = write_runs(file.parent, seed=1, name="others")
    run(other)
    assert {entry["data"] for entry in content(file)["entries"]} == set(content(file)["data"]) == {"runs", "others"}
    assert len(content(file)["entries"]) == 8


def test_stopped_benchmark_keeps_what_it_had_and_goes_on(file: Path, monkeypatch: pytest.MonkeyPatch,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(adaptation, "in_processes", in_processes)
    calls, write = [], entries.write_results

    def once(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) > 1:
            raise KeyboardInterrupt
        write(*arguments)

    monkeypatch.setattr(entries, "write_results", once)
    assert run(file, seeds=(0, 1, 2)) == 130
    assert "the result file holds what was finished" in capsys.readouterr().err
    assert len({seed for _, seed, *_ in keys(file)}) == 1
    monkeypatch.setattr(entries, "write_results", write)
    assert run(file, seeds=(0, 1, 2)) == 0
    assert "4 entries are there already, 8 to be made" in capsys.readouterr().err
    assert len(keys(file)) == 12


def test_split_that_a_seed_leaves_empty_says_why(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = pd.read_csv(file)
    runs[runs["provider"] == "A"].to_csv(file, index=False)
    assert run(file, splits=("provider",)) == 0
    assert {entry["error"] for entry in content(file)["entries"]} == {
        "split 'provider' must leave workloads on both sides, got 0 and 5"}
    assert "not measured: split 'provider' must leave workloads on both sides" in capsys.readouterr().err


def test_learner_that_does_not_take_the_pool_says_why_and_others_are_measured(file: Path) -> None:
    """Workloads of the pool have one run each."""
    runs = pd.read_csv(file)
    parts = adaptation.split(adaptation.loaded(file, file.parent / "mapping.yaml"), "workload", 0, "provider")
    new = [f"w{row}" for row in parts.new]
    kept = pd.concat([runs[runs["workload"].isin(new)], runs[~runs["workload"].isin(new)].groupby("workload").head(1)])
    kept.to_csv(file, index=False)
    assert run(file, methods=("support_mean", "boosted_ratios")) == 0
    found = {entry["method"]: entry for entry in content(file)["entries"]}
    assert "pool must have a workload that was measured under two" in found["boosted_ratios"]["error"]
    assert "error" not in found["support_mean"]


@pytest.mark.parametrize(("options", "message"), [
    (["--file", "absent.csv", "--mapping", "mapping.yaml"], "expected one that exists, got .*absent.csv"),
    (["--file", "runs.csv", "--mapping", "absent.yaml"], "mapping file .*absent.yaml"),
    (["--file", "runs.csv"], "--file and --mapping must be given together"),
    (["--mapping", "mapping.yaml"], "--file and --mapping must be given together"),
    (["--data", "scout", "--data-folder", "absent"], "file of measurements: expected one that exists, got absent"),
    (["--file", "runs.csv", "--mapping", "mapping.yaml", "--provider", "cloud"],
     "configuration must have the column 'cloud' for the split 'provider', got provider, nodes; leave this split out"),
    (["--file", "runs.csv", "--mapping", "ungrouped.yaml"],
     "mapping must have the group 'algorithm' for the split 'algorithm', got no group; leave this split out"),
    (["--file", "runs.csv", "--mapping", "mapping.yaml", "--jobs", "0"], "--jobs must be at least 1, got 0"),
    (["--file", "runs.csv", "--mapping", "mapping.yaml", "--seeds", "-1"], "--seeds must be at least 0, got -1"),
    (["--file", "runs.csv", "--mapping", "mapping.yaml", "--output", "runs.csv"], "--output: expected JSON"),
    (["--file", "runs.csv", "--mapping", "mapping.yaml", "--output", "other.json"],
     "--output: expected a file of format assay-adaptation/1, got assay-other/1 .*other.json"),
])
def test_bad_input_ends_with_exit_code_2_and_says_what_is_wrong(
        file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str],
        message: str) -> None:
    (file.parent / "ungrouped.yaml").write_text(MAPPING.split("groups:")[0])
    (file.parent / "other.json").write_text('{"format": "assay-other/1"}')
    monkeypatch.chdir(file.parent)
    before = sorted(file.parent.iterdir())
    assert run_benchmark(["adaptation-accuracy", "--output", "out.json", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "Traceback" not in error
    assert re.search(message, error)
    assert sorted(file.parent.iterdir()) == before


@pytest.mark.parametrize("options", [["--splits", "row"], ["--methods", "magic"], ["--data", "iris"]])
def test_names_that_are_not_known_are_turned_down(options: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_benchmark(["adaptation-accuracy", *options])
    assert stopped.value.code == 2


@pytest.mark.parametrize("bases", ["random", "chosen", "planned", "sequential", "all"])
@pytest.mark.parametrize("kind", ["workload", "configuration"])
def test_runs_are_measured_ones_that_the_split_allows_and_leave_some_to_predict(file: Path, kind: str,
                                                                                bases: str) -> None:
    if bases == "all" and kind != "workload":
        pytest.skip("made for the workload split alone")
    runs = pd.read_csv(file).sample(frac=0.8, random_state=0)
    runs.to_csv(file, index=False)
    data = adaptation.loaded(file, file.parent / "mapping.yaml")
    parts = adaptation.split(data, kind, 0, "provider")
    design = adaptation.Design(parts.pool, METHODS["additive"].make())
    workloads, ats = adaptation._bases(bases, data, parts, design, 0)
    assert set(workloads) == set(parts.new)
    assert len(ats) == 1 if bases == "all" else [at.shape[1] for at in ats] == [1, 2, 3]
    y, at = data.table.pool.y, ats[-1]
    for workload, row in [pair for at in ats for pair in zip(workloads, at, strict=True)]:
        runs_at = row[row != NONE]
        assert len(set(runs_at)) == len(runs_at)
        assert parts.support[runs_at].all() and not np.isnan(y[workload, runs_at]).any()
        left = ~np.isnan(y[workload]) & parts.target
        left[runs_at] = False
        assert left.any()
    if bases == "all":  # every configuration is left out once
        for workload in parts.new:
            left = [c for row in at[workloads == workload] for c in np.setdiff1d(np.flatnonzero(~np.isnan(y[workload])),
                                                                                row)]
            assert sorted(left) == np.flatnonzero(~np.isnan(y[workload])).tolist()


def test_errors_are_averaged_by_workload_over_draws_and_target_cells_that_were_not_measured(file: Path) -> None:
    data = adaptation.loaded(file, file.parent / "mapping.yaml")
    parts = adaptation.split(data, "configuration", 0, "provider")
    method = METHODS["support_mean"]
    fitted = method.make().fit(parts.pool)
    workloads, ats = adaptation._bases("random", data, parts, None, 0)
    at = ats[-1]
    found = adaptation._errors(fitted, method, data, parts, workloads, ats)
    assert len(found) == 3
    for shots in (1, 2, 3):
        expected = []
        for workload in parts.new:
            errors = []
            for row in at[workloads == workload]:
                support = supports(data.table.pool, np.array([workload]), row[None, :shots])
                cells = absolute_percentage_errors(data.table.pool, np.array([workload]), support.at,
                                                   fitted.predict(support))[0]
                errors.append(np.mean([cells[c] for c in range(12) if parts.target[c] and not np.isnan(cells[c])]))
            expected.append(np.mean(errors))
        np.testing.assert_allclose(found[shots - 1], expected)
