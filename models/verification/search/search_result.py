"""What a search is given and what it says: limits, its state after a round, how it ended, and a box's judgement.

Symbols: n inputs, m boxes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.verification.network.graph import FloatArray
from models.verification.verdict import BoxTree, Status

# lower, upper (m, n) and root (m,) -> whether each box is proved (m,), and by how much, or by how much it is not (m,)
Check = Callable[[FloatArray, FloatArray, NDArray[np.int64]], tuple[NDArray[np.bool_], FloatArray]]


@dataclass(frozen=True)
class Budget:
    """Limits of a verification: wall seconds, boxes bounded, boxes of one tensor operation (None: by network size).

    hope: a margin below which a search is given up as one that will not end.
    """

    seconds: float = 60.0
    boxes: int = 10_000_000
    batch: int | None = None
    hope: float = -math.inf


@dataclass(frozen=True)
class Progress:
    """State after a round: share of the box proved (0..1), open boxes, worst bound so far, seconds."""

    proved_share: float
    open_boxes: int
    worst_bound: float
    seconds: float


@dataclass(frozen=True)
class SearchResult:
    """How a search ended.

    lower_bound: the worst margin met; NaN where there is none, or nothing is known of a box. tree: the splits of all
    roots in preorder, one root after the other (PROVED only). interrupted: by KeyboardInterrupt, which the caller has
    to act upon: it is not raised again. hopeless: given up for the budget's hope. aside: boxes that rounding leaves
    without a proof, where that ended the search (UNKNOWN only).
    """

    status: Status
    reason: str
    lower_bound: float
    proved_share: float
    boxes: int
    tree: BoxTree | None = None
    interrupted: bool = False
    hopeless: bool = False
    aside: int = 0
