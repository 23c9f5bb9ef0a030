"""MinMax scaling: the statistics that turn raw units into 0..1 and back.

Flow: features.py fits it on the training rows alone; training works on scaled values; the export puts the
same numbers into the ONNX graph, so that a controller feeds raw units.

    x [rows, k]   raw units
    u [rows, k]   (x - minimum) / (maximum - minimum), 0..1 on the training rows

Source: vPALs, section "Data processing pipeline" ("MinMax scaling to pre-process data points").
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError


@dataclass(frozen=True)
class MinMaxScaling:
    """The range of each of k columns, in order. A constant column c has the range [c, c + 1]."""

    names: tuple[str, ...]
    minimum: tuple[float, ...]
    maximum: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.minimum) == len(self.maximum):
            raise InputError(f"scaling must have one range per column, got {self}")
        for name, low, high in zip(self.names, self.minimum, self.maximum, strict=True):
            if not (math.isfinite(high - low) and low < high):
                raise InputError(f"range of a column must be finite and not empty, got [{low}, {high}] "
                                 f"({name})")

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, names: Sequence[str]) -> "MinMaxScaling":
        """The ranges of the columns `names` of a frame without missing values, in that order.

        Raises:
            InputError: a column has no finite range.
        """
        low = [float(frame[name].min()) for name in names]
        high = [float(frame[name].max()) for name in names]
        return cls(tuple(names), tuple(low), tuple(_above(a, b) for a, b in zip(low, high, strict=True)))

    @classmethod
    def from_dict(cls, ranges: Mapping[str, Sequence[float]]) -> "MinMaxScaling":
        """The inverse of to_dict."""
        try:
            pairs = {str(name): (float(low), float(high)) for name, (low, high) in ranges.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError("ranges must be a mapping of name to [minimum, maximum], "
                             f"got {ranges!r} (scaling)") from error
        low, high = zip(*pairs.values(), strict=True) if pairs else ((), ())
        return cls(tuple(pairs), low, high)

    def to_dict(self) -> dict[str, list[float]]:
        """{name: [minimum, maximum]} in order: the form of scaling.json."""
        ranges = zip(self.names, self.minimum, self.maximum, strict=True)
        return {name: [low, high] for name, low, high in ranges}

    def scale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Raw values [rows, k] to scaled ones; outside of the range they leave 0..1."""
        low, span = self._low_and_span()
        return (np.asarray(values, dtype=np.float64) - low) / span

    def unscale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scaled values [rows, k] to raw ones: the inverse of scale, up to rounding."""
        low, span = self._low_and_span()
        return np.asarray(values, dtype=np.float64) * span + low

    def _low_and_span(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low = np.array(self.minimum, dtype=np.float64)
        return low, np.array(self.maximum, dtype=np.float64) - low


@dataclass(frozen=True)
class FeatureScaling:
    """The scaling of a workload's features and of its target: scaling.json."""

    features: MinMaxScaling
    target: MinMaxScaling

    def to_json(self) -> str:
        """{"features": {name: [minimum, maximum]}, "target": {...}}; floats are written exactly."""
        return json.dumps({"features": self.features.to_dict(), "target": self.target.to_dict()}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "FeatureScaling":
        """The inverse of to_json. Raises InputError if `text` is of another form."""
        try:
            data: dict[str, Any] = json.loads(text)
            features, target = data["features"], data["target"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"scaling must be JSON with features and target, got {text[:80]!r}") from error
        return cls(MinMaxScaling.from_dict(features), MinMaxScaling.from_dict(target))


def _above(low: float, high: float) -> float:
    """`high`, or for a constant column low + 1 (the next float where that is further)."""
    return high if high != low else max(low + 1.0, math.nextafter(low, math.inf))
