"""Learners that act while they learn: one file a method."""
