"""Telemetry of scaling: real servers under open-loop load, by CPU quota, workers and instances."""
