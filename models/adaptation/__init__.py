"""Few-shot prediction: what a new workload takes under configurations, from one to a few measured runs of it."""
