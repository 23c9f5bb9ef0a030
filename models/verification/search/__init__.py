"""Branch and bound over input boxes."""
