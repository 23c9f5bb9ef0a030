"""The benchmark of stacked training, at a size that takes a second."""

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main as run_benchmark
from benchmarks.learning import stacked_training
from benchmarks.learning.stacked_training import conditions_line, make_problem, measure_cell, stacked_table


def test_a_cell_has_every_value_and_both_ways_end_alike() -> None:
    cell = measure_cell((8, 8), 3, 4, 2)
    for key in ("alone_seconds", "together_seconds", "alone_training_seconds", "together_training_seconds"):
        assert len(cell[key]) == 2 and min(cell[key]) > 0
    assert cell["same_verdicts"] and cell["weight_difference"] < 1e-4 and cell["test_error_difference"] < 0.02


def test_workloads_differ_in_rows_and_directions() -> None:
    problems = [make_problem(seed) for seed in range(8)]
    assert len({len(problem.x) for problem in problems}) > 4
    assert len({problem.directions for problem in problems}) == 2


def test_what_is_measured_is_kept_and_made_a_table_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stacked_training, "CELLS", (((8, 8), (1, 2)),))
    path = tmp_path / "stacked_training.json"
    assert run_benchmark(["stacked-training", "--epochs", "2", "--repeats", "1", "--output", str(path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    first = json.loads(path.read_text())
    assert run_benchmark(["stacked-training", "--epochs", "2", "--repeats", "1", "--output", str(path)]) == 0
    assert capsys.readouterr().out == "" and json.loads(path.read_text())["cells"] == first["cells"]
    lines = stacked_table(first).splitlines()
    assert len(lines) == 4 and lines[2].startswith("| 8x8 | 1 | ")
    assert "Medians of 1 runs" in conditions_line(first) and "All verdicts are the same" in conditions_line(first)
