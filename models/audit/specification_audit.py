"""The specification audit: how often do the data themselves obey a monotonicity specification?

A stage before training. For each feature of each Monotonicity: pairs of rows that differ in that feature alone, or
matched pairs where those are too few (audit/pairs.py); the share of them whose targets stand in the order demanded
(ties do), the share that does or lies within the noise of repeated runs, confidence intervals (pair_share.py), and the
pairs that contradict it the most. table_audit.py does the same within each workload of a table of measurements.

A difference of two runs lies within the noise where it is at most 1.96 * sqrt(1/r + 1/s) * noise; r, s: how many runs
the two values are the mean of; noise: standard deviation of a run.

Verdict, of at least `minimum_pairs` pairs:
    contradicted   the share within the noise lies below `at_least`, or less than half of the pairs obey, each with
                   its whole interval. Noise alone makes half of the pairs obey, whatever its size: fewer is a
                   direction, and it is the other one.
    obeyed         the share within the noise reaches `at_least` and more than half obey, each with its whole interval:
                   where noise hides the direction, a large share within the noise is no support
    undecided      anything else, and fewer pairs

Symbols: m rows, n features, x (m, n), y (m,).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.stats import norm

from feature_store.errors import InputError, nearest
from models.audit.pair_share import Interval, share_interval
from models.audit.pairs import (
    IntArray,
    exact_pairs,
    groups_of_equal,
    levels,
    matched_pairs,
    noise_of_near_repeats,
    noise_of_repeats,
    standardised,
)
from models.verification.language.properties import Direction, FloatArray, Monotonicity, Property, Share

Kind = Literal["exact", "matched", "none"]
Verdict = Literal["obeyed", "contradicted", "undecided"]
WIDTH = float(norm.ppf(0.975))  # of the noise, in standard deviations of a difference: 19 of 20 differences
CHANCE_SHARE = 0.5


@dataclass(frozen=True)
class AuditSettings:
    """Settings of the audit.

    Attributes:
        at_least: the share of pairs between what is known to hold and not to hold. Run times of public measurements
            fall with cores and nodes in 92 to 96 % of pairs (scout; CloudBandit 93 to 95 % within the noise) but for
            two workloads (40 to 76 %), and with memory a core in 47 % (35 to 64 % by the two types compared). For a
            property that holds in 9 of 10 pairs the threshold must be below 0.9, or the interval of a few dozen
            workloads reaches over it.
        minimum_pairs: needed for a verdict; where there are fewer, matched pairs are looked for.
        tolerance: share of a column's range, below which values are equal.
        caliper, step: see audit/pairs.py; 0.25 is what Rosenbaum and Rubin (The American Statistician 39, 1985) allow
            between matched units, the feature moves at least twice as much.
        partners: matched rows of a row.
        maximum_pairs: more are sampled, by seed.
        maximum_rows: the same, for matching alone.
    """

    at_least: float = 0.8
    confidence: float = 0.95
    minimum_pairs: int = 30
    tolerance: float = 1e-9
    caliper: float = 0.25
    step: float = 0.5
    partners: int = 5
    maximum_pairs: int = 200_000
    maximum_rows: int = 20_000
    worst: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("at_least", self.at_least), ("confidence", self.confidence)):
            if not 0 < value < 1:
                raise InputError(f"{name} must be between 0 and 1, both excluded, got {value!r}")
        for name, value in (("tolerance", self.tolerance), ("worst", self.worst)):
            if not 0 <= value < math.inf:
                raise InputError(f"{name} must be a number from 0, got {value!r}")
        for name in ("caliper", "step", "minimum_pairs", "partners", "maximum_pairs", "maximum_rows"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be a number above 0, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class WorstPair:
    """A pair that contradicts: row indices, the feature's values (low_value < high_value) and the targets there.

    violation: by how much the targets stand in the wrong order, > 0, in the unit of the comparison.
    """

    low: int
    high: int
    low_value: float
    high_value: float
    low_target: float
    high_target: float
    violation: float
    workload: str | None = None


@dataclass(frozen=True)
class PropertyAudit:
    """What the data say of one feature; shares and sizes are NaN where there are no pairs to take them from.

    Attributes:
        rows: distinct rows of the pairs.
        obeys, within_noise: shares of pairs, the second at least the first, and their intervals.
        noise: standard deviation of a run, from repeats (exact pairs) or near repeats (matched pairs); NaN where there
            are none, and within_noise is then obeys.
        mean_violation: of the pairs that do not obey.
    """

    feature: str
    direction: Direction
    kind: Kind
    pairs: int
    rows: int
    obeys: float
    obeys_interval: Interval
    within_noise: float
    within_noise_interval: Interval
    noise: float
    mean_violation: float
    worst: tuple[WorstPair, ...]
    at_least: float
    minimum_pairs: int

    @property
    def verdict(self) -> Verdict:
        """Whether the data obey, contradict or do not tell."""
        if self.pairs < self.minimum_pairs:
            return "undecided"
        if self.within_noise_interval.upper < self.at_least or self.obeys_interval.upper < CHANCE_SHARE:
            return "contradicted"
        if self.within_noise_interval.lower >= self.at_least and self.obeys_interval.lower > CHANCE_SHARE:
            return "obeyed"
        return "undecided"

    @property
    def sentence(self) -> str:
        """What the data say of the direction, for people."""
        what = f"{self.feature} {self.direction}: {self.verdict}"
        if not self.pairs:
            return f"{what}, no two rows can be compared"
        text = (f"{what}, {self.obeys:.1%} of {self.pairs:,} {self.kind} pairs obey, {self.within_noise:.1%} do or lie "
                "within the noise")
        if self.verdict != "contradicted" or not self.worst:
            return text
        worst = self.worst[0]
        return (f"{text}; at worst {worst.low_value:.4g} gives {worst.low_target:.4g} and {worst.high_value:.4g} gives "
                f"{worst.high_target:.4g}")

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: None for NaN."""
        plain = {name: _number(getattr(self, name)) for name in (
            "feature", "direction", "kind", "pairs", "rows", "obeys", "within_noise", "noise", "mean_violation",
            "at_least", "minimum_pairs")}
        for name in ("obeys_interval", "within_noise_interval"):
            interval = getattr(self, name)
            plain[name] = [_number(interval.lower), _number(interval.upper)]
        worst = [{name: value for name, value in vars(pair).items() if value is not None} for pair in self.worst]
        return {**plain, "verdict": self.verdict, "worst": worst}


@dataclass(frozen=True)
class AuditedRows:
    """What pairs are judged by: (m,) each but the noise.

    Attributes:
        shown: targets as a reader wants them, where y is a logarithm.
        runs: of which y is the mean.
        group: rows of one number are not independent of each other.
    """

    y: FloatArray
    shown: FloatArray
    runs: FloatArray
    group: IntArray
    noise: float


def audit(x: FloatArray, y: FloatArray, names: Sequence[str], properties: Sequence[Property], *,
          output: int = 0, products: Mapping[str, Sequence[str]] | None = None, group: IntArray | None = None,
          noise: float | None = None, settings: AuditSettings = AuditSettings()) -> tuple[PropertyAudit, ...]:
    """One audit for each feature of each Monotonicity about `output` (also of a Share of one); others are left out.

    A property under conditions is asked of the rows that meet them; of none, there is nothing to ask.

    Shares do not depend on the scale of y, but the noise does: a target whose noise grows with it (a time, a latency)
    is better given as its logarithm.

    Args:
        x: (m, n), finite.
        y: (m,), finite.
        names: of the n features.
        products: features that are products of others: they follow their factors, see `free_columns`.
        group: (m,) rows that were not measured independently (one window, one day); by default each is on its own.
        noise: standard deviation of y among runs that nothing told apart, where it is known; by default measured.

    Raises:
        InputError: shapes do not fit, a value is not finite, a product or factor is unknown.
    """
    names = tuple(names)
    if x.ndim != 2 or y.shape != x.shape[:1] or x.shape[1] != len(names) or not len(y):
        raise InputError(f"x, y and names must be of shapes (m, n), (m,) and (n,), got {x.shape}, {y.shape} and "
                         f"({len(names)},)")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("x and y must be finite, got NaN or infinity; drop such rows first")
    group = np.arange(len(y)) if group is None else group
    if group.shape != y.shape:
        raise InputError(f"group must be of shape {y.shape}, got {group.shape}")
    if any(entry.when for entry in properties):
        ask = partial(audit, names=names, output=output, products=products, noise=noise, settings=settings)
        return _by_conditions(x, y, properties, group, ask)
    codes = [levels(column, settings.tolerance) for column in x.T]
    repeated = noise_of_repeats(groups_of_equal(codes, len(y)), y) if noise is None else noise
    rows = AuditedRows(y, y, np.ones(len(y)), group, repeated)
    free = [free_columns(name, names, products or {}) for name in names]
    audits = []
    for feature, direction, at_least in demands(properties, output):
        held = [i for i, name in enumerate(names) if name not in free[feature]]
        column = x[:, feature]
        same = groups_of_equal([codes[i] for i in held], len(y))
        pairs = exact_pairs(same, column, codes[feature], settings.maximum_pairs, settings.seed)
        kind: Kind = "exact" if len(pairs) else "none"
        rows_with_noise = rows
        if len(pairs) < settings.minimum_pairs and held:
            matched, near = _matched(x, y, group, held, feature, settings)
            if len(matched) > len(pairs):
                pairs, kind = matched, "matched"
                rows_with_noise = replace(rows, noise=near if noise is None else noise)
        audits.append(judge(names[feature], direction, kind, pairs, column, rows_with_noise, settings, at_least))
    return tuple(audits)


def _by_conditions(x: FloatArray, y: FloatArray, properties: Sequence[Property], group: IntArray,
                   ask: Callable[..., tuple[PropertyAudit, ...]]) -> tuple[PropertyAudit, ...]:
    """The audits of properties with the same conditions, each on the rows (m,) that meet them."""
    found: list[PropertyAudit] = []
    for when in dict.fromkeys(entry.when for entry in properties):
        rows = np.full(len(y), True)
        for one in when:
            rows &= (one.lower <= x[:, one.feature]) & (x[:, one.feature] <= one.upper)
        if rows.any():
            asked = [replace(entry, when=()) for entry in properties if entry.when == when]
            found += ask(x[rows], y[rows], properties=asked, group=group[rows])
    return tuple(found)


def demands(properties: Sequence[Property], output: int) -> list[tuple[int, Direction, float]]:
    """(feature, direction, share demanded) of each; 1: of all pairs."""
    demanded: list[tuple[int, Direction, float]] = []
    for entry in properties:
        of, share = (entry.of, entry.at_least) if isinstance(entry, Share) else (entry, 1.0)
        if isinstance(of, Monotonicity) and of.output == output:
            demanded += [(feature, of.direction, share) for feature in of.features]
    return demanded


def free_columns(name: str, names: Sequence[str], products: Mapping[str, Sequence[str]]) -> set[str]:
    """The columns that move when `name` does: itself, products of it, and, of a product, its factors.

    Raises InputError for an unknown product or factor.
    """
    for column in {*products, *(factor for factors in products.values() for factor in factors)}:
        if column not in names:
            raise InputError(f"product and factors must be columns, got {column!r}; {nearest(column, names)}")
    moved = {name, *products.get(name, ())}
    return moved | {product for product, factors in products.items() if moved & set(factors)}


def judge(feature: str, direction: Direction, kind: Kind, pairs: IntArray, column: FloatArray, rows: AuditedRows,
          settings: AuditSettings, demanded: float = 1.0) -> PropertyAudit:
    """What pairs (P, 2), the smaller value of `column` (m,) first, say of a direction. demanded: see `demands`."""
    low, high = pairs.T
    violation = (1 if direction == "decreasing" else -1) * (rows.y[high] - rows.y[low])
    obeys = violation <= 0
    spread = rows.noise * np.sqrt(1 / rows.runs[low] + 1 / rows.runs[high])
    within = obeys | (violation <= WIDTH * spread)  # never where the noise is NaN
    worst = np.argsort(-violation, kind="stable")[:settings.worst]
    return PropertyAudit(
        feature, direction, kind if len(pairs) else "none", len(pairs), len(np.unique(pairs)),
        _mean(obeys), share_interval(obeys, pairs, rows.group, settings.confidence),
        _mean(within), share_interval(within, pairs, rows.group, settings.confidence),
        rows.noise, _mean(violation[~obeys]),
        tuple(WorstPair(int(low[i]), int(high[i]), float(column[low[i]]), float(column[high[i]]),
                        float(rows.shown[low[i]]), float(rows.shown[high[i]]), float(violation[i]))
              for i in worst if violation[i] > 0),
        min(settings.at_least, demanded), settings.minimum_pairs)


def _matched(x: FloatArray, y: FloatArray, group: IntArray, held: list[int], feature: int,
             settings: AuditSettings) -> tuple[IntArray, float]:
    """Matched pairs and the noise of near repeats, of at most `maximum_rows` rows."""
    taken = np.arange(len(y))
    if len(y) > settings.maximum_rows:
        taken = np.sort(np.random.default_rng(settings.seed).choice(len(y), settings.maximum_rows, replace=False))
    z = standardised(x[taken])
    pairs = matched_pairs(z[:, held], z[:, feature], settings.caliper, settings.step, settings.partners)
    compared = z[:, [*held, feature]]
    noise = noise_of_near_repeats(compared, y[taken], settings.caliper, group[taken])
    if math.isnan(noise):  # no two groups have rows alike
        noise = noise_of_near_repeats(compared, y[taken], settings.caliper, np.arange(len(taken)))
    return taken[pairs], noise


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
