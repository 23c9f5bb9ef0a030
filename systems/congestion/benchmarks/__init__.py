"""Benchmarks of congestion control."""
