"""Typed outcome of a verification: DESIGN "verdict". Only PROVED may be promoted.

Symbols: n inputs; a witness is a pair of points (n,) in the network's coordinates; a tree of boxes
is stored in preorder, (m,) split dimensions (-1: a leaf) and (m,) split values.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.verification.language.specification import FloatArray


class Status(StrEnum):
    """PROVED, REFUTED (a witness that replays), UNKNOWN, TIMEOUT, ERROR."""

    PROVED = "PROVED"
    REFUTED = "REFUTED"
    UNKNOWN = "UNKNOWN"
    TIMEOUT = "TIMEOUT"
    ERROR = "ERROR"


@dataclass(frozen=True)
class Witness:
    """Two points ordered in one feature at which the outputs stand in the wrong order.

    low, high: (n,), equal but for `feature`, low[feature] < high[feature]; output_low, output_high: f there;
    excess: by how much the violation exceeds the tolerance, scaled output units, > 0; output: which of the outputs.
    """

    feature: int
    sign: int
    low: FloatArray
    high: FloatArray
    output_low: float
    output_high: float
    excess: float
    output: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values for evidence files."""
        return {"feature": self.feature, "sign": self.sign, "low": self.low.tolist(), "high": self.high.tolist(),
                "output_low": self.output_low, "output_high": self.output_high, "excess": self.excess,
                "output": self.output}


@dataclass(frozen=True)
class BoxTree:
    """Binary splits of the box, preorder. split_dimension: (m,) int16, -1 for a leaf; split_value: (m,) float64."""

    split_dimension: NDArray[np.int16]
    split_value: FloatArray

    @property
    def leaves(self) -> int:
        """Number of leaf boxes."""
        return int((self.split_dimension < 0).sum())


@dataclass(frozen=True)
class Verdict:
    """What `verify` found, and how far it came.

    lower_bound: smallest signed partial derivative bound over the boxes looked at, scaled units (NaN: none yet);
    proved_share: share of the box's volume that is proved, 0..1; seconds: wall time; boxes: boxes bounded;
    witnesses: counterexamples, most violated first (REFUTED only); tree: the leaves of the proof (PROVED only).
    """

    status: Status
    reason: str
    lower_bound: float = float("nan")
    proved_share: float = 0.0
    seconds: float = 0.0
    boxes: int = 0
    witnesses: tuple[Witness, ...] = ()
    tree: BoxTree | None = None

    def to_json(self) -> dict[str, Any]:
        """Summary for evidence files: the tree goes into the certificate, at most five witnesses are listed."""
        bound = None if np.isnan(self.lower_bound) else float(self.lower_bound)
        return {"status": str(self.status), "reason": self.reason, "lower_bound": bound,
                "proved_share": self.proved_share, "seconds": self.seconds, "boxes": self.boxes,
                "leaves": self.tree.leaves if self.tree else 0,
                "witnesses": [witness.to_json() for witness in self.witnesses[:5]]}
