"""Paired cases: what two models are compared by, one number a case, as it stands in evidence.json.

A case is whatever both models can be put through alike: a row of the test set (its squared error), or an episode with a
given seed (its reward). Flow: a kind of task writes the new model's into evidence["cases"] and the champion's, measured
on the very same cases, into champion["cases"]; gates decide by the metric beside them; succession
(serving/succession.py) decides by the cases (models/paired_comparison.py). Whoever lets evidence decide asks
`checked_cases` first: cases and metric must tell one story. Pure, and without pandas and onnxruntime, which `register`
does without.

    values (k,)   in `unit`, in an order in which neighbours may resemble each other (time); k = min(n, MOST_RECORDED)
    n             how many cases were measured: evidence["case_counts"][metric]
    metric        mean(values) / scale = evidence["metrics"][metric]
    scale         one unit of the metric in `unit`: of a test_mse in units of the scaled target, with values in ms², the
                  squared range of the target; 1 where the metric is simply the mean
    sha256        which cases: digest of the test set, or of the list of episodes (seeds, environment, length)
    block         least number of neighbours that resemble each other: 1 for independent episodes; None: not known, so
                  that blocks are at least the square root of n (models/paired_comparison.py)

A champion may have been trained on some of a new model's cases. Both are then compared on the others alone:

    champion["left_out"]  places in evidence["cases"]["values"] of those that it has seen, ascending; its own cases and
                          metrics are of the rest
    champion["unclaimed"] why nothing at all is claimed about the two, in place of metrics and cases
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError, nearest
from feature_store.names import is_sha256
from models.metrics import Better, finite_number

MOST_RECORDED = 20_000  # values in a bundle's evidence, spread evenly over the cases
# Both come from one array in float64; sums of up to 20,000 values in another order differ by less than 1e-11.
SAME = 1e-6
LEFT_OUT, UNCLAIMED = "left_out", "unclaimed"  # of a measured champion


@dataclass(frozen=True)
class Cases:
    """One model's cases.

    Attributes:
        quantity: what a value is, in words: "squared error", "reward per episode".
        metric: name in evidence["metrics"] that the values bear.
        better: which values are better.
        unit: of the values.
        values: (k,) one a case.
        sha256: which cases, 64 hexadecimal digits.
        scale: one unit of the metric in `unit`, above 0.
        block: least number of neighbours that resemble each other; None: not known.
    """

    quantity: str
    metric: str
    better: Better
    unit: str
    values: tuple[float, ...]
    sha256: str
    scale: float = 1.0
    block: int | None = None

    def __post_init__(self) -> None:
        for name in ("quantity", "metric", "unit"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"cases.{name}: expected a text, got {text!r}")
        if self.better not in ("smaller", "larger"):
            raise InputError(f"cases.better: expected smaller or larger, got {self.better!r}")
        if not self.values or len(self.values) > MOST_RECORDED:
            raise InputError(f"cases.values: expected 1 to {MOST_RECORDED} numbers, got {len(self.values)}")
        if any(finite_number(value) is None for value in self.values):
            raise InputError("cases.values: expected finite numbers, got one that is not")
        if not is_sha256(self.sha256):
            raise InputError(f"cases.sha256: expected 64 hexadecimal digits, got {self.sha256!r}")
        scale = finite_number(self.scale)
        if scale is None or scale <= 0:
            raise InputError(f"cases.scale: expected a finite number above 0, got {self.scale!r}")
        block = self.block
        if block is not None and (isinstance(block, bool) or not isinstance(block, int) or block < 1):
            raise InputError(f"cases.block: expected a whole number from 1 or null, got {block!r}")

    @property
    def mean(self) -> float:
        """Of the values, in units of the metric."""
        return _mean(self.values) / self.scale

    def without(self, places: Collection[int]) -> "Cases":
        """The cases but for those at `places`. Raises InputError: none is left."""
        gone = set(places)
        return replace(self, values=tuple(value for k, value in enumerate(self.values) if k not in gone))

    def to_json(self) -> dict[str, Any]:
        """The content of evidence["cases"]."""
        return {**asdict(self), "values": list(self.values)}

    @classmethod
    def from_json(cls, data: Any) -> "Cases":
        """Reads evidence["cases"].

        Raises:
            InputError: a key is unknown or missing, or a value is unusable.
        """
        keys = tuple(cls.__dataclass_fields__)
        if not isinstance(data, Mapping):
            raise InputError(f"cases: expected a mapping of {', '.join(keys)}, got {_short(data)}")
        for key in data:
            if key not in keys:
                raise InputError(f"cases: unknown key {key!r}; {nearest(str(key), keys)}")
        for key in keys:
            if key not in data:
                raise InputError(f"cases: expected the key {key!r}, got {', '.join(map(str, data)) or 'none'}")
        values = data["values"]
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise InputError(f"cases.values: expected a list of numbers, got {_short(values)}")
        numbers = [finite_number(value) for value in values]
        finite = tuple(value for value in numbers if value is not None)
        if len(finite) < len(numbers):
            raise InputError("cases.values: expected finite numbers, got one that is not")
        scale = finite_number(data["scale"])
        return cls(**{**data, "values": finite, "scale": data["scale"] if scale is None else scale})


def recorded(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, ...]:
    """What goes into the evidence of all that was measured, in order: all, or MOST_RECORDED spread evenly."""
    return tuple(float(values[k]) for k in recorded_places(len(values)))


def recorded_places(count: int) -> list[int]:
    """Which of `count` values `recorded` takes."""
    last, kept = count - 1, min(count, MOST_RECORDED)
    return [(last * k) // (kept - 1) if kept > 1 else 0 for k in range(kept)]


def same_cases(one: Cases, other: Cases) -> bool:
    """Whether two models were measured on the same cases, in the same quantity: only then are they compared."""
    return all(getattr(one, name) == getattr(other, name) for name in ("sha256", "quantity", "metric", "better", "unit")
               ) and len(one.values) == len(other.values)


def checked_cases(data: Any, metrics: Any, case_counts: Any) -> Cases:
    """The cases of a model, which bear its metric.

    Args:
        data: evidence["cases"] or champion["cases"].
        metrics: of the same model, on the same cases.
        case_counts: evidence["case_counts"] of the bundle whose cases they are.

    Raises:
        InputError: they cannot be read, are not as many as were measured, or their mean is another than the metric.
    """
    cases = Cases.from_json(data)
    count = case_counts.get(cases.metric) if isinstance(case_counts, Mapping) else None
    if isinstance(count, bool) or not isinstance(count, int) or len(cases.values) != min(count, MOST_RECORDED):
        known = count if isinstance(count, int) else "unknown number of"
        raise InputError(f"cases: expected one value for each of the {known} cases of {cases.metric} (at most "
                         f"{MOST_RECORDED}), got {len(cases.values)}")
    if count > MOST_RECORDED:
        return cases  # a part of them has another mean
    metric = finite_number(metrics.get(cases.metric)) if isinstance(metrics, Mapping) else None
    mean, size = cases.mean, _mean([abs(value) for value in cases.values]) / cases.scale
    if metric is None or not math.isfinite(mean) or abs(mean - metric) > SAME * size:
        given = "no number" if metric is None else f"{metric:.6g}"
        raise InputError(f"cases: expected the mean {cases.metric}, {given}, got {mean:.6g}")
    return cases


def measured_cases(champion: Mapping[str, Any], evidence: Mapping[str, Any]) -> Cases:
    """A champion's cases, which bear its metric: all of a new model's, or those that the champion has not seen.

    Args:
        champion: as it was measured: "metrics", "cases" and, where it has seen some of them, "left_out".
        evidence: of the new model.

    Raises:
        InputError: they contradict the metric, or are not as many as they should be.
    """
    counts, left_out = evidence.get("case_counts"), champion.get(LEFT_OUT)
    if left_out:
        unseen = unseen_cases(evidence, left_out)
        counts = {unseen.metric: len(unseen.values)}
    return checked_cases(champion.get("cases"), champion.get("metrics"), counts)


def unseen_cases(evidence: Mapping[str, Any], left_out: Any) -> Cases:
    """A model's cases without those at the places `left_out`.

    Raises:
        InputError: the cases contradict their metric, a place is none of theirs, or none is left.
    """
    cases = checked_cases(evidence.get("cases"), evidence.get("metrics"), evidence.get("case_counts"))
    if not left_out:
        return cases
    if not isinstance(left_out, list) or not all(type(place) is int and 0 <= place < len(cases.values)
                                                 for place in left_out):
        raise InputError(f"left_out: expected places of {len(cases.values)} cases, got {_short(left_out)}")
    return cases.without(left_out)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
