"""Supervised training, pretraining and the counterexample-guided loop."""
