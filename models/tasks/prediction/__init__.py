"""Prediction: a quantity of a workload, from telemetry of the workload itself."""
