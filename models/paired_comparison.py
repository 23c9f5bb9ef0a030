"""Whether a challenger is better than the champion on the same cases by more than luck explains.

Flow: `export` and `gate` record one score a case of both models, measured alike; `register` asks here before one model
replaces another. What a score is does not matter: squared errors of test rows (smaller is better) or rewards of test
episodes (larger is better).

    champion, challenger (n,)  scores of the same n cases in the same order: telemetry in order of time
    gain (n,)                  by how much the challenger is better in each case, in units of the score
    lower end                  of the one-sided interval of the mean gain, by a paired block bootstrap

Neighbouring rows of telemetry resemble each other, and so do a model's errors on them: a bootstrap that draws single
rows takes them for more cases than they are, and lets an equal model win too often. So blocks of neighbours are drawn
(circular block bootstrap, Politis and Romano 1992). Their length follows from the autocorrelation of the gains (Politis
and White 2004, with the correction of 2009), and is at least the square root of n and SHORTEST_BLOCK, at most a quarter
of n, so that four blocks are left. Few blocks show less than their own spread: the distance from the mean to the
bootstrap's percentile is stretched as Student's t with that many blocks is wider than the normal distribution (the
factor of Hesterberg 2015, section 5, on the distance instead of the percentile, which ends at the smallest mean drawn).
How often an equal model wins: docs/benchmarks/promotion.md.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feature_store.errors import InputError

Better = Literal["smaller", "larger"]
FloatArray = NDArray[np.float64]

MINIMUM_CASES = 8  # two a block: fewer say nothing about their own spread
SHORTEST_BLOCK = 10  # cases, where there are 40 or more: a few dozen show no autocorrelation of their own
LARGEST_SHARE = 4  # blocks are at most the n-th part of the cases
RESAMPLES = 10_000
SEED = 0  # one for all: whoever may choose it can draw until a model wins
_AT_ONCE = 2**21  # block starts held in memory


@dataclass(frozen=True)
class ComparisonRule:
    """What counts as better.

    Attributes:
        minimum_improvement: what the lower end of the mean gain must exceed, share of the champion's mean score.
        confidence: of the one-sided interval, in [0.8, 1).
    """

    minimum_improvement: float = 0.01
    confidence: float = 0.99

    def __post_init__(self) -> None:
        for name, value, low, below in (("minimum_improvement", self.minimum_improvement, 0.0, math.inf),
                                        ("confidence", self.confidence, 0.8, 1.0)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < below:
                raise InputError(f"{name} must be a number from {low:g} to below {below:g}, got {value!r}")


@dataclass(frozen=True)
class Comparison:
    """What a comparison found; in units of the score, but for the counts.

    Attributes:
        gain: mean gain of the challenger. lower_end: of its interval. required: what the lower end must exceed.
        champion_mean: the champion's mean score.
        cases: n. block: neighbours that were drawn together.
    """

    gain: float
    lower_end: float
    required: float
    champion_mean: float
    cases: int
    block: int

    @property
    def wins(self) -> bool:
        """Whether the challenger is better by more than luck explains."""
        return self.lower_end > self.required

    def __str__(self) -> str:
        size = abs(self.champion_mean)
        said = [f"{100 * value / size:+.3g} %" if size else f"{value:+.4g}" for value in (self.gain, self.lower_end)]
        asked = f"{100 * self.required / size:.3g} %" if size else f"{self.required:.4g}"
        return f"improvement {said[0]} on {self.cases} test cases, lower end {said[1]} (must exceed {asked})"


def compare(challenger: ArrayLike, champion: ArrayLike, better: Better, rule: ComparisonRule) -> Comparison:
    """Compares two models case by case.

    Args:
        challenger: (n,) its scores. champion: (n,) the champion's, of the same cases in the same order.
        better: which scores are better.

    Raises:
        InputError: there are fewer than MINIMUM_CASES cases, they are not the same ones, or scores, their means or the
            lower end are not finite.
    """
    new, old = (np.asarray(scores, dtype=np.float64) for scores in (challenger, champion))
    if new.ndim != 1 or new.shape != old.shape:
        raise InputError(f"scores must be of the same cases, got shapes {new.shape} and {old.shape}")
    if len(new) < MINIMUM_CASES:
        raise InputError(f"cases must be at least {MINIMUM_CASES} to be compared, got {len(new)}")
    if not (np.isfinite(new).all() and np.isfinite(old).all()):
        raise InputError("scores must be finite numbers, got one that is not")
    with np.errstate(over="ignore", invalid="ignore"):  # scores near the largest float: refused below
        gains = old - new if better == "smaller" else new - old
        block = block_length(gains)
        mean = float(old.mean())
        found = Comparison(float(gains.mean()), lower_end(gains, block, rule.confidence),
                           rule.minimum_improvement * abs(mean), mean, len(gains), block)
        means = (float(new.mean()), mean, found.gain, found.lower_end, found.required)
    if not all(map(math.isfinite, means)):
        raise InputError("scores must be small enough for a finite mean and a finite lower end of the improvement, got "
                         f"means {means[0]:g} and {mean:g}, lower end {found.lower_end:g}")
    return found


def lower_end(gains: FloatArray, block: int, confidence: float) -> float:
    """Lower end of the one-sided interval of the mean gain, from blocks of `block` neighbours (circular)."""
    from scipy.special import ndtri, stdtrit  # not needed where a model is only loaded

    n, blocks = len(gains), len(gains) // block
    drawn = math.ceil(n / block)
    around = np.concatenate([gains, gains[:block]])
    means = np.array([around[start : start + block].mean() for start in range(n)])
    rng = np.random.default_rng(SEED)
    part = max(1, _AT_ONCE // drawn)
    resampled = np.concatenate([means[rng.integers(0, n, (min(part, RESAMPLES - done), drawn))].mean(axis=1)
                                for done in range(0, RESAMPLES, part)])
    stretch = math.sqrt(blocks / (blocks - 1)) * float(stdtrit(blocks - 1, confidence) / ndtri(confidence))
    gain = float(gains.mean())
    return gain - stretch * (gain - float(np.quantile(resampled, 1 - confidence)))


def block_length(gains: FloatArray) -> int:
    """How many neighbours are drawn together; see the module docstring."""
    n = len(gains)
    shortest = max(math.ceil(math.sqrt(n)), SHORTEST_BLOCK)
    return max(1, min(max(_automatic_length(gains), shortest), n // LARGEST_SHARE))


def _automatic_length(gains: FloatArray) -> int:
    """Politis and White (2004), section 3.2, for the circular bootstrap; 1 where nothing is autocorrelated."""
    n = len(gains)
    centred = gains - gains.mean()
    power = float(centred @ centred)
    if power == 0 or not math.isfinite(power):
        return 1
    lags = max(1, min(n // LARGEST_SHARE, math.ceil(math.sqrt(n)) + max(5, math.ceil(math.log10(n)))))
    correlations = np.array([centred[lag:] @ centred[:-lag] for lag in range(1, lags + 1)]) / power
    significant = np.flatnonzero(np.abs(correlations) > 2 * math.sqrt(math.log10(n) / n))
    if not len(significant):
        return 1
    window = min(2 * (int(significant[-1]) + 1), lags)
    used = correlations[:window]
    distance = np.arange(1, window + 1)
    weights = np.clip(2 * (1 - distance / window), 0, 1)  # the flat-top lag window of Politis and Romano (1995)
    spectrum = 1 + 2 * float(weights @ used)
    slope = 2 * float((weights * distance) @ used)
    if spectrum <= 0:
        return lags
    return math.ceil((1.5 * slope**2 / spectrum**2 * n) ** (1 / 3))
