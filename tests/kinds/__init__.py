"""Kinds of task of the tests."""
