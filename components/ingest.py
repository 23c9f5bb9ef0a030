"""ingest: telemetry of any source -> one table in the canonical schema (samples.parquet, source.json)."""

import json
from pathlib import Path
from typing import Any

import yaml

from components.progress import step
from feature_store.digests import content_digest
from feature_store.mapping import parse_mapping
from feature_store.sources.files import read_telemetry
from feature_store.sources.production import is_prometheus, read_production


def run_ingest(telemetry: str, mapping_yaml: str, output: Path) -> dict[str, Any]:
    """Reads the telemetry and writes it to the folder `output`.

    Args:
        telemetry: path of a Parquet or CSV file, or the address of a Prometheus server.
        mapping_yaml: for a file, how its columns map to the schema; for Prometheus, the metric map; "" for none.
    """
    with step("ingest"):
        if is_prometheus(telemetry):
            frame = read_production(telemetry, yaml.safe_load(mapping_yaml or "{}"))
        else:
            path = Path(telemetry)
            mapping = parse_mapping(yaml.safe_load(mapping_yaml), Path("mapping")) if mapping_yaml else None
            frame = read_telemetry(path, mapping)
        output.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(output / "samples.parquet", index=False, compression="zstd")
        source = {"telemetry": Path(telemetry).name if not is_prometheus(telemetry) else telemetry,
                  "data_version": content_digest(frame), "rows": len(frame),
                  "workloads": {str(k): int(v) for k, v in frame["workload"].value_counts().sort_index().items()}}
        (output / "source.json").write_text(json.dumps(source, indent=1))
        return source
