"""A real service under open-loop load while it runs: what it counts, and a Prometheus that scrapes it."""
