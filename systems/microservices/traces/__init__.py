"""Traces of requests: spans, execution graphs, critical paths, and who is to blame."""
