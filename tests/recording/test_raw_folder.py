"""Raw folders: whole combinations or none, and no mixing of campaigns."""

from pathlib import Path

import pandas as pd
import pytest

from feature_store.errors import InputError
from recording.raw_folder import Outcome, RawFolder
from recording.settings import CampaignSettings

OUTCOME = Outcome("base-0", {"redis": {"cpu_quota_cores": 1.0}}, 1.0, 2.0, 0.5, "", {"recorder": 0.01})


def test_a_written_combination_reads_back(tmp_path: Path) -> None:
    folder = RawFolder(tmp_path / "raw", CampaignSettings(), resume=False)
    metrics = pd.DataFrame({"cpu_time": [0.5]}, index=pd.to_datetime([1.0], unit="s", utc=True))
    (tmp_path / "redis.log").write_text("1.000000 hello\n")
    assert not folder.has("base-0")
    folder.write(OUTCOME, metrics, {"redis": tmp_path / "redis.log"})
    assert folder.has("base-0")
    assert folder.outcome("base-0") == OUTCOME
    pd.testing.assert_frame_equal(folder.metrics("base-0"), metrics)
    assert folder.log("base-0", "redis") == "1.000000 hello\n"
    assert folder.log("base-0", "nginx") == ""


def test_a_half_written_combination_does_not_count(tmp_path: Path) -> None:
    folder = RawFolder(tmp_path, CampaignSettings(), resume=False)
    (tmp_path / ".base-0.part").mkdir()
    (tmp_path / ".base-0.part" / "outcome.json").write_text("{")
    assert not folder.has("base-0")
    folder.write(OUTCOME, pd.DataFrame(index=pd.DatetimeIndex([], tz="UTC")), {})
    assert folder.has("base-0")


def test_a_campaign_is_resumed_only_on_request_and_with_its_settings(tmp_path: Path) -> None:
    RawFolder(tmp_path, CampaignSettings(seed=1), resume=False)
    RawFolder(tmp_path, CampaignSettings(seed=1), resume=True)
    with pytest.raises(InputError, match="pass --resume"):
        RawFolder(tmp_path, CampaignSettings(seed=1), resume=False)
    with pytest.raises(InputError, match="must have the settings it began with"):
        RawFolder(tmp_path, CampaignSettings(seed=2), resume=True)


def test_a_folder_without_a_campaign_is_not_resumed_and_stays_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must hold a campaign, got no settings.json \(.*wrong\)"):
        RawFolder(tmp_path / "wrong", CampaignSettings(), resume=True)
    assert list(tmp_path.iterdir()) == []
