"""Environments of the tests."""
