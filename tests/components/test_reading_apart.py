"""A data set that is cut by workload: shards that read their own part alone make what one makes that reads it whole."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from components.audit import run_audit
from components.featurize import run_featurize
from components.ingest import run_ingest
from components.validate import run_validate
from feature_store.errors import InputError, RefusedError
from feature_store.samples import Samples
from pipelines.request import Fanout, make_request
from pipelines.shards import make_readers
from tests.components.steps import project
from tests.e2e import tiny

WORKLOADS = ("redis", "nginx", "mysql", "idle")


def data_set(folder: Path, table: pd.DataFrame, column: str = "workload") -> str:
    """Two files a workload, and none of "idle"; rows without a workload go into one of their own."""
    for name, rows in table.groupby("workload", dropna=False):
        half = len(rows) // 2
        for number, part in enumerate((rows[:half], rows[half:])):
            place = folder / f"{column}={'__HIVE_DEFAULT_PARTITION__' if pd.isna(name) else name}"
            place.mkdir(parents=True, exist_ok=True)
            part.drop(columns="workload").to_parquet(place / f"{number}.parquet", index=False)
    return str(folder)


def features_of(folder: Path, telemetry: str, readers: Sequence[Sequence[str]], task: dict[str, Any],
                mapping_yaml: str = "") -> Path:
    """ingest, validate and featurize of each shard, and what `audit` makes of them all."""
    text, parts = yaml.safe_dump(task), []
    for number, names in enumerate(readers):
        at = folder / str(number)
        run_ingest(text, telemetry, mapping_yaml, at / "samples", names)
        run_validate(text, list(names), at / "samples", at / "validated", at / "docs")
        run_featurize(text, list(names), 0, at / "validated", at / "features")
        parts.append(at / "features")
    run_audit(text, [name for names in readers for name in names], parts, folder / "features")
    return folder / "features"


def contents(folder: Path) -> dict[str, Any]:
    """Every file below it; of JSON without the place of the Data Docs, in any order of workloads."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(folder))
            found[name] = json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()
    for verdict in found["validation.json"].values():
        assert Path(verdict.pop("docs")).is_file()
    return found


@pytest.fixture
def table() -> pd.DataFrame:
    return tiny.telemetry(WORKLOADS[:3], rows=120)


def test_shards_make_what_one_makes_that_reads_all(tmp_path: Path, table: pd.DataFrame) -> None:
    """Byte for byte, row numbers and versions included; a workload without rows fails alone, also in its own shard."""
    task = tiny.task(WORKLOADS)
    table.loc[table.index[table["workload"] == "nginx"][50], "latency_ms"] = float("nan")
    telemetry = data_set(tmp_path / "telemetry", pd.concat([table, tiny.telemetry(("search",), rows=5)]))
    with project(tmp_path / "project"):
        whole = contents(features_of(tmp_path / "one", telemetry, [WORKLOADS], task))
        apart = contents(features_of(tmp_path / "many", telemetry, [[name] for name in WORKLOADS], task))
    assert apart == whole
    status = whole["status.json"]
    assert status["redis"] == status["mysql"] == "" and "(workload idle" in status["idle"]
    assert "first at record 51 of workload=nginx/0.parquet" in status["nginx"]
    assert whole["source.json"]["rows"] == len(table)


def test_a_shard_reads_its_own_files_alone(tmp_path: Path, table: pd.DataFrame) -> None:
    telemetry = data_set(tmp_path / "telemetry", table)
    for name in ("nginx", "mysql"):
        shutil.rmtree(tmp_path / "telemetry" / f"workload={name}")
        (tmp_path / "telemetry" / f"workload={name}").mkdir()
        (tmp_path / "telemetry" / f"workload={name}" / "0.parquet").write_bytes(b"no table")
    with project(tmp_path / "project"):
        source = run_ingest(yaml.safe_dump(tiny.task()), telemetry, "", tmp_path / "samples", ["redis"])
    assert source["workloads"] == {"redis": 120} and source["others"] == ["mysql", "nginx"]
    assert list(Samples(tmp_path / "samples")) == ["redis"]


def test_a_name_that_no_shard_has_rows_of_and_data_of_which_none_pass_stop_the_run(tmp_path: Path,
                                                                                 table: pd.DataFrame) -> None:
    telemetry = data_set(tmp_path / "telemetry", table)
    with project(tmp_path / "project"):
        with pytest.raises(InputError, match=r"got 'rediss' without any row.*did you mean 'redis'"):
            features_of(tmp_path / "misspelt", telemetry, [["rediss"], ["nginks"]], tiny.task(("rediss", "nginks")))
        bad = data_set(tmp_path / "bad", table.assign(latency_ms=-1.0))
        with pytest.raises(RefusedError, match="one workload at least, got none of 2: ") as caught:
            features_of(tmp_path / "none", bad, [["redis"], ["nginx"]], tiny.task(("redis", "nginx")))
    page, _, beside = str(caught.value).rsplit("every rule: ")[1].partition(" (")
    assert Path(page).is_file() and beside == "one page a shard, 2 in all)"


def test_a_request_reads_apart_what_is_cut_by_workload_and_nothing_else(tmp_path: Path, table: pd.DataFrame) -> None:
    task = tiny.write_yaml(tiny.task(WORKLOADS[:3]), tmp_path / "task.yaml")
    mapping = {"workload": {"column": "app"}, "time": {"column": "window_start", "window_s": 60},
               "columns": {name: {"column": name} for name in ("psi_io_some", "latency_ms")}}
    written = tiny.write_yaml(mapping, tmp_path / "mapping.yaml")
    fanout = Fanout(2, 1)

    def readers(telemetry: str, mapping: Path | None = None) -> int:
        made = make_request(str(task), telemetry, mapping, [], 0, "mine", fanout=fanout)
        assert sorted(name for names in made.readers for name in names) == sorted(made.workloads)
        return len(made.readers)

    whole = tmp_path / "whole.parquet"
    table.to_parquet(whole, index=False)
    by_time = tmp_path / "by-time"
    by_time.mkdir()
    table.to_parquet(by_time / "0.parquet", index=False)
    assert readers(data_set(tmp_path / "cut", table)) == 2
    assert readers(data_set(tmp_path / "mapped", table, "app"), written) == 2
    assert readers(str(whole)) == readers(str(by_time)) == 1
    unnamed = table.assign(workload=table["workload"].where(table.index > 0))
    assert readers(data_set(tmp_path / "unnamed", unnamed)) == 1, "rows that may be any one's"
    assert readers(data_set(tmp_path / "one", table[table["workload"] == "mysql"])) == 1, "the others have no files"


def test_a_workload_without_files_is_read_with_one_that_has_some() -> None:
    """So that no shard reads a file that is another's, which may be damaged."""
    assert make_readers([["idle"], ["redis", "lost"], ["nginx"]], {"redis", "nginx", "mysql"}) == (
        ("redis", "lost", "idle"), ("nginx",))
    for apart in ({"redis"}, set[str]()):
        assert make_readers([["idle"], ["lost"]], apart) == (("idle", "lost"),)
