"""Verified learners beside unverified ones."""
