"""Where telemetry comes from: Prometheus, files, this host."""
