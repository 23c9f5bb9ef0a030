"""ingest: telemetry of any source -> a row an observation, a file a workload (feature_store/samples.py)."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from components.kind import task_and_kind
from components.progress import step
from feature_store.errors import InputError
from feature_store.origin import Origin
from feature_store.samples import write_samples
from feature_store.sources.data_set import files_of, has_rows, is_data_set
from feature_store.sources.files import has_synthetic_time
from feature_store.sources.object_store import as_local
from feature_store.sources.production import is_prometheus
from models.tasks.kind import Kind, OnProgress


def run_ingest(task_yaml: str, telemetry: str, mapping_yaml: str, output: Path) -> dict[str, Any]:
    """Reads the telemetry and writes it to the folder `output`.

    Args:
        telemetry: path of a Parquet or CSV file, or of a folder of Parquet files (sources/data_set.py), the s3://
            address of one, or the address of a Prometheus server.
        mapping_yaml: for a file, how its columns map; for Prometheus, the metric map; "" for none.
    """
    with step("ingest") as progress:
        return ingest_samples(*task_and_kind(task_yaml), telemetry, mapping_yaml, output, progress)


def ingest_samples(task: Any, kind: Kind, telemetry: str, mapping_yaml: str, output: Path,
                   progress: OnProgress = lambda _: None) -> dict[str, Any]:
    """As run_ingest, of a task that is read. Returns the content of source.json."""
    output.mkdir(parents=True, exist_ok=True)
    name = telemetry if is_prometheus(telemetry) else Path(telemetry).name
    try:
        return write_samples(_parts(task, kind, telemetry, mapping_yaml, output, progress), name, output,
                             in_time=is_data_set(telemetry))
    except BaseException:
        shutil.rmtree(output)  # half of it must not be taken for the whole
        raise


def _parts(task: Any, kind: Kind, telemetry: str, mapping_yaml: str, output: Path,
           progress: OnProgress) -> Iterator[pd.DataFrame]:
    """What the kind makes of the telemetry; of a data set, what it makes of each file, its records counted on."""
    if not is_data_set(telemetry):
        with as_local(telemetry) as local:
            yield kind.ingest(task, local, mapping_yaml, output)
        return
    origin, before = Origin(), 0
    files = files_of(telemetry)
    for number, address in enumerate(files, 1):
        progress({"done": number / len(files), "said": f"file {number:,} of {len(files):,}"})
        with as_local(address) as local:
            if not has_rows(Path(local)):
                continue
            part = kind.ingest(task, local, mapping_yaml, output)
        if has_synthetic_time(part):
            part = part.assign(window_start=part["window_start"] + pd.Timedelta(before, "s"))
        origin = origin.joined(Origin.read(output), before)
        yield part.set_axis(part.index + before)
        before += int(part.index.max())
    if not before:
        raise InputError(f"telemetry must hold rows, got {len(files):,} files without any ({telemetry})")
    origin.write(output)
