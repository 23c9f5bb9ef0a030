"""Tasks whose workloads are learned from one to a few measured runs each."""
