"""ingest: telemetry of any source -> one table with a row an observation (samples.parquet, source.json)."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from components.kind import task_and_kind
from components.progress import step
from feature_store.bad_rows import BadRows
from feature_store.digests import content_digest
from feature_store.sources.object_store import as_local
from feature_store.sources.production import is_prometheus

SOURCE = "source.json"


def run_ingest(task_yaml: str, telemetry: str, mapping_yaml: str, output: Path) -> dict[str, Any]:
    """Reads the telemetry and writes it to the folder `output`.

    Args:
        telemetry: path of a Parquet or CSV file, s3:// address of one, or the address of a Prometheus server.
        mapping_yaml: for a file, how its columns map; for Prometheus, the metric map; "" for none.
    """
    with step("ingest"):
        task, kind = task_and_kind(task_yaml)
        output.mkdir(parents=True, exist_ok=True)
        try:
            with as_local(telemetry) as local:
                frame = kind.ingest(task, local, mapping_yaml, output)
        except Exception:
            shutil.rmtree(output)  # half of it must not be taken for the whole
            raise
        return write_samples(frame, Path(telemetry).name if not is_prometheus(telemetry) else telemetry, output)


def write_samples(frame: pd.DataFrame, telemetry: str, output: Path, bad_rows: BadRows | None = None) -> dict[str, Any]:
    """Writes samples.parquet, with the rows' numbers in the source as its index, and source.json, which it returns.

    Args:
        telemetry: name of the file, or address of the server.
        bad_rows: by what policy rows were dropped.
    """
    frame.to_parquet(output / "samples.parquet", compression="zstd")
    source = {"telemetry": telemetry, "data_version": content_digest(frame), "rows": len(frame),
              "workloads": {str(k): int(v) for k, v in frame["workload"].value_counts().sort_index().items()},
              **({"bad_rows": asdict(bad_rows)} if bad_rows else {})}
    (output / SOURCE).write_text(json.dumps(source, indent=1))
    return source
