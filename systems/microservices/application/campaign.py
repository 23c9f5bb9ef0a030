"""A campaign on the application: prepare, start, record every segment, stop, write the data set.

`assay record --task <this system>` finds this file by its place, systems/<name>/application/campaign.py, and calls
`record` (docs/reference/microservices-application.md).
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from feature_store.errors import MissingToolError, SourceError
from recording.data_card import keep_host, read_host
from recording.engine import Campaign, ProgressEvent
from recording.processes import Guard
from recording.tools import require_tools
from systems.microservices.application.data_card import write_card
from systems.microservices.application.dataset import make_tables, write_tables
from systems.microservices.application.raw_segments import RawSegments, write_segment
from systems.microservices.application.receiver import Receiver, TracesFile
from systems.microservices.application.running import TOOLS, Application, prepare_stores
from systems.microservices.application.segment_run import record_segment
from systems.microservices.application.settings import ApplicationSettings

__all__ = ["ApplicationSettings", "record"]


@dataclass(frozen=True)
class ApplicationSummary:
    """What a campaign gave: rows of the tables, and segments that were planned and have no data."""

    spans: int
    metrics: int
    anomalies: int
    missing: int
    files: tuple[Path, ...]


def record(
    settings: ApplicationSettings,
    destination: Path,
    on_progress: Callable[[ProgressEvent], None],
    *,
    raw: Path | None = None,
    resume: bool = False,
    write_only: bool = False,
    scratch: Path | None = None,
    command: str,
) -> ApplicationSummary:
    """Records the segments that are missing and writes the data set of all that are there.

    Args:
        settings: what to record.
        destination: folder of the data set.
        on_progress: called for everything worth telling.
        raw: folder of the raw data; `destination`/raw where None.
        resume: go on with the campaign in `raw`.
        write_only: record nothing more; write the data set of what is finished in `raw`.
        scratch: parent of the temporary folder; on the disk whose use is recorded.
        command: the command line to write into the data card.

    Raises:
        MissingToolError: where a program is not installed.
        InputError: where `raw` holds another campaign, none to go on with, or one that began on another machine.
        SourceError: where a program of the application does not start or ends, or no segment is finished.
    """
    # Absolute: the programs that write there work in a folder of their own.
    folder = RawSegments((raw or destination / "raw").absolute(), settings, resume=resume or write_only)
    campaign = Campaign(range(settings.segments), folder.has, on_progress)
    if not write_only and not all(map(folder.has, campaign.plan)):
        require_tools(TOOLS)
        _require_exporter()
        keep_host(folder.path, TOOLS, ("opentelemetry-sdk",), begun=bool(folder.segments()))
        campaign.record_missing(partial(_record, campaign, settings, folder), scratch, "stopping the application")
    if not (segments := folder.segments()):
        raise SourceError(f"campaign: expected finished segments, got none ({folder.path})")
    host, tables = read_host(folder.path), make_tables(settings, folder)
    files = (*write_tables(tables, destination), *write_card(settings, segments, tables, host, destination, command))
    summary = ApplicationSummary(
        **{name: len(table) for name, table in tables.named().items()},
        missing=sum(not folder.has(number) for number in campaign.plan), files=files)
    campaign.tell("done", f"{summary.spans} spans and {summary.anomalies} anomalies in {destination}")
    return summary


def _require_exporter() -> None:
    try:
        importlib.import_module("opentelemetry.exporter.otlp.proto.http")
    except ImportError:
        raise MissingToolError("recording an application must have OpenTelemetry's exporter, got none: "
                               "pip install 'assay[recording]'") from None


def _record(campaign: Campaign[int], settings: ApplicationSettings, folder: RawSegments, guard: Guard,
            left: list[int]) -> None:
    campaign.tell("prepare", "filling the databases")
    homes = prepare_stores(guard)
    campaign.tell("prepare", "starting the application")
    traces = TracesFile(guard.folder / "warm-up.otlp")
    with Receiver(traces.keep) as receiver, Application(guard, homes, receiver.url) as application:
        if lacking := application.containers.lacking:
            campaign.tell("warning", "control groups are not writable here: recording without limits and counters of "
                                     f"{lacking}")
        for number in left:
            with folder.new(number) as new:
                segment = record_segment(application, traces, settings, number, new)
                write_segment(segment, new)
            campaign.tell("segment", f"{number}: {len(segment.anomalies)} anomalies")
