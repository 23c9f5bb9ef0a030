"""Telemetry that comes with Assay, in data/."""

from pathlib import Path

DEFAULT_TELEMETRY = Path(__file__).resolve().parent.parent / "data" / "base" / "samples.parquet"
