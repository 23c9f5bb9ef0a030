"""Bounds of values and of slopes over boxes."""
