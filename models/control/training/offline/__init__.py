"""Learners of trajectories that others made: one file a method."""
