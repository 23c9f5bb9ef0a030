"""Tasks that control a system: a policy is trained in an environment and sets targets from raw telemetry."""
