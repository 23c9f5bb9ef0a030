"""Whether a challenger is better than the champion on the same cases by more than luck explains.

Flow: a kind of task records one score a case of both models, measured alike (models/paired_cases.py); `register` asks
here before one model replaces another. What a score is does not matter: squared errors of test rows (smaller is better)
or rewards of episodes (larger is better, and of either sign).

    champion, challenger (n,)  scores of the same n cases in the same order: telemetry in order of time
    gain (n,)                  by how much the challenger is better in each case, in units of the score
    lower, upper end           of the mean gain, each of a one-sided interval, by a paired block bootstrap
    required                   what the lower end must exceed, in units of the score; a share of
                                 the champion's mean, where scores are errors or costs: smaller is better, none below 0
                                 the champion's spread (standard deviation of its scores), of all others: a reward's
                                 mean
                                   moves with the zero that somebody chose, its spread does not (docs/decisions/0011)
                               or the amount that mlflow.yaml states for the metric

Neighbouring rows of telemetry resemble each other, and so do a model's errors on them: a bootstrap that draws single
rows takes them for more cases than they are, and lets an equal model win too often. So blocks of neighbours are drawn
(circular block bootstrap, Politis and Romano 1992). Where the gains are autocorrelated, a block is twice as long as
Politis and White (2004, with the correction of 2009) choose: theirs has the smallest mean squared error of a variance,
half of which is that the variance comes out too small; a test wants longer ones (Sun, Phillips and Jin 2008). Blocks
are at least the square root of n and SHORTEST_BLOCK, or the length that is known (1 for episodes that are independent),
at most a quarter of n, so that four are left, or a third where the gains are autocorrelated. Few blocks show less than
their own spread: the distance from the mean to the bootstrap's percentile is stretched as Student's t with that many
blocks is wider than the normal distribution (the factor of Hesterberg 2015, section 5, on the distance instead of the
percentile, which ends at the smallest mean drawn). How often an equal model wins: docs/benchmarks/promotion.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from feature_store.errors import InputError
from models.metrics import Better, finite_number

FloatArray = NDArray[np.float64]

MINIMUM_CASES = 8  # two a block: fewer say nothing about their own spread
SHORTEST_BLOCK = 10  # cases, where there are 40 or more: a few dozen show no autocorrelation of their own
FEWEST_BLOCKS = 4  # a block is at most this part of the cases,
FEWEST_CORRELATED_BLOCKS = 3  # where they are autocorrelated, this
LENGTHENED = 2  # times the length of Politis and White: docs/decisions/0011
MOST_BLOCKS = 200  # of cases known to be independent: more take time, and narrow the interval by some 1 %
RESAMPLES = 10_000
RESOLVED = 0.999  # the level beyond which 10,000 means hold too few to read a percentile from
SEED = 0  # one for all: whoever may choose it can draw until a model wins
_AT_ONCE = 2**21  # block starts held in memory


@dataclass(frozen=True)
class ComparisonRule:
    """What counts as better: what the lower end of the mean gain must exceed.

    Attributes:
        minimum_improvement: of errors and costs, which are never below 0: share of the champion's mean.
        minimum_improvement_of_spread: of anything else, such as rewards: share of the champion's standard deviation.
        minimum_gain: metric -> amount in the unit of its cases, in place of a share.
        confidence: of each end of the interval (one-sided), in [0.8, 1); of all attempts against one champion together.
    """

    minimum_improvement: float = 0.01
    minimum_improvement_of_spread: float = 0.01
    minimum_gain: Mapping[str, float] = field(default_factory=dict)
    confidence: float = 0.99

    def __post_init__(self) -> None:
        for name, low, below in (("minimum_improvement", 0.0, math.inf),
                                 ("minimum_improvement_of_spread", 0.0, math.inf), ("confidence", 0.8, 1.0)):
            value = getattr(self, name)
            number = finite_number(value)
            if number is None or not low <= number < below:
                limits = f"from {low:g}" if math.isinf(below) else f"from {low:g} to below {below:g}"
                raise InputError(f"{name}: expected a number {limits}, got {value!r}")
        if not isinstance(self.minimum_gain, Mapping):
            raise InputError("minimum_gain: expected a mapping of a metric to an amount in its unit, such as "
                             f"{{mean_reward: 0.5}}, got {self.minimum_gain!r}")
        for metric, amount in self.minimum_gain.items():
            number = finite_number(amount)
            if not isinstance(metric, str) or number is None or number < 0:
                raise InputError(f"minimum_gain.{metric}: expected a number from 0, got {amount!r}")


    def at_attempt(self, attempt: int) -> "ComparisonRule":
        """The rule for the k-th attempt against one champion, from 1.

        An error of 1 - confidence is all that may happen in however many attempts: attempt k spends 1 / (k (k + 1)) of
        it, which sums to 1 over all k (alpha spending; the bound is Bonferroni's, so that attempts may depend on each
        other, on one test set or on what came out before). It holds where each model that was made counts, whichever of
        them are then compared: those that gates on the same cases let through are the lucky ones.
        """
        if attempt < 1:
            raise InputError(f"attempt: expected a whole number from 1, got {attempt}")
        return replace(self, confidence=1 - (1 - self.confidence) / (attempt * (attempt + 1)))


@dataclass(frozen=True)
class Comparison:
    """What a comparison found; in units of the score, but for the counts.

    Attributes:
        challenger_mean: the challenger's mean score.
        champion_mean: the champion's.
        gain: mean gain of the challenger.
        lower_end: of the interval of the mean gain.
        upper_end: of it.
        required: what the lower end must exceed.
        required_as: what `required` is, in words: "1 % of the champion's mean".
        confidence: of each end.
        cases: n.
        block: neighbours that were drawn together.
    """

    challenger_mean: float
    champion_mean: float
    gain: float
    lower_end: float
    upper_end: float
    required: float
    required_as: str
    confidence: float
    cases: int
    block: int

    @property
    def wins(self) -> bool:
        """Whether the challenger is better by more than luck explains."""
        return self.lower_end > self.required

    def sentence(self, quantity: str, unit: str) -> str:
        """What was found, for ledger and report; `quantity`: what a score is, `unit`: its unit."""
        return (f"mean {quantity} {self.challenger_mean:.4g} {unit} against the champion's {self.champion_mean:.4g} "
                f"{unit}, improvement {self.gain:+.4g} {unit} [{self.lower_end:+.4g}, {self.upper_end:+.4g}] over "
                f"{self.cases:,} cases (each end at {100 * self.confidence:.7g} %); the lower end must exceed "
                f"{self.required:.4g} {unit}, {self.required_as}")


def compare(
    challenger: ArrayLike,
    champion: ArrayLike,
    better: Better,
    rule: ComparisonRule,
    metric: str = "",
    block: int | None = None,
) -> Comparison:
    """Compares two models case by case.

    Args:
        challenger: (n,) its scores.
        champion: (n,) the champion's, of the same cases in the same order.
        better: which scores are better.
        rule: what counts as better.
        metric: that the scores bear, for the rule's `minimum_gain`.
        block: least number of neighbours that resemble each other; None: not known.

    Raises:
        InputError: there are fewer than MINIMUM_CASES cases, they are not the same ones, or scores, their means or an
        end
            of the interval are not finite.
    """
    new, old = (np.asarray(scores, dtype=np.float64) for scores in (challenger, champion))
    if new.ndim != 1 or new.shape != old.shape:
        raise InputError(f"expected scores of the same cases, got shapes {new.shape} and {old.shape}")
    if len(new) < MINIMUM_CASES:
        raise InputError(f"expected at least {MINIMUM_CASES} cases to compare two models, got {len(new)}")
    if not (np.isfinite(new).all() and np.isfinite(old).all()):
        raise InputError("expected scores that are finite numbers, got one that is not")
    with np.errstate(over="ignore", invalid="ignore"):  # scores near the largest float: refused below
        gains = old - new if better == "smaller" else new - old
        length = block_length(gains, block)
        lower, upper = interval(gains, length, rule.confidence)
        required, required_as = required_gain(new, old, better, rule, metric)
        found = Comparison(float(new.mean()), float(old.mean()), float(gains.mean()), lower, upper, required,
                           required_as, rule.confidence, len(gains), length)
    numbers = (found.challenger_mean, found.champion_mean, found.gain, lower, upper, required)
    if not all(map(math.isfinite, numbers)):
        raise InputError("expected scores small enough for a finite mean and a finite interval of the improvement, got "
                         f"means {found.challenger_mean:g} and {found.champion_mean:g}, interval [{lower:g}, "
                         f"{upper:g}]")
    return found


def required_gain(
    challenger: FloatArray, champion: FloatArray, better: Better, rule: ComparisonRule, metric: str
) -> tuple[float, str]:
    """What the lower end must exceed, in units of the score, and what that is in words."""
    if metric in rule.minimum_gain:
        return float(rule.minimum_gain[metric]), f"minimum_gain of {metric}"
    if better == "smaller" and min(challenger.min(), champion.min()) >= 0:
        share = rule.minimum_improvement
        return share * float(champion.mean()), f"{100 * share:g} % of the champion's mean"
    share = rule.minimum_improvement_of_spread
    return share * float(champion.std()), f"{100 * share:g} % of the champion's spread"


def interval(gains: FloatArray, block: int, confidence: float) -> tuple[float, float]:
    """Ends of the one-sided intervals of the mean gain, from blocks of `block` neighbours (circular)."""
    from scipy.special import ndtri, stdtrit  # not needed where a model is only loaded

    n, blocks = len(gains), len(gains) // block
    drawn = math.ceil(n / block)
    around = np.concatenate([gains, gains[: block - 1]])
    means = sliding_window_view(around, block).mean(axis=1)
    rng = np.random.default_rng(SEED)
    part = max(1, _AT_ONCE // drawn)
    resampled = np.concatenate([means[rng.integers(0, n, (min(part, RESAMPLES - done), drawn))].mean(axis=1)
                                for done in range(0, RESAMPLES, part)])
    level = min(confidence, RESOLVED)  # the rest of the way is Student's t
    stretch = math.sqrt(blocks / (blocks - 1)) * float(stdtrit(blocks - 1, confidence) / ndtri(level))
    gain = float(gains.mean())
    low, high = (float(np.quantile(resampled, share)) for share in (1 - level, level))
    return gain - stretch * (gain - low), gain + stretch * (high - gain)


def block_length(gains: FloatArray, known: int | None = None) -> int:
    """How many neighbouring cases are drawn together, as they may resemble each other.

    Args:
        gains: (n,) of the cases, in order.
        known: least number of neighbours that resemble each other; None: not known.
    """
    n, automatic = len(gains), _automatic_length(gains)
    shortest = max(math.ceil(math.sqrt(n)), SHORTEST_BLOCK) if known is None else max(known, math.ceil(n / MOST_BLOCKS))
    if automatic == 1:
        return max(1, min(shortest, n // FEWEST_BLOCKS))
    return max(1, min(max(LENGTHENED * automatic, shortest), n // FEWEST_CORRELATED_BLOCKS))


def _automatic_length(gains: FloatArray) -> int:
    """Politis and White (2004), section 3.2, for the circular bootstrap; 1 where nothing is autocorrelated."""
    n = len(gains)
    centred = gains - gains.mean()
    power = float(centred @ centred)
    if power == 0 or not math.isfinite(power):
        return 1
    lags = max(1, min(n // FEWEST_BLOCKS, math.ceil(math.sqrt(n)) + max(5, math.ceil(math.log10(n)))))
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
