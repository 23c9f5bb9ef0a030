"""Telemetry: schema, sources, cleaning, expectations, features and splits."""
