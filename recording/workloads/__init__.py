"""One file per recorded workload."""
