"""The independent checker: plain NumPy, no code of the search."""
