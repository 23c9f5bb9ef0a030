"""The LinnOS example: rows of one run stay together, other files are refused, the real file passes the gate."""

import os
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.learning.data_sets import EXAMPLE, LINNOS_FILE
from feature_store.errors import InputError
from feature_store.expectations import DataGate
from feature_store.features import featurize
from feature_store.mapping import parse_mapping
from feature_store.scaling import FeatureScaling
from feature_store.sources.files import read_telemetry
from feature_store.strict_yaml import read_yaml
from models.tasks.supervised.specifications import raw_specification, scaled_specification
from models.tasks.task import parse_task
from tests.benchmarks.learning.linnos_trace import trace, write_trace

LINNOS = Path(os.environ.get("ASSAY_DATA", Path(__file__).resolve().parents[4] / "shared" / "data")) / LINNOS_FILE
PROGRAM: dict[str, Any] = runpy.run_path(str(EXAMPLE / "prepare.py"))


def runs(tmp_path: Path, rows: np.ndarray) -> list[int]:
    return list(PROGRAM["prepare"](write_trace(tmp_path / "linnos.csv.gz", rows))["run"])


def linked(rows: np.ndarray) -> list[int]:
    """Brute force: the smallest row number that is reached over pairs of rows that follow one another."""
    before = [tuple(row[[0, 1, 2, 3, 5, 6, 7, 8]]) for row in rows]
    after = [tuple(row[[1, 2, 3, 4, 6, 7, 8, 9]]) for row in rows]
    first = list(range(len(rows)))
    for _ in rows:
        for a in range(len(rows)):
            for b in range(len(rows)):
                if after[a] == before[b] or before[a] == before[b] or after[a] == after[b]:
                    first[a] = first[b] = min(first[a], first[b])
    return first


def test_a_row_knows_its_columns(tmp_path: Path) -> None:
    table = PROGRAM["prepare"](write_trace(tmp_path / "linnos.csv", np.arange(10)[None]))
    assert table.iloc[0].to_dict() == {
        "queue_4": 0, "queue_3": 1, "queue_2": 2, "queue_1": 3, "queue_now": 4, "latency_4": 5, "latency_3": 6,
        "latency_2": 7, "latency_1": 8, "latency_us": 9, "run": 0}


def test_rows_that_follow_one_another_are_one_run_whatever_their_order(tmp_path: Path) -> None:
    rows = trace(40)
    assert runs(tmp_path, rows) == [0] * 36
    assert set(runs(tmp_path, np.random.default_rng(0).permutation(rows))) == {0}


def test_a_missing_row_parts_a_run(tmp_path: Path) -> None:
    assert runs(tmp_path, np.delete(trace(20), 5, axis=0)) == [0] * 5 + [1] * 10


@settings(max_examples=20, deadline=None)
@given(kept=st.sets(st.integers(0, 15), min_size=1), seed=st.integers(0, 3))
def test_runs_are_those_of_brute_force(tmp_path_factory: pytest.TempPathFactory, kept: set[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    # numbers of two kinds alone, so that rows also follow one another by chance
    rows = generator.permutation(np.concatenate([trace(20, seed)[sorted(kept)], generator.integers(1, 3, (6, 10))]))
    found, expected = runs(tmp_path_factory.mktemp("runs"), rows), linked(rows)
    assert [found.index(run) for run in found] == [expected.index(run) for run in expected]


@pytest.mark.parametrize(("text", "message"), [
    ("1,2,3\n", "got 3 columns"), ("", "must be a readable CSV file"), ("a,b,c,d,e,f,g,h,i,j\n", "whole numbers"),
    ("1,2,3,4,5,6,7,8,9,-1\n", "whole numbers from 0"), ("1,2,3,4,5,6,7,8,9,\n", "whole numbers"),
    ("1,2,3,4,5,6,7,8,9,1.5\n", "whole numbers"), ("1,2\n1,2,3\n", "must be a readable CSV file"),
])
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "linnos.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        PROGRAM["prepare"](tmp_path / "linnos.csv")


def test_a_cut_or_missing_file_is_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    whole, output = write_trace(tmp_path / "linnos.csv.gz", trace(500)), tmp_path / "out.csv"
    whole.write_bytes(whole.read_bytes()[:-200])
    for source in (whole, tmp_path / "none.csv"):
        assert PROGRAM["main"]([str(source), str(output)]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: LinnOS data must be") and error.count("\n") == 1
    assert not output.exists()


@pytest.mark.skipif(not LINNOS.is_file(), reason=f"the public LinnOS table is not at {LINNOS} (set ASSAY_DATA)")
def test_the_linnos_example_reads_passes_the_gate_and_splits_by_run(tmp_path: Path) -> None:
    assert PROGRAM["main"]([str(LINNOS), str(tmp_path / "linnos.csv")]) == 0
    path = EXAMPLE / "mapping.yaml"
    mapping = parse_mapping(read_yaml(path, "mapping"), path)
    assert mapping.task is not None
    task = parse_task(mapping.task, mapping.where)
    schema, frame = task.telemetry_schema("linnos"), read_telemetry(tmp_path / "linnos.csv", mapping)
    assert len(frame) == 59_870
    result = DataGate().judge(frame, schema)
    assert result.passed, result.failures
    summary = featurize(frame, schema, task.test_share, folder=tmp_path / "linnos")
    sides = [pd.read_parquet(summary.folder / f"{side}.parquet") for side in ("train", "test")]
    assert not set(sides[0]["run"]) & set(sides[1]["run"])
    inputs = [quantity.name for quantity in task.features("linnos")]
    assert sides[0].merge(sides[1], on=inputs).empty  # rows with equal inputs are of one run
    scaling = FeatureScaling.from_json((summary.folder / "scaling.json").read_text())
    assert scaled_specification(raw_specification(task, "linnos", scaling), scaling).queries == ((4, -1), (8, -1))
