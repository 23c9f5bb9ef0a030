"""The environment of autoscaling: its physics against a simulation of single requests, and its speed."""
