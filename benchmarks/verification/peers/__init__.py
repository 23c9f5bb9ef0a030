"""Other verifiers on our monotonicity questions, each behind the same `solve`; verification_peers.py runs them."""
