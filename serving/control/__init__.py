"""A controller that acts: observe, check, decide, shield, act, log."""
