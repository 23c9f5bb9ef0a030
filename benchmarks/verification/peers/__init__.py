"""Other verifiers on our monotonicity questions, each behind the same `solve`; peer_process.py runs them."""
