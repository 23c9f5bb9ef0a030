"""What training saw, as a contract says it: a live observation beyond it is out of distribution.

    "seen": {"margin": 1.5, "ranges": [
        {"name": "load a core", "scale": "log", "terms": {"rate_rps": 1, "replicas": -1, "cpu_limit_cores": -1},
         "minimum": 45.7, "maximum": 3280},
        {"name": "served_share", "scale": "linear", "terms": {"served_share": 1}, "minimum": 0.32, "maximum": 1}]}

A range is of a product of powers of inputs (log) or of a sum of multiples of them (linear), raw units. The margin, a
factor >= 1, is what may lie beyond: a product by that factor, a sum by SHARE of what its inputs can be for each whole
that the factor is more than 1 (at 1.5: 5 %). No ranges: nothing is known, and nothing is out of distribution.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from feature_store.finite_numbers import is_finite_number
from feature_store.names import check_label

SHARE = 0.1
_WHERE = "contract.json, driving, seen"
_KEYS = {"margin", "ranges"}
_RANGE_KEYS = {"name", "scale", "terms", "minimum", "maximum"}
_LEAST = 1e-300  # in place of what has no logarithm
_EXACT = 1e-6  # by which arithmetic may miss an end


@dataclass(frozen=True)
class SeenRange:
    """One range.

    Attributes:
        name: as messages and metrics name it.
        scale: log: product of input ** coefficient; linear: sum of coefficient * input.
        terms: input -> coefficient.
        minimum, maximum: what training saw, without the margin.
    """

    name: str
    scale: Literal["log", "linear"]
    terms: Mapping[str, float]
    minimum: float
    maximum: float

    def to_json(self) -> dict[str, Any]:
        """As in contract.json."""
        return {**vars(self), "terms": dict(self.terms)}


@dataclass(frozen=True)
class SeenSpec:
    """Ranges of inputs, and of products of inputs, that training saw."""

    margin: float = 1.0
    ranges: tuple[SeenRange, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As in contract.json."""
        return {"margin": self.margin, "ranges": [one.to_json() for one in self.ranges]}


class Familiar:
    """The ranges of one contract, ready to be held against observations."""

    def __init__(self, spec: SeenSpec, widths: Mapping[str, float]) -> None:
        """Args:
            widths: input -> how far apart its values can be.
        """
        self._spec, self._names = spec, tuple(widths)
        terms = np.array([[one.terms.get(name, 0.0) for name in self._names] for one in spec.ranges])
        terms = terms.reshape(len(spec.ranges), len(self._names))
        self._log = np.array([one.scale == "log" for one in spec.ranges], dtype=bool)
        self._terms = terms
        # The terms of all ranges, one after the other: a column of raw inputs and then of their logarithms, a factor
        of_range, column = np.nonzero(terms)
        self._columns, self._factors = column + len(self._names) * self._log[of_range], terms[of_range, column]
        self._starts = np.searchsorted(of_range, np.arange(len(terms)))
        ends = np.array([[one.minimum, one.maximum] for one in spec.ranges]).reshape(-1, 2)
        self._ends = np.where(self._log[:, None], np.log(np.maximum(ends, _LEAST)), ends)
        self._widths = SHARE * np.abs(terms) @ np.array(list(widths.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """(r) of the ranges."""
        return tuple(one.name for one in self._spec.ranges)

    def beyond(self, rows: NDArray[np.floating[Any]], margin: float | None = None,
               ignored: Collection[str] = ()) -> NDArray[np.bool_]:
        """(N, r): which ranges the rows are beyond; what is not known is beyond none.

        Args:
            rows: (N, n) raw inputs, in the contract's order.
            margin: in place of the contract's.
            ignored: inputs; a range with one of them counts for nothing.
        """
        raw = np.asarray(rows, dtype=np.float64)
        values, slack = self._values(raw), self._slack(margin)
        found: NDArray[np.bool_] = (values < self._ends[:, 0] - slack) | (values > self._ends[:, 1] + slack)
        return found & np.array([not any(name in ignored for name in one.terms) for one in self._spec.ranges], bool)

    def strange(self, row: Mapping[str, float], margin: float | None = None,
                ignored: Collection[str] = ()) -> dict[str, str]:
        """Range -> how an observation is beyond it, a phrase. row: input -> raw value; the rest as of `beyond`."""
        if not self._spec.ranges:
            return {}
        rows = np.array([[row.get(name, math.nan) for name in self._names]], dtype=np.float64)
        values = self._values(rows)[0]
        return {one.name: f"out of distribution: {one.name} is {np.exp(value) if one.scale == 'log' else value:.4g}, "
                          f"training saw {one.minimum:.4g} to {one.maximum:.4g}"
                for one, value, is_beyond in zip(self._spec.ranges, values, self.beyond(rows, margin, ignored)[0],
                                                 strict=True) if is_beyond}

    def unreachable(self, lows: NDArray[np.float64], highs: NDArray[np.float64],
                    margin: float | None = None) -> tuple[str, ...]:
        """Ranges that no possible observation is beyond: with this margin they check nothing.

        Args:
            lows, highs: (n,) what inputs can be, in the contract's order; may be infinite.
            margin: in place of the contract's.
        """
        slack = self._slack(margin)
        found = []
        for position, (one, terms) in enumerate(zip(self._spec.ranges, self._terms, strict=True)):
            used = terms != 0.0
            ends = np.stack([lows, highs])[:, used]
            parts = terms[used] * (np.log(np.maximum(ends, _LEAST)) if one.scale == "log" else ends)
            least, most = parts.min(axis=0).sum(), parts.max(axis=0).sum()
            low, high = self._ends[position]
            if low - slack[position] <= least and most <= high + slack[position]:
                found.append(one.name)
        return tuple(found)

    def _slack(self, margin: float | None) -> NDArray[np.float64]:
        """(r) what may lie beyond each end."""
        factor = self._spec.margin if margin is None else margin
        with np.errstate(over="ignore"):
            slack = np.where(self._log, math.log(factor), (factor - 1.0) * self._widths) + _EXACT
        return np.asarray(slack, dtype=np.float64)

    def _values(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N, r), the logarithms of products."""
        if not len(self._terms):
            return np.zeros((len(raw), 0))
        # NaN stays NaN in both, but only in ranges that have it among their terms
        both = np.concatenate([raw, np.log(np.maximum(raw, _LEAST))], axis=1)
        found: NDArray[np.float64] = np.add.reduceat(both[:, self._columns] * self._factors, self._starts, axis=1)
        return found


def seen_spec(data: Any, inputs: Sequence[str]) -> SeenSpec:
    """Reads it.

    Args:
        inputs: names of the model's.

    Raises:
        InputError: a key is unknown or missing, a value is of a wrong type, a name is none of the model's or is there
            twice, a range is empty.
    """
    if not isinstance(data, Mapping) or set(data) != _KEYS:
        raise InputError(f"seen must have the keys {', '.join(sorted(_KEYS))}, got {data!r} ({_WHERE})")
    margin, ranges = data["margin"], data["ranges"]
    if not is_finite_number(margin) or margin < 1:
        raise InputError(f"margin must be a number >= 1, got {margin!r} ({_WHERE})")
    if not isinstance(ranges, list):
        raise InputError(f"ranges must be a list, got {ranges!r} ({_WHERE})")
    found = tuple(_range(one, inputs) for one in ranges)
    if len({one.name for one in found}) != len(found):
        raise InputError(f"ranges must have a name each, got {[one.name for one in found]} ({_WHERE})")
    return SeenSpec(float(margin), found)


def _range(data: Any, inputs: Sequence[str]) -> SeenRange:
    if not isinstance(data, Mapping) or set(data) != _RANGE_KEYS:
        raise InputError(f"range must have the keys {', '.join(sorted(_RANGE_KEYS))}, got {data!r} ({_WHERE})")
    check_label(data["name"], "name of a range", _WHERE, False)
    name, scale, terms = data["name"], data["scale"], data["terms"]
    if scale not in ("log", "linear"):
        raise InputError(f"scale must be log or linear, got {scale!r} ({_WHERE}, {name})")
    usable = isinstance(terms, Mapping) and terms and all(
        key in inputs and is_finite_number(value) and value != 0 for key, value in terms.items())
    if not usable:
        raise InputError(f"terms must be inputs with finite numbers other than 0, got {terms!r} ({_WHERE}, {name})")
    low, high = data["minimum"], data["maximum"]
    if not (is_finite_number(low) and is_finite_number(high) and low <= high and (scale == "linear" or low > 0)):
        raise InputError(f"minimum and maximum must be finite numbers in order, above 0 where the scale is log, got "
                         f"{low!r} and {high!r} ({_WHERE}, {name})")
    return SeenRange(name, scale, {key: float(value) for key, value in terms.items()}, float(low), float(high))
