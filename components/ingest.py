"""ingest: telemetry of any source -> a row an observation, a file a workload (feature_store/samples.py)."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from components.kind import task_and_kind
from components.progress import step
from feature_store.origin import Origin
from feature_store.samples import write_samples
from feature_store.sources.data_set import Part, is_data_set, parts_of
from feature_store.sources.files import has_synthetic_time
from feature_store.sources.object_store import as_local
from feature_store.sources.production import is_prometheus
from feature_store.sources.prometheus_api import shown_address
from models.tasks.kind import Kind, OnProgress, workload_column


def run_ingest(task_yaml: str, telemetry: str, mapping_yaml: str, output: Path,
               workloads: Sequence[str] = ()) -> dict[str, Any]:
    """Reads the telemetry and writes it to the folder `output`.

    Args:
        telemetry: path of a Parquet or CSV file, or of a folder of Parquet files (sources/data_set.py), the s3://
            address of one, or the address of a Prometheus server.
        mapping_yaml: for a file, how its columns map; for Prometheus, the metric map; "" for none.
        workloads: of a data set whose paths name workloads, the ones to read; none: all.
    """
    with step("ingest", workloads) as progress:
        return ingest_samples(*task_and_kind(task_yaml), telemetry, mapping_yaml, output, workloads, progress)


def ingest_samples(task: Any, kind: Kind, telemetry: str, mapping_yaml: str, output: Path,
                   workloads: Sequence[str] = (), progress: OnProgress = lambda _: None) -> dict[str, Any]:
    """As run_ingest, of a task that is read. Returns the content of source.json."""
    output.mkdir(parents=True, exist_ok=True)
    name = shown_address(telemetry) if is_prometheus(telemetry) else Path(telemetry).name
    try:
        if not is_data_set(telemetry):
            return write_samples(_whole(task, kind, telemetry, mapping_yaml, output), name, output)
        parts = parts_of(telemetry, workload_column(kind, mapping_yaml))
        others = {part.workload for part in parts if part.workload and workloads} - set(workloads)
        own = [part for part in parts if part.workload not in others]
        tables = _parts(task, kind, own or parts[:1], mapping_yaml, output, progress)
        return write_samples(tables if own else (table[:0] for table in tables), name, output, in_time=True,
                             others=others)
    except BaseException:
        shutil.rmtree(output)  # half of it must not be taken for the whole
        raise


def _whole(task: Any, kind: Kind, telemetry: str, mapping_yaml: str, output: Path) -> Iterator[pd.DataFrame]:
    with as_local(telemetry) as local:
        yield kind.ingest(task, local, mapping_yaml, output)


def _parts(task: Any, kind: Kind, parts: Sequence[Part], mapping_yaml: str, output: Path,
           progress: OnProgress) -> Iterator[pd.DataFrame]:
    """What the kind makes of each file of a data set, its records counted on."""
    origin = Origin()
    for number, part in enumerate(parts, 1):
        progress({"done": number / len(parts), "said": f"file {number:,} of {len(parts):,}"})
        with as_local(part.address) as local:
            table = kind.ingest(task, local, mapping_yaml, output)
        if has_synthetic_time(table):
            table = table.assign(window_start=table["window_start"] + pd.Timedelta(part.before, "s"))
        origin = origin.joined(Origin.read(output), part.before, part.name)
        yield table.set_axis(table.index + part.before)
    origin.write(output)
