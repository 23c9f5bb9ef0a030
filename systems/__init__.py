"""Controlled systems: one folder each, whole, from training to acting."""
