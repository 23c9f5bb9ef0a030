"""Few-shot prediction beside its baselines."""
