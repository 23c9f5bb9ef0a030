"""The verifier beside its peers."""
