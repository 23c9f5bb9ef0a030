"""Raw data of a scaling campaign on disk: one folder for each finished trial, so that a kill loses one at most.

settings.json                 the campaign's settings; a resumed campaign must have the same
host.json                     machine and versions (recording/data_card.py); a resumed campaign must have the same
<server>-demand.json          CPU seconds of a request, measured before the trials
<trial>/trial.json            what happened
<trial>/requests.npz          what became of each request
<trial>/samples.parquet       the counters
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from feature_store.whole_files import whole_folder, write_file
from recording.raw_folder import open_raw_folder
from recording.scaling.meters import Sample
from recording.scaling.open_loop import Result, read_result
from recording.scaling.settings import ScalingSettings


@dataclass(frozen=True)
class Event:
    """A start or a resize.

    Attributes:
        what: start, quota, workers or instance.
        value: number of the instance that started, the new quota, or the new number of workers.
        at_s: when it was asked for, s after the trial's start.
        took_s: until it was done; for an instance, until its first useful answer, s.
    """

    what: str
    value: float
    at_s: float
    took_s: float


@dataclass(frozen=True)
class TrialOutcome:
    """What happened in a trial.

    Attributes:
        identifier: the trial.
        started_unix_s: its start, Unix s.
        start_s: its start, s of CLOCK_MONOTONIC, the clock of the samples.
        demand_s: CPU seconds of a request that its load was planned with.
        quota_cores: quota of an instance; NaN where this host has none.
        attempts: how often it was recorded; the least disturbed attempt is this one.
        events: starts and resizes.
    """

    identifier: str
    started_unix_s: float
    start_s: float
    demand_s: float
    quota_cores: float
    attempts: int
    events: tuple[Event, ...]


class RawTrials:
    """Writes and reads the raw data of one campaign."""

    def __init__(self, path: Path, settings: ScalingSettings, *, resume: bool) -> None:
        """Opens `path`, or makes it. Raises InputError as `open_raw_folder` does."""
        self.path = path
        open_raw_folder(path, json.loads(json.dumps(asdict(settings))), resume=resume)

    def has(self, identifier: str) -> bool:
        """Whether the trial is finished."""
        return (self.path / identifier / "trial.json").exists()

    def write(self, outcome: TrialOutcome, result: Result, samples: Sequence[Sample]) -> None:
        """Writes one finished trial; it appears as a whole or not at all."""
        with whole_folder(self.path / outcome.identifier) as new:
            np.savez_compressed(new / "requests.npz", **vars(result))
            pd.DataFrame([asdict(sample) for sample in samples]).to_parquet(new / "samples.parquet", index=False)
            (new / "trial.json").write_text(json.dumps(asdict(outcome), indent=2))

    def outcome(self, identifier: str) -> TrialOutcome:
        """What happened in a finished trial."""
        values = json.loads((self.path / identifier / "trial.json").read_text())
        return TrialOutcome(**{**values, "events": tuple(Event(**event) for event in values["events"])})

    def result(self, identifier: str) -> Result:
        """What became of the requests of a finished trial."""
        return read_result(self.path / identifier / "requests.npz")

    def samples(self, identifier: str) -> list[Sample]:
        """Counters of a finished trial, in order."""
        table = pd.read_parquet(self.path / identifier / "samples.parquet")
        return [Sample(**{str(name): value for name, value in row.items()}) for row in table.to_dict("records")]

    def demand_s(self, server: str) -> float | None:
        """CPU seconds of a request to `server`, where they have been measured."""
        file = self.path / f"{server}-demand.json"
        return float(json.loads(file.read_text())["demand_s"]) if file.exists() else None

    def write_demand(self, server: str, demand_s: float) -> None:
        """Keeps what was measured."""
        write_file(self.path / f"{server}-demand.json", json.dumps({"demand_s": demand_s}))
