"""A look at a champion that predicts: each finding by a case that lacks it otherwise, and telemetry as it comes."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.trained_rows import TrainedRows
from models.export.row_errors import squared_errors
from models.monitoring.findings import decide
from models.tasks.monitored_kind import Looked, Watched
from models.tasks.prediction.task import PredictionTask
from models.tasks.supervised.monitoring import KEPT, watch_rows
from models.verification.language.properties import Monotonicity
from models.verification.language.specification import Specification
from tests.models.export.test_row_errors import doubles_the_first_and_adds_the_second

START = pd.Timestamp("2026-01-05", tz="UTC")
NOW = datetime(2026, 2, 1, tzinfo=UTC)
TASK: Any = PredictionTask.model_validate({
    "name": "t", "target": {"name": "latency_ms", "unit": "ms", "minimum": 0.0},
    "inputs": [{"name": name, "unit": "share", "minimum": 0.0, "maximum": 1.0} for name in "ab"],
    "workloads": {"w": {"specification": {"properties": []}}}})
MODEL = doubles_the_first_and_adds_the_second()


def telemetry(rows: int, seed: int, begin: pd.Timestamp = START, spread: float = 0.1, low: float = 0.0,
              high: float = 0.8) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(low, high, (2, rows))
    return pd.DataFrame({"workload": "w", "environment": "base", "window_start":
                         pd.date_range(begin, periods=rows, freq="60s"), "window_s": 60.0, "a": a, "b": b,
                         "latency_ms": np.abs(2 * a + b + rng.normal(0, spread, rows))})


TRAINED = telemetry(400, 0)
LATER = START + pd.Timedelta(minutes=400)


def bundle(direction: str = "increasing", model: bytes = MODEL, tested: int = 200, seed: int = 9) -> Any:
    """Of a champion that knows the truth but for the noise."""
    errors = squared_errors(np.random.default_rng(seed).normal(0, 0.1, tested), 1.0, "ms", "0" * 64)
    inputs = [SimpleNamespace(name=name, unit="share", minimum=0.0, maximum=0.8, physical_minimum=0.0,
                              physical_maximum=1.0) for name in "ab"]
    specification = Specification(("a", "b"), np.zeros(2), np.full(2, 0.8), (Monotonicity((0,), direction),),  # type: ignore[arg-type]
                                  output_names=("latency_ms",))
    return SimpleNamespace(
        model=model, contract=SimpleNamespace(model=SimpleNamespace(input="rows"), input_names=("a", "b"),
                                              inputs=inputs),
        promise=SimpleNamespace(specification=specification),
        evidence={"cases": errors.to_json(), "data": {"quality": {"data": {
            "last": TRAINED["window_start"].iloc[-1].isoformat()}}}, "seen": seen(TRAINED)})


def seen(rows: pd.DataFrame) -> dict[str, Any]:
    return TrainedRows.of(rows, ("a", "b", "latency_ms"), TASK.split_by, TASK.test_share).to_json()


def look(folder: Path, rows: pd.DataFrame | None, number: int = 1, memory: Any = None, **changed: Any) -> Looked:
    keep = folder / f"look-{number}"
    keep.mkdir()
    return watch_rows(TASK, "w", replace(Watched(
        bundle(), None, rows, TRAINED, folder, folder / f"look-{number - 1}", keep, memory or {}, number, 1, NOW),
        **changed))


def found(looked: Looked) -> set[str]:
    return {one.what for one in looked.findings if one.found}


def test_more_of_the_same_is_fine_look_after_look(tmp_path: Path) -> None:
    rows, memory = telemetry(1000, 1, LATER), None
    for number in range(1, 11):
        seen = look(tmp_path, rows.iloc[:100 * number], number, memory)
        memory = seen.memory
        assert (seen.rows, seen.enough, found(seen)) == (100, True, set())
    assert decide(seen).choice == "fine" and len(pd.read_parquet(tmp_path / "look-10/recent.parquet")) == 1000
    assert {one.what for one in seen.findings} == {"specification", "error", "coverage", "drift", "outside"}


@pytest.mark.parametrize(("rows", "expected", "choice"), [
    (telemetry(300, 1, LATER, low=0.5), {"drift"}, "fine"),
    (telemetry(300, 1, LATER, low=0.5).assign(latency_ms=np.nan), {"drift, no truth"}, "fine-tune"),
    (telemetry(300, 1, LATER, spread=0.14), {"error"}, "fine-tune"),
    (telemetry(300, 1, LATER, spread=0.4), {"error doubled", "coverage"}, "retrain"),
    (telemetry(300, 1, LATER, high=1.0), {"outside"}, "retrain"),
], ids=["drift", "drift without truth", "a larger error", "a doubled error", "outside"])
def test_each_change_is_found_and_asks_for_what_it_should(tmp_path: Path, rows: pd.DataFrame, expected: set[str],
                                                          choice: str) -> None:
    seen = look(tmp_path, rows)
    assert expected <= found(seen) <= {*expected, "drift", "coverage"}
    assert decide(seen).choice == choice, decide(seen).reasons


def test_a_few_test_rows_leave_open_what_their_interval_covers(tmp_path: Path) -> None:
    unlucky = bundle(tested=20, seed=579)  # chance made the interval too narrow
    (coverage,) = [one for one in look(tmp_path, telemetry(1000, 1, LATER), bundle=unlucky).findings
                   if one.what == "coverage"]
    assert coverage.figures["covered"] < 0.7 and not coverage.found


def test_errors_that_few_of_the_test_were_as_large_as_are_not_covered(tmp_path: Path) -> None:
    rows = telemetry(5000, 1, LATER, spread=0.0)
    rows["latency_ms"] += np.where(np.random.default_rng(2).random(5000) < 0.4, 0.175, 0.0)  # hardly a larger mean
    whats = found(look(tmp_path, rows, bundle=bundle(tested=1000)))
    assert "coverage" in whats and "error doubled" not in whats


def test_a_proved_model_that_breaks_its_specification_on_live_pairs_is_found(tmp_path: Path) -> None:
    seen = look(tmp_path, telemetry(300, 1, LATER), bundle=bundle("decreasing"))
    (one,) = [one for one in seen.findings if one.what == "specification"]
    assert one.found and "latency_ms is decreasing in a" in one.sentence and decide(seen).choice == "retrain"


def test_the_champion_before_is_asked_about_the_same_rows(tmp_path: Path) -> None:
    rows = telemetry(300, 1, LATER)
    other = bundle()
    other.contract.input_names = ("b", "a")  # b + 2 a becomes 2 b + a: wrong on these rows
    seen = look(tmp_path, rows, bundle=other, before=bundle())
    assert "error doubled" in found(seen) and seen.before is not None and seen.before.better
    assert decide(seen).choice == "roll back" and "is better on these rows" in decide(seen).reasons[-1]
    seen = look(tmp_path, rows, 2, bundle=other, before=other)
    assert seen.before is not None and not seen.before.better and decide(seen).choice == "retrain"
    other.contract.input_names = ("c",)
    seen = look(tmp_path, rows, 3, before=other)
    assert seen.before is not None and "cannot be asked" in seen.before.sentence


def test_the_champion_before_is_not_asked_about_rows_that_it_learned(tmp_path: Path) -> None:
    rows, worse = telemetry(300, 1, LATER), bundle()
    worse.contract.input_names = ("b", "a")
    for number, (learned, last, said) in enumerate([
            (rows, 300, "trained on 300 of 300 rows"), (rows[::2], 0, "is better on these rows"),
            (rows[:0], 150, "is better on these rows"), (None, 0, "cannot be asked")], 1):
        before = bundle()
        before.evidence["seen"] = None if learned is None else seen(learned)
        before.evidence["data"]["quality"]["data"]["last"] = (LATER + pd.Timedelta(minutes=last)).isoformat()
        found = look(tmp_path, rows, number, bundle=worse, before=before).before
        assert found is not None and said in found.sentence and found.better == ("is better" in said)
        if last == 150:  # of the windows that it was split from, the test side; and all later ones
            assert 150 < int(found.sentence.split(" over ")[1].split()[0]) < 220


def test_a_task_that_changed_since_is_looked_at_by_the_inputs_of_its_champion(tmp_path: Path,
                                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    for number, names in enumerate(("abc", "a"), 1):
        changed = TASK.model_copy(update={
            "inputs": tuple(TASK.inputs[0].model_copy(update={"name": name}) for name in names)})
        monkeypatch.setitem(globals(), "TASK", changed)
        assert {one.what for one in look(tmp_path, telemetry(300, 1, LATER), number).findings} >= {"drift", "outside"}


def test_training_rows_without_times_are_in_order_and_need_the_columns(tmp_path: Path) -> None:
    rows = telemetry(300, 1, LATER, low=0.5)
    assert found(look(tmp_path, rows, training=TRAINED[["a", "b", "latency_ms", "environment"]])) == {"drift"}
    with pytest.raises(InputError, match=r"rows of training must have .* got none for b"):
        look(tmp_path, rows, 2, training=TRAINED[["a", "latency_ms"]])


def test_telemetry_that_repeats_itself_as_it_always_did_has_not_drifted(tmp_path: Path) -> None:
    rows = pd.concat([TRAINED, telemetry(1000, 1, LATER)], ignore_index=True)
    idle = np.random.default_rng(3).random(len(rows)) < 0.8
    rows.loc[idle, ["a", "b", "latency_ms"]] = [0.1, 0.1, 0.3]
    trained = rows[:400].drop_duplicates(["a", "b", "latency_ms"])
    looked = look(tmp_path, rows, training=trained)
    assert looked.rows == 1000 and "drift" not in found(looked) and "none of 2" in looked.findings[3].sentence


def test_idle_rows_whose_truth_is_noisy_have_not_drifted_without_it(tmp_path: Path) -> None:
    trained, rows = TRAINED.copy(), telemetry(1000, 1, LATER)
    for number, frame in enumerate((trained, rows)):
        frame.loc[np.random.default_rng(number).random(len(frame)) < 0.8, ["a", "b"]] = 0.1
    looked = look(tmp_path, rows.assign(latency_ms=np.nan), training=trained)
    assert "drift, no truth" not in found(looked) and any("none of 2" in one.sentence for one in looked.findings)


@pytest.mark.parametrize("truth", [0.3, np.nan])
def test_a_feed_that_stands_still_is_said(tmp_path: Path, truth: float) -> None:
    looked = look(tmp_path, telemetry(100, 1, LATER).assign(a=0.1, b=0.1, latency_ms=truth))
    assert not {"drift", "drift, no truth"} & {one.what for one in looked.findings}
    assert any("100 rows have 1 different inputs, and 20 are needed; does the feed stand still?" in one
               for one in looked.notes), looked.notes


def test_few_new_rows_wait_and_no_row_counts_twice(tmp_path: Path) -> None:
    rows = telemetry(60, 1, LATER)
    first = look(tmp_path, rows.iloc[:30])
    assert (first.rows, first.enough) == (30, True)
    second = look(tmp_path, rows.iloc[:45], 2, first.memory)
    assert (second.rows, second.enough, dict(second.memory)) == (15, False, {})
    third = look(tmp_path, pd.concat([rows, rows]), 3, first.memory, past=tmp_path / "look-1")
    assert (third.rows, third.enough) == (30, True)
    assert len(pd.read_parquet(tmp_path / "look-3/recent.parquet")) == 60


def test_rows_that_it_was_trained_on_are_not_new_and_there_may_be_none(tmp_path: Path) -> None:
    assert (seen := look(tmp_path, TRAINED)).rows == 0 and decide(seen).choice == "no data"
    assert look(tmp_path, TRAINED.iloc[:0], 2).rows == 0


def test_a_clock_that_jumps_ahead_hides_no_later_rows(tmp_path: Path) -> None:
    rows = telemetry(60, 1, LATER)
    ahead = rows.iloc[:5].assign(window_start=pd.Timestamp(NOW) + pd.Timedelta(hours=5))
    first = look(tmp_path, pd.concat([rows.iloc[:30], ahead]))
    assert first.rows == 30 and first.notes[0].startswith("5 rows from the future")
    assert look(tmp_path, rows, 2, first.memory).rows == 30


@pytest.mark.parametrize("column, value", [("a", np.nan), ("a", np.inf), ("b", 3.0), ("latency_ms", -1.0)])
def test_a_broken_row_is_left_out_and_counted(tmp_path: Path, column: str, value: float) -> None:
    rows = telemetry(100, 1, LATER)
    rows.loc[7, column] = value
    seen = look(tmp_path, rows)
    assert seen.rows == 99 and seen.notes == ("1 row with a value that is missing or impossible: left out",)


def test_without_training_rows_drift_is_not_judged_and_that_is_said(tmp_path: Path) -> None:
    seen = look(tmp_path, telemetry(300, 1, LATER, low=0.5), training=None)
    assert not found(seen) and "drift was not looked at" in seen.notes[0]


def test_telemetry_that_cannot_be_read_so_is_refused_or_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got none for b"):
        look(tmp_path, telemetry(50, 1, LATER).drop(columns="b"))
    with pytest.raises(InputError, match=r"must hold numbers, got another thing: .*'high'.* \(workload w\)"):
        look(tmp_path, telemetry(50, 1, LATER).assign(b="high"), 3)
    seen = look(tmp_path, telemetry(50, 1, LATER).assign(window_s=0.0), 2)
    assert not seen.enough and "without times" in seen.notes[0]


def test_no_more_rows_are_kept_than_are_looked_at(tmp_path: Path) -> None:
    seen = look(tmp_path, telemetry(KEPT + 100, 1, LATER), now=datetime(2026, 3, 1, tzinfo=UTC))
    assert seen.rows == KEPT + 100 and len(pd.read_parquet(tmp_path / "look-1/recent.parquet")) == KEPT
