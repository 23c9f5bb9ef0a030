"""ingest: telemetry of any source -> one table with a row an observation (samples.parquet, source.json)."""

import json
import shutil
from pathlib import Path
from typing import Any

from components.kind import task_and_kind
from components.progress import step
from feature_store.digests import content_digest
from feature_store.sources.production import is_prometheus


def run_ingest(task_yaml: str, telemetry: str, mapping_yaml: str, output: Path) -> dict[str, Any]:
    """Reads the telemetry and writes it to the folder `output`.

    Args:
        telemetry: path of a Parquet or CSV file, or the address of a Prometheus server.
        mapping_yaml: for a file, how its columns map; for Prometheus, the metric map; "" for none.
    """
    with step("ingest"):
        task, kind = task_and_kind(task_yaml)
        output.mkdir(parents=True, exist_ok=True)
        try:
            frame = kind.ingest(task, telemetry, mapping_yaml, output)
        except Exception:
            shutil.rmtree(output)  # half of it must not be taken for the whole
            raise
        frame.to_parquet(output / "samples.parquet", index=False, compression="zstd")
        source = {"telemetry": Path(telemetry).name if not is_prometheus(telemetry) else telemetry,
                  "data_version": content_digest(frame), "rows": len(frame),
                  "workloads": {str(k): int(v) for k, v in frame["workload"].value_counts().sort_index().items()}}
        (output / "source.json").write_text(json.dumps(source, indent=1))
        return source
