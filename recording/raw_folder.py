"""Raw data of a campaign on disk: one folder for each finished combination, so that a kill loses one at most.

settings.json                the campaign's settings; a resumed campaign must have the same
host.json                    machine and versions (recording/data_card.py); a resumed campaign must have the same
<combination>/outcome.json   what ran, from when to when, what crashed, what recording cost
<combination>/metrics.parquet
<combination>/<workload>.log stamped log of the load generator
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from feature_store.errors import InputError
from feature_store.whole_files import whole_folder, write_file
from recording.settings import CampaignSettings


@dataclass(frozen=True)
class Outcome:
    """What happened when a combination ran.

    Attributes:
        identifier: the combination.
        configurations: effective configuration of each workload that ran.
        start_s: when the last workload had started, Unix s.
        end_s: when the recording of the combination ended, Unix s.
        anchor_s: time of a scrape, Unix s.
        problem: what cut the combination short, empty where nothing did.
        core_shares: CPU used by the recorder's processes, share of one core by name.
    """

    identifier: str
    configurations: Mapping[str, Mapping[str, float]]
    start_s: float
    end_s: float
    anchor_s: float
    problem: str
    core_shares: Mapping[str, float]


def open_raw_folder(path: Path, settings: Mapping[str, object], *, resume: bool) -> None:
    """Makes the raw folder of a campaign, or opens it to go on or to write its data set.

    Raises:
        InputError: where it holds a campaign and `resume` is false, or none or one with other settings and it is true.
    """
    marker = path / "settings.json"
    wanted = json.dumps(settings, indent=2)
    if marker.exists():
        if not resume:
            raise InputError(f"raw folder must be empty, got a campaign ({path}): pass --resume or remove it")
        if marker.read_text() != wanted:
            raise InputError(f"resumed campaign must have the settings it began with, got others ({path})")
    elif resume:
        raise InputError(f"raw folder must hold a campaign, got no settings.json ({path}): name its folder, or leave "
                         "out --resume and --write-only to begin one")
    else:
        path.mkdir(parents=True, exist_ok=True)
        write_file(marker, wanted)


class RawFolder:
    """Writes and reads the raw data of one campaign."""

    def __init__(self, path: Path, settings: CampaignSettings, *, resume: bool) -> None:
        """Opens `path`, or makes it. Raises InputError as `open_raw_folder` does."""
        self.path = path
        open_raw_folder(path, asdict(settings), resume=resume)

    def has(self, identifier: str) -> bool:
        """Whether the combination is finished."""
        return (self.path / identifier / "outcome.json").exists()

    def write(self, outcome: Outcome, metrics: pd.DataFrame, logs: Mapping[str, Path]) -> None:
        """Writes one finished combination; it appears as a whole or not at all."""
        with whole_folder(self.path / outcome.identifier) as new:
            metrics.to_parquet(new / "metrics.parquet")
            for name, log in logs.items():
                shutil.copyfile(log, new / f"{name}.log")
            (new / "outcome.json").write_text(json.dumps(asdict(outcome), indent=2))

    def outcome(self, identifier: str) -> Outcome:
        """What happened in a finished combination."""
        return Outcome(**json.loads((self.path / identifier / "outcome.json").read_text()))

    def metrics(self, identifier: str) -> pd.DataFrame:
        """Machine metrics of a finished combination."""
        return pd.read_parquet(self.path / identifier / "metrics.parquet")

    def log(self, identifier: str, workload: str) -> str:
        """Stamped log of one workload in a finished combination; empty where its load never started."""
        log = self.path / identifier / f"{workload}.log"
        return log.read_text(encoding="utf-8") if log.exists() else ""
