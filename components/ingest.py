"""ingest: telemetry of any source -> one table in the canonical schema (samples.parquet, source.json)."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from components.progress import step
from feature_store.digests import content_digest
from feature_store.mapping import parse_mapping
from feature_store.measurement_mapping import is_measurement_mapping, parse_measurement_mapping
from feature_store.measurements import load_measurements
from feature_store.sources.files import read_telemetry
from feature_store.sources.production import is_prometheus, read_production
from feature_store.sources.production_map import ProductionMap
from feature_store.strict_yaml import parse_yaml
from feature_store.written.model import parse_written
from models.tasks.few_shot.model_inputs import samples_of

MEASUREMENTS = "measurements.parquet"


def run_ingest(telemetry: str, mapping_yaml: str, output: Path) -> dict[str, Any]:
    """Reads the telemetry and writes it to the folder `output`.

    Args:
        telemetry: path of a Parquet or CSV file, or the address of a Prometheus server.
        mapping_yaml: for a file, how its columns map to the schema, or are measurements of workloads under
            configurations; for Prometheus, the metric map; "" for none.
    """
    with step("ingest"):
        if is_prometheus(telemetry):
            production = parse_written(ProductionMap, mapping_yaml or "{}", "metric map", "mapping")
            frame = read_production(telemetry, production)
        else:
            path, content = Path(telemetry), parse_yaml(mapping_yaml, "mapping", "mapping")
            if is_measurement_mapping(content):
                frame = _measurements(path, content, output)
            else:
                frame = read_telemetry(path, parse_mapping(content, Path("mapping")) if mapping_yaml else None)
        output.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(output / "samples.parquet", index=False, compression="zstd")
        source = {"telemetry": Path(telemetry).name if not is_prometheus(telemetry) else telemetry,
                  "data_version": content_digest(frame), "rows": len(frame),
                  "workloads": {str(k): int(v) for k, v in frame["workload"].value_counts().sort_index().items()}}
        (output / "source.json").write_text(json.dumps(source, indent=1))
        return source


def _measurements(path: Path, mapping: Any, output: Path) -> pd.DataFrame:
    """Keeps the measurements as they are beside the samples, with their mapping and what a reader should know."""
    measurements = load_measurements(path, parse_measurement_mapping(mapping, "mapping"))
    output.mkdir(parents=True, exist_ok=True)
    measurements.frame.to_parquet(output / MEASUREMENTS, index=False, compression="zstd")
    (output / "measurements.yaml").write_text(yaml.safe_dump(mapping, sort_keys=False))
    (output / "measurements.json").write_text(json.dumps(
        {"failed": dict(measurements.failed), "only_failed": measurements.only_failed, "flags": measurements.flags}))
    return samples_of(measurements)
