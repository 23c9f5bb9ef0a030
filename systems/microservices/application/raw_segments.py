"""Raw data of a campaign on disk: one folder for each finished segment, so that a kill loses one at most.

settings.json             what all segments of the campaign have in common
host.json                 machine and versions (recording/data_card.py); a resumed campaign must have the same
segment-<number>/segment.json    what happened
segment-<number>/traces.otlp     spans as the SDK exported them (TracesData, protobuf)
segment-<number>/requests.npz    what became of each request, names.npy which type it had
segment-<number>/used.parquet    counters of the control groups
"""

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from feature_store.whole_files import whole_folder
from recording.raw_folder import open_raw_folder
from systems.microservices.application.anomalies import Anomaly
from systems.microservices.application.settings import ApplicationSettings


@dataclass(frozen=True)
class Segment:
    """What happened in a segment.

    Attributes:
        number: of the segment.
        start_unix_s: its start, Unix s.
        anomalies: what was injected, at the times (s after the start) at which it was.
        traces: the first half of the trace ids, 16 hexadecimal digits; the other is the number of the request, from 1.
    """

    number: int
    start_unix_s: float
    anomalies: tuple[Anomaly, ...]
    traces: str


class RawSegments:
    """Writes and reads the raw data of one campaign."""

    def __init__(self, path: Path, settings: ApplicationSettings, *, resume: bool) -> None:
        """Opens `path`, or makes it. Raises InputError as `open_raw_folder` does."""
        self.path = path
        open_raw_folder(path, settings.identity(), resume=resume)

    def folder(self, number: int) -> Path:
        """Of a segment."""
        return self.path / f"segment-{number:03d}"

    def has(self, number: int) -> bool:
        """Whether the segment is finished."""
        return (self.folder(number) / "segment.json").exists()

    def new(self, number: int) -> AbstractContextManager[Path]:
        """An empty folder for a segment, which appears as a whole or not at all."""
        return whole_folder(self.folder(number))

    def segments(self) -> list[Segment]:
        """All that are finished, in order."""
        return [read_segment(file) for file in sorted(self.path.glob("segment-*/segment.json"))]


def write_segment(segment: Segment, folder: Path) -> None:
    """Into the segment's folder."""
    (folder / "segment.json").write_text(json.dumps(asdict(segment), indent=2))


def read_segment(file: Path) -> Segment:
    """The reverse of `write_segment`."""
    values = json.loads(file.read_text())
    return Segment(**{**values, "anomalies": tuple(Anomaly(**one) for one in values["anomalies"])})
