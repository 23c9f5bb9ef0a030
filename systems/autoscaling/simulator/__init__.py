"""Thousands of applications under load as one tensor operation a step: what policies are trained in."""
