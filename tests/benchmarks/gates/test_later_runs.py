"""Later runs are judged by the code that judges them in the pipeline; a benchmark that was stopped goes on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.gates import later_runs
from benchmarks.gates.later_runs import SITUATIONS, WAYS, Telemetry, later_runs_table, measure, series_line

BY = ("environment", "window_start")


def telemetry(rows: int = 500) -> Telemetry:
    rng = np.random.default_rng(0)
    start = pd.date_range("2024-01-01", periods=rows, freq="2s", tz="UTC")
    frame = pd.DataFrame({"x": rng.random(rows), "environment": "base", "window_start": start})
    return Telemetry(frame.assign(y=frame.x + 0.1 * rng.random(rows)), ("x", "y"), BY, 0.2)


def by_heart(rows: pd.DataFrame, columns: tuple[str, ...], seed: int) -> Any:
    """A recipe that has no error on its training rows, and the same everywhere else."""
    known = set(rows["y"])
    return lambda asked: np.where(asked["y"].isin(known), 0.0, 1.0 + 0.01 * np.sin(np.arange(len(asked)) + seed))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_who_knows_rows_by_heart_rejects_only_where_they_are_counted(
        situation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_runs, "fitted", by_heart)
    found = {way: [later_runs.judged(telemetry(), situation, way, repeat) for repeat in (1, 2, 3)] for way in WAYS}
    assert {way: [one["outcome"] for one in outcomes] for way, outcomes in found.items()} == {
        "by seed": ["rejected"] * 3, "by row": ["challenger"] * 3, "as it is": ["challenger"] * 3}
    assert all(0.9 < one["truth"] < 1.1 for outcomes in found.values() for one in outcomes), "nobody trained on them"


def test_what_is_worse_by_luck_is_rejected_by_its_mean_alone() -> None:
    rng = np.random.default_rng(1)
    old = rng.exponential(size=200)
    worse = old * 1.1
    lucky = rng.permutation(old)
    lucky[0] += 0.1 * old.sum()
    assert [later_runs.holds(new, old, paired=paired) for new in (worse, lucky) for paired in (False, True)] == [
        False, False, False, True]


def test_a_recipe_learns_what_it_is_given() -> None:
    given = telemetry()
    errors = later_runs.fitted(given.rows, given.columns, 0)(given.rows)
    assert errors.shape == (500,) and errors.mean() < 0.5 * given.rows["y"].var()


def test_what_is_measured_is_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later_runs, "load", lambda: {"w": telemetry()})
    monkeypatch.setattr(later_runs, "fitted", by_heart)
    monkeypatch.setattr(later_runs, "ATTEMPTS", 2)
    results = measure(tmp_path / "r.json", 2, 1, lambda line: None)
    said: list[str] = []
    assert measure(tmp_path / "r.json", 2, 1, said.append)["cells"] == results["cells"] and said == []
    shown = later_runs_table(json.loads((tmp_path / "r.json").read_text()))
    assert "| same data, other seed | by seed | 2 | 100 % | 100 % | 0 % | 0 % | 0 % | 0 % |" in shown
    assert "| overlapping data | as it is | 2 | 0 % | 0 % | 0 % | 0 % | 100 % | 0 % |" in shown
    assert series_line({**results, "machine": {"date": "2026-01-01T"}}).startswith("Of 1 series of 2 equal challengers")
