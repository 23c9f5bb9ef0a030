"""Predictions over HTTP: champions behind the Open Inference Protocol, and an extender of a Kubernetes scheduler."""
