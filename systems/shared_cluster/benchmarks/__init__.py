"""Benchmarks of the shared cluster."""
