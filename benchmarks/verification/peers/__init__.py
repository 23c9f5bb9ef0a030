"""Other verifiers on our monotonicity questions, each behind the same `solve`; campaign_child.py runs them."""
