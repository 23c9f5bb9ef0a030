"""The controller as an operator runs it."""
