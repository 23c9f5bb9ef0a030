"""The data sets of the learning benchmark: found or left out with a line, and versioned by all that makes them."""

from pathlib import Path

import pytest
import yaml

from benchmarks.learning import data_sets
from benchmarks.learning.data_sets import LINNOS_FILE, DataSet, missing, open_data_sets
from feature_store.errors import InputError
from feature_store.mapping import parse_mapping
from feature_store.sources.files import read_telemetry
from models.tasks.task import parse_task
from tests.benchmarks.learning.linnos_trace import trace, write_trace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Public data with a small LinnOS file."""
    path = tmp_path / "public" / LINNOS_FILE
    path.parent.mkdir(parents=True)
    write_trace(path, trace(60))
    return tmp_path / "public"


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, folder: Path) -> None:
    telemetry = tmp_path / "samples.parquet"
    assert str(missing("recorded", telemetry, folder)).startswith("telemetry must be an existing file")
    line = missing("linnos", telemetry, tmp_path)
    assert line is not None and "linnos is left out" in line and "\n" not in line
    assert missing("linnos", telemetry, folder) is None
    with pytest.raises(InputError, match="left out"):
        open_data_sets(["linnos"], telemetry, tmp_path, tmp_path)


def test_an_unknown_data_set_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got 'linos'; .*linnos"):
        missing("linos", tmp_path, tmp_path)


def test_linnos_is_read_as_a_user_s_file(tmp_path: Path, folder: Path) -> None:
    found = open_data_sets(["linnos", "linnos_increasing"], tmp_path / "none", folder, tmp_path)
    for name, direction in (("linnos", "decreasing"), ("linnos_increasing", "increasing")):
        own = found[name]
        frame = read_telemetry(own.telemetry, parse_mapping(yaml.safe_load(own.mapping_yaml), Path("mapping")))
        assert set(frame["workload"]) == {"linnos"} and len(frame) == 56 and set(frame["run"]) == {0}
        task = parse_task(dict(own.task), name)
        assert {quantity.name for quantity in task.features("linnos")} < set(frame.columns)
        rule = task.workload("linnos").specification["properties"][0]["monotone"]
        assert rule == {"features": ["queue_now", "latency_1"], "direction": direction}


def test_a_file_that_the_example_refuses_is_refused_with_its_line(tmp_path: Path, folder: Path) -> None:
    (folder / LINNOS_FILE).write_bytes(b"not packed")
    with pytest.raises(InputError, match=r"^error: LinnOS data must be a readable CSV file"):
        open_data_sets(["linnos"], tmp_path, folder, tmp_path)


def test_versions_follow_telemetry_mapping_and_task_but_not_its_training(tmp_path: Path) -> None:
    telemetry = tmp_path / "t.csv"
    telemetry.write_text("a\n")
    task = {"name": "t", "training": {"epochs": 1}}
    one = DataSet("recorded", telemetry, "", task).versions()
    assert DataSet("recorded", telemetry, "", {**task, "training": {"epochs": 2}}).versions() == one
    others = [DataSet("recorded", telemetry, "x", task).versions(),
              DataSet("recorded", telemetry, "", {**task, "name": "u"}).versions()]
    telemetry.write_text("b\n")
    others.append(DataSet("recorded", telemetry, "", task).versions())
    assert one not in others
    assert [other["data_version"] == one["data_version"] for other in others] == [True, True, False]


def test_the_default_needs_nothing_but_public_names() -> None:
    assert set(data_sets.DEFAULT) <= set(data_sets.DATA_SETS)
