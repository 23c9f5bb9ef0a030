"""All leaves of split trees at once."""

from typing import Any

import numpy as np

from models.verification.checker.check import leaf_boxes


def all_leaves(dimension: Any, value: Any, lower: np.ndarray, upper: np.ndarray, together: int = 3
               ) -> tuple[np.ndarray, ...]:
    """Walls and roots, as `leaf_boxes` gives them, in one array each."""
    found = list(leaf_boxes(dimension, value, lower, upper, together))
    assert all(len(part[0]) <= together for part in found)
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
