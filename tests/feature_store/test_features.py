import json

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.features import featurize
from feature_store.scaling import FeatureScaling


def test_the_folder_holds_what_training_reads(tmp_path, telemetry, schema):
    frame = telemetry(200)
    summary = featurize(frame, schema, 0.2, tmp_path / "redis", dropped={"warm-up": 12}, checks=[{"rule": "x"}])
    train, test = (pd.read_parquet(tmp_path / "redis" / f"{side}.parquet") for side in ("train", "test"))
    columns = ["psi_io_full", "cpu_time", "cpu_quota_cores", "latency_ms", "environment", "window_start"]
    assert list(train.columns) == list(test.columns) == columns
    assert set(train.dtypes[:4]) == {np.dtype("float64")}
    assert (len(train), len(test)) == (summary.train_rows, summary.test_rows)
    assert len(train) + len(test) == summary.rows == 200
    both = pd.concat([train, test]).sort_values("window_start").reset_index(drop=True)
    pd.testing.assert_frame_equal(both, frame[columns])
    quality = json.loads((tmp_path / "redis" / "quality.json").read_text())
    assert quality["dropped"] == {"warm-up": 12}
    assert quality["checks"] == [{"rule": "x"}]
    assert (quality["rows"], quality["train_rows"]) == (200, len(train))
    assert quality["data_version"] == summary.data_version
    assert quality["data"]["combinations"] == 10


def test_scaling_is_of_the_training_rows_alone(tmp_path, telemetry, schema):
    featurize(telemetry(200), schema, 0.2, tmp_path / "redis")
    train = pd.read_parquet(tmp_path / "redis" / "train.parquet")
    scaling = FeatureScaling.from_json((tmp_path / "redis" / "scaling.json").read_text())
    assert scaling.features.names == ("psi_io_full", "cpu_time", "cpu_quota_cores")
    assert scaling.features.minimum[0] == train.psi_io_full.min()
    assert scaling.target.to_dict() == {"latency_ms": [train.latency_ms.min(), train.latency_ms.max()]}


def test_an_outlier_on_the_test_side_changes_no_scaling(tmp_path, telemetry, schema):
    """Every minimum and maximum, of every feature and the target, above and below."""
    frame, columns = telemetry(200), [*schema.features, *schema.target]
    featurize(frame, schema, 0.2, tmp_path / "before")
    train, test = (pd.read_parquet(tmp_path / "before" / f"{side}.parquet") for side in ("train", "test"))
    on_the_test_side = frame.index[frame.window_start.isin(test.window_start)]
    for column in columns:
        frame[column] = frame[column].astype(float)
        frame.loc[on_the_test_side[0], column] = frame[column].max() * 1000 + 1
        frame.loc[on_the_test_side[1], column] = frame[column].min() - 1000
    featurize(frame, schema, 0.2, tmp_path / "after")
    moved = pd.read_parquet(tmp_path / "after" / "test.parquet")
    texts = [(tmp_path / name / "scaling.json").read_text() for name in ("before", "after")]
    assert texts[0] == texts[1]
    scaling = FeatureScaling.from_json(texts[1])
    ranges = scaling.features.to_dict() | scaling.target.to_dict()
    assert list(ranges) == columns
    for column, (low, high) in ranges.items():
        constant = train[column].min() == train[column].max()
        assert (low, high) == (train[column].min(), train[column].max() + constant)
        assert moved[column].min() < low and moved[column].max() > high


def test_workloads_of_one_window_are_on_the_same_side(tmp_path, telemetry, schema):
    frame = pd.concat([telemetry(100), telemetry(100, "mysql").iloc[::3]], ignore_index=True)
    sides = {}
    for workload in ("redis", "mysql"):
        one = type(schema)(workload, schema.features, schema.target, schema.split_by)
        featurize(frame, one, 0.3, tmp_path / workload)
        sides[workload] = set(pd.read_parquet(tmp_path / workload / "test.parquet").window_start)
    assert sides["mysql"] <= sides["redis"]
    assert sides["mysql"]


def test_the_same_input_gives_the_same_version_and_other_input_another(tmp_path, telemetry, schema):
    frame = telemetry()
    versions = [featurize(frame, schema, 0.2, tmp_path / "a").data_version,
                featurize(frame, schema, 0.2, tmp_path / "b").data_version]
    assert versions[0] == versions[1]
    assert featurize(frame.iloc[1:], schema, 0.2, tmp_path / "c").data_version != versions[0]


@pytest.mark.parametrize("shift", [pd.Timedelta(hours=6), pd.Timedelta(seconds=-7)])
def test_rows_repeated_under_other_times_count_once_and_stay_on_their_side(tmp_path, telemetry, schema, shift):
    frame = telemetry()
    copies = [frame.assign(window_start=frame.window_start + k * shift, environment=f"base{k}") for k in range(20)]
    summary = featurize(frame, schema, 0.2, tmp_path / "once")
    repeated = featurize(pd.concat(copies).sample(frac=1, random_state=0), schema, 0.2, tmp_path / "often")
    quality = json.loads((tmp_path / "often" / "quality.json").read_text())
    assert (repeated.rows, quality["dropped"]) == (summary.rows, {"repeated rows": 19 * len(frame)})
    train, test = (set(pd.read_parquet(tmp_path / "often" / f"{side}.parquet").latency_ms)
                   for side in ("train", "test"))
    assert not train & test and len(train) + len(test) == len(frame)


def test_a_row_stays_where_it_is_when_others_join(tmp_path, telemetry, schema):
    frame = telemetry(400)
    later = pd.concat([frame, frame.iloc[:200].assign(window_start=frame.window_start[:200] + pd.Timedelta(days=9))])
    for name, rows in (("half", frame.iloc[:200]), ("whole", frame), ("with copies", later)):
        featurize(rows, schema, 0.2, tmp_path / name)
    half, whole, copied = (set(pd.read_parquet(tmp_path / name / "test.parquet").latency_ms)
                           for name in ("half", "whole", "with copies"))
    assert half == whole & set(frame.latency_ms[:200]) and copied == whole


def test_a_folder_is_replaced_whole(tmp_path, telemetry, schema):
    folder = tmp_path / "redis"
    folder.mkdir()
    (folder / "stale").write_text("")
    featurize(telemetry(), schema, 0.2, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["quality.json", "scaling.json", "test.parquet",
                                                              "train.parquet"]
    assert [path.name for path in tmp_path.iterdir()] == ["redis"]


def test_a_failure_to_write_leaves_the_old_folder(tmp_path, telemetry, schema, monkeypatch):
    folder = tmp_path / "redis"
    featurize(telemetry(), schema, 0.2, folder)
    before = (folder / "scaling.json").read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    with pytest.raises(OSError, match="No space left"):
        featurize(telemetry(), schema, 0.2, folder)
    assert (folder / "scaling.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["redis"]


def test_a_constant_feature_gets_a_range(tmp_path, telemetry, schema):
    featurize(telemetry().assign(cpu_quota_cores=2.0), schema, 0.2, tmp_path / "redis")
    scaling = FeatureScaling.from_json((tmp_path / "redis" / "scaling.json").read_text())
    assert scaling.features.to_dict()["cpu_quota_cores"] == [2.0, 3.0]


@pytest.mark.parametrize(("change", "message"), [
    (lambda frame: frame.rename(columns={"psi_io_full": "psi_io_ful"}), "column 'psi_io_full', .*'psi_io_ful'?"),
    (lambda frame: frame.iloc[:0], "workload must have rows"),
    (lambda frame: frame.assign(cpu_time=np.where(frame.index == 7, np.nan, 0.1)), "got nan at row 7 .*1 of 120"),
    (lambda frame: frame.assign(latency_ms=np.inf), "got inf at row 0 .*120 of 120"),
    (lambda frame: frame.assign(cpu_time="x"), "column 'cpu_time' must hold numbers"),
    (lambda frame: frame.assign(environment=None), "column 'environment' must hold a value in every row"),
    (lambda frame: frame.iloc[:1], "split must leave groups on both sides"),
])
def test_bad_rows_are_refused_and_nothing_is_written(tmp_path, telemetry, schema, change, message):
    with pytest.raises(InputError, match=message):
        featurize(change(telemetry()), schema, 0.2, tmp_path / "redis")
    assert not list(tmp_path.iterdir())
