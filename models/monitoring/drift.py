"""Whether telemetry still has the distribution that a model was trained on: a Kolmogorov-Smirnov test for each feature.

The test wants independent rows, and rows of telemetry resemble their neighbours: for seconds, for a day, or as a
service that restarts again and again. How many independent rows a window is worth is asked of training itself: windows
of that length differ in the share of their rows below a value, by a variance V; of r independent rows it would be
p (1 - p) / r. So r = p (1 - p) / V, for the least of some values, and V at the upper end of what a few windows leave
open. Of longer windows than a PARTS-th of training it grows as the window does. Where such a part is worth less than
FEWEST rows, training is too short to say how the feature varies, and it is not judged.

    p <= 2 exp(-2 r D^2), r = m n / (m + n)

The inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990), for two samples (Wei and Dudley,
Statistics and Probability Letters 82, 2012). Features and windows of one look share its level by Holm's method (1979),
which allows any dependence among them.

Symbols: m, n independent rows that training and the newest rows are worth; D largest distance of their distributions.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import chi2

from models.monitoring.chances import WINDOWS

FloatArray = NDArray[np.float64]

PARTS, FEWEST = 8, 2.0
_VALUES = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)  # shares of training below them
# Chance that a variance is larger than is counted with. The least worth of seven values is on the safe side by itself:
# at 0.05 and 0.3 no look of 1,344 raised an alarm at 1 %, at 0.5 one did; a jump by 3.7 deviations of a feature with a
# memory of ten minutes is seen after 19 hours at 0.05, after 5 at 0.3.
_TAIL = 0.3


@dataclass(frozen=True)
class Drift:
    """What the test says of one feature.

    Attributes:
        distance: largest distance of the two distribution functions, 0 to 1.
        chance: of a distance as large without any drift, after Holm.
        rows: newest ones that it shows in most.
        worth: independent rows that they are worth.
        before, now: medians of training and of those rows.
    """

    feature: str
    distance: float
    chance: float
    rows: int
    worth: float
    before: float
    now: float


@dataclass(frozen=True)
class Reference:
    """A feature in training.

    Attributes:
        values: sorted.
        worth: length of a window, and of all of training -> independent rows; {} where it is too short to tell.
    """

    values: FloatArray
    worth: Mapping[int, float]

    @classmethod
    def of(cls, values: FloatArray) -> "Reference":
        """Of the training rows, in order of time."""
        longest = len(values) // PARTS
        if longest < 1 or (part := independent_rows(values, longest)) < FEWEST:
            return cls(np.sort(values), {})
        return cls(np.sort(values), {size: independent_rows(values, size) if size < longest else part * size / longest
                                     for size in (*WINDOWS, len(values))})


def references(training: pd.DataFrame, names: Sequence[str]) -> Mapping[str, Reference]:
    """By feature; training rows in order of time."""
    return {name: Reference.of(training[name].to_numpy(dtype=np.float64)) for name in names}


def drifts(known: Mapping[str, Reference], recent: pd.DataFrame) -> tuple[Drift, ...]:
    """The most telling window of each feature that can be judged, the least likely first.

    Args:
        known: of training, by feature.
        recent: rows in order of time.
    """
    made = [_tested(name, one, recent[name].to_numpy(dtype=np.float64)[-size:]) for name, one in known.items()
            if one.worth for size in WINDOWS if size <= len(recent)]
    best: dict[str, Drift] = {}
    for chance, one in zip(_holm([one.chance for one in made]), made, strict=True):
        if one.feature not in best or chance < best[one.feature].chance:
            best[one.feature] = Drift(**{**vars(one), "chance": float(chance)})
    return tuple(sorted(best.values(), key=lambda one: (one.chance, -one.distance)))


def independent_rows(values: FloatArray, size: int) -> float:
    """How many independent rows a window of so many is worth, at least; never more than it has."""
    below = values[:, None] <= np.quantile(values, _VALUES)
    share = below.mean(axis=0)
    counts = np.concatenate([np.zeros((1, len(_VALUES))), np.cumsum(below, axis=0)])
    shares = (counts[size:] - counts[:-size])[::max(1, size // 2)] / size
    freedom = len(values) / size - 1.0
    variance = ((shares - share) ** 2).mean(axis=0) * (freedom + 1.0) / chi2.ppf(_TAIL, freedom)
    tells = share < 1.0
    worth = share[tells] * (1.0 - share[tells]) / np.maximum(variance[tells], 1e-12)
    return float(min(size, worth.min(initial=size)))


def _tested(name: str, known: Reference, newest: FloatArray) -> Drift:
    m, n = known.worth[len(known.values)], known.worth[len(newest)]
    distance = ks_distance(known.values, newest)
    chance = min(1.0, 2.0 * math.exp(-2.0 * m * n / (m + n) * distance**2))
    return Drift(name, distance, chance, len(newest), n, float(np.median(known.values)), float(np.median(newest)))


def ks_distance(reference: FloatArray, values: FloatArray) -> float:
    """Largest distance of two empirical distribution functions; reference sorted."""
    own = np.sort(values)
    above, below = (np.searchsorted(own, own, side) / len(own) - np.searchsorted(reference, own, side) / len(reference)
                    for side in ("right", "left"))
    return float(max(above.max(), -below.min(), 0.0))


def _holm(chances: Sequence[float]) -> FloatArray:
    """Each chance after Holm's method, which may be held against the level of all together."""
    order = np.argsort(chances, kind="stable")
    adjusted = np.empty(len(chances))
    adjusted[order] = np.maximum.accumulate(np.array(chances)[order] * np.arange(len(chances), 0, -1))
    return np.minimum(adjusted, 1.0)
