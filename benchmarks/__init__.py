"""Benchmarks: one command each, JSON results, Markdown tables made from them."""
