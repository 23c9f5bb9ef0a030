"""The tables of a data set that is written again: a write that fails leaves the old ones."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from recording import dataset
from recording.data_card import keep_host
from recording.dataset import write_dataset
from recording.plan import Combination
from recording.raw_folder import Outcome, RawFolder
from recording.scaling import dataset as scaling_dataset
from recording.scaling.dataset import Tables, write_scaling_dataset
from recording.scaling.raw_trials import RawTrials
from recording.scaling.settings import ScalingSettings
from recording.settings import CampaignSettings

Write = Callable[[pd.DataFrame], object]


@pytest.fixture
def write_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the data set whose one combination has these samples."""
    folder = RawFolder(tmp_path / "raw", CampaignSettings(), resume=False)
    keep_host(folder.path, [], begun=False)
    folder.write(Outcome("base-0", {}, 1.0, 2.0, 0.5, "", {}), pd.DataFrame(index=pd.DatetimeIndex([], tz="UTC")), {})
    monkeypatch.setattr(dataset, "make_card", lambda *_: {"recorder_core_share": {"sum": 0.0}})
    monkeypatch.setattr(dataset, "card_text", lambda card: "")

    def write(samples: pd.DataFrame) -> object:
        monkeypatch.setattr(dataset, "clean_raw", lambda *_: samples)
        return write_dataset(CampaignSettings(), [Combination("base-0", (), ())], folder, tmp_path / "out", "")

    return write


@pytest.fixture
def write_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the scaling data set that has these points, windows and events."""
    raw = RawTrials(tmp_path / "raw", ScalingSettings(), resume=False)
    keep_host(raw.path, [], begun=False)
    monkeypatch.setattr(scaling_dataset, "scaling_card", lambda *_: {})
    monkeypatch.setattr(scaling_dataset, "scaling_card_text", lambda card: "")

    def write(rows: pd.DataFrame) -> object:
        monkeypatch.setattr(scaling_dataset, "make_tables", lambda *_: Tables(rows, rows, rows))
        return write_scaling_dataset(ScalingSettings(), [], raw, tmp_path / "out", "")

    return write


@pytest.mark.parametrize(("fixture", "tables"), [("write_samples", ["samples"]),
                                                 ("write_points", ["points", "windows", "events"])])
def test_a_failed_write_leaves_the_old_tables_and_nothing_else(
    fixture: str, tables: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    write = request.getfixturevalue(fixture)
    old, new = (pd.DataFrame({"combination": ["base-0"], "latency_ms": [value]}) for value in (1.0, 2.0))
    write(old)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted([f"{table}.parquet" for table in tables] + ["card.json", "README.md"])

    def fill_the_disk(frame: pd.DataFrame, path: Path, **_: object) -> None:
        Path(path).write_bytes(b"PAR1 a half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(pd.DataFrame, "to_parquet", fill_the_disk)
        write(new)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    for table in tables:
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / f"{table}.parquet"), old)
    write(new)
    for table in tables:
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / f"{table}.parquet"), new)
