"""A champion is measured on test rows that it was not trained on, or nothing is claimed about it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feature_store.features import featurize
from feature_store.schema import TARGETS, Column, TelemetrySchema
from feature_store.trained_rows import TrainedRows
from models.tasks.supervised.evidence import champion_on_test_rows
from tests.models.export.test_row_errors import doubles_the_first_and_adds_the_second

BY = ("environment", "window_start")
SCHEMA = TelemetrySchema("w", dict.fromkeys(("a", "b"), Column("share", 0.0, 1.0, "")), dict(TARGETS), BY)
TASK: Any = SimpleNamespace(split_by=BY, target=SimpleNamespace(name="latency_ms", unit="ms"), accuracy_tolerance=0.1)


def telemetry(rows: int, seed: int = 0) -> pd.DataFrame:
    """2 a + b, and up to 1 ms more."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.random(rows), "b": rng.random(rows), "workload": "w", "environment": "base",
                          "window_start": pd.date_range("2024-01-01", periods=rows, freq="60s", tz="UTC")})
    return frame.assign(latency_ms=2 * frame.a + frame.b + rng.random(rows))


def trained_on(folder: Path, frame: pd.DataFrame, share: float) -> Any:
    """The bundle of a champion of these rows."""
    featurize(frame, SCHEMA, share, folder / "w")
    rows = pd.read_parquet(folder / "w" / "train.parquet")
    model = SimpleNamespace(model=SimpleNamespace(input="rows"), input_names=("a", "b"))
    return SimpleNamespace(model=doubles_the_first_and_adds_the_second(), contract=model,
                           evidence={"seen": TrainedRows.of(rows, tuple(SCHEMA.numeric), BY, share).to_json()})


@pytest.fixture
def features(tmp_path: Path) -> Callable[[pd.DataFrame], Path]:
    """Features of a later run, whose test share is 0.3."""
    def make(frame: pd.DataFrame) -> Path:
        featurize(frame, SCHEMA, 0.3, tmp_path / "new" / "w")
        return tmp_path / "new"

    return make


@pytest.mark.parametrize("before", [1.0, 0.5, 0.1])
def test_more_data_leave_nothing_out(tmp_path: Path, features: Any, before: float) -> None:
    frame = telemetry(400)
    found = champion_on_test_rows(TASK, "w", features(frame), trained_on(tmp_path, frame.iloc[:int(400 * before)], 0.3))
    assert "left_out" not in found and "unclaimed" not in found
    test = pd.read_parquet(tmp_path / "new" / "w" / "test.parquet")
    assert len(found["cases"]["values"]) == len(test)
    errors = (2 * test.a + test.b - test.latency_ms).abs() / found["cases"]["scale"]**0.5
    assert found["metrics"] == pytest.approx({"test_mse": (errors**2).mean(), "test_mae": errors.mean(),
                                              "test_accuracy": (errors <= 0.1).mean()}, rel=1e-5)


def test_rows_that_it_was_trained_on_are_left_out(tmp_path: Path, features: Any) -> None:
    """Its own test share was smaller, so that some of the new test rows were on its training side."""
    frame = telemetry(400)
    found = champion_on_test_rows(TASK, "w", features(frame), trained_on(tmp_path, frame, 0.15))
    test = pd.read_parquet(tmp_path / "new" / "w" / "test.parquet")
    known = set(pd.read_parquet(tmp_path / "w" / "train.parquet").latency_ms)
    assert found["left_out"] == [place for place, value in enumerate(test.latency_ms) if value in known] != []
    unseen = test[~test.latency_ms.isin(known)]
    squared = (2 * unseen.a + unseen.b - unseen.latency_ms) ** 2
    np.testing.assert_allclose(found["cases"]["values"], squared, rtol=1e-5, atol=1e-9)
    assert found["metrics"]["test_mse"] == pytest.approx(squared.mean() / found["cases"]["scale"], rel=1e-5)
    assert found["metrics"]["test_mae"] == pytest.approx((squared / found["cases"]["scale"]).pow(0.5).mean(), rel=1e-5)


def test_where_it_was_trained_on_nearly_all_nothing_is_claimed(tmp_path: Path, features: Any) -> None:
    """The same measurements under other times and another environment: other groups, the same rows."""
    frame = telemetry(400)
    moved = frame.assign(window_start=frame.window_start + pd.Timedelta(hours=7), environment="copy")
    found = champion_on_test_rows(TASK, "w", features(frame), trained_on(tmp_path, moved, 0.15))
    assert found["metrics"] == {} and "cases" not in found
    assert found["unclaimed"].startswith("it was trained on ")


@pytest.mark.parametrize("evidence", [
    {}, {"seen": None}, {"seen": {"columns": ["a"]}},
    {"seen": replace(TrainedRows.of(telemetry(2), ("a",)), columns=("z",)).to_json()}])
def test_without_a_usable_record_nothing_is_claimed(tmp_path: Path, features: Any, evidence: Any) -> None:
    bundle = trained_on(tmp_path, telemetry(400), 0.3)
    bundle.evidence = evidence
    found = champion_on_test_rows(TASK, "w", features(telemetry(400)), bundle)
    assert found["metrics"] == {} and found["unclaimed"].startswith("which rows it was trained on is not known (")
