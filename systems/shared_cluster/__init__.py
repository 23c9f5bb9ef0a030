"""Many functions on one cluster, each with an agent of its own that sets its share of the cores (SIMPPO)."""
