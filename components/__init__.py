"""Pipeline steps: read artifacts, one call, write artifacts."""
