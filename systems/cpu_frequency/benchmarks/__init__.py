"""Benchmarks of CPU frequency."""
