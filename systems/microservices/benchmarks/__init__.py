"""Benchmarks of microservices."""
