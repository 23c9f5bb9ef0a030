"""What stands beside a controller: bundles, sessions, registry, ledger. No torch."""
