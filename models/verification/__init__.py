"""Specifications, bounds, search, falsification, certificates and their checker."""
