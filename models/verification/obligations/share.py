"""Counts the share of inputs that satisfy a property: `check_share(graph, share, specification) -> ShareResult`.

Inputs are drawn at random, or given as a sample of the distribution in question; each either satisfies the property
or does not, so that their number is binomial and the interval of Clopper and Pearson (Biometrika 26, 1934) is exact.
That holds of inputs which the file could not foresee: `sample_seed` mixes what names both files with bits drawn after
they were written.

Monotone is counted over pairs that differ in one of the features, drawn at random: the partner's value is uniform
over the feature's side of the box, or over its other values where it takes finitely many.

Symbols: n inputs, m samples; x (m, n).
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainccinv, betaincinv

from feature_store.errors import InputError
from models.verification.language.domain import Domain, narrowed
from models.verification.language.properties import InputValue, Monotonicity, OutputOrder, OutputRange, Share, Side
from models.verification.language.specification import Specification
from models.verification.network.graph import FloatArray, Graph
from models.verification.obligations.compile import require_fit

# Values of one layer held at a time.
BATCH_ELEMENTS = 1_000_000


@dataclass(frozen=True)
class ShareResult:
    """satisfied of `samples`; lower, upper: the interval of the true share; holds: lower is at least what was asked."""

    holds: bool
    satisfied: int
    samples: int
    lower: float
    upper: float


def sample_seed(model_sha256: str, specification_sha256: str, drawn: str) -> int:
    """The seed of a count's inputs: of hex digests of both files and hex bits drawn for this count."""
    return int(hashlib.sha256(f"{model_sha256} {specification_sha256} {drawn}".encode()).hexdigest(), 16)


def check_share(graph: Graph, share: Share, specification: Specification, data: FloatArray | None = None, *,
                seed: int) -> ShareResult:
    """Counts on `share.samples` uniform inputs of the box, or on all given ones that it admits.

    Args:
        seed: see `sample_seed`; one that was known when the file was made shows nothing about it.
        data: (m, n), a sample of independent inputs from the distribution that the share is of; rows outside of the
            box, of the finite values or of the one-hot groups do not count.

    Raises:
        InputError: the graph has other inputs or outputs than the specification; data of another width, or without
            an admissible row.
    """
    require_fit(graph, specification)
    random = np.random.default_rng(seed)
    domain = narrowed(specification, share.when)
    x = _uniform(domain, share.samples, random) if data is None else _admissible(domain, data)
    batch = max(BATCH_ELEMENTS // max(graph.widths, default=1), 1)
    satisfied = sum(int(_satisfied(graph, share, specification, domain, x[first : first + batch], random).sum())
                    for first in range(0, len(x), batch))
    lower, upper = clopper_pearson(satisfied, len(x), share.confidence)
    return ShareResult(lower >= share.at_least, satisfied, len(x), lower, upper)


def clopper_pearson(satisfied: int, samples: int, confidence: float) -> tuple[float, float]:
    """The exact two-sided interval of a binomial share."""
    tail, missed = (1 - confidence) / 2, samples - satisfied
    lower = float(betaincinv(satisfied, missed + 1, tail)) if satisfied else 0.0
    upper = float(betainccinv(satisfied + 1, missed, tail)) if missed else 1.0
    return lower, upper


def _uniform(domain: Domain, count: int, random: np.random.Generator) -> FloatArray:
    low, high = domain.lower, domain.upper
    x = np.clip(low + (high - low) * random.random((count, len(low))), low, high)
    for feature, values in sorted(domain.choices.items()):
        x[:, feature] = random.choice(values, count)
    for group in domain.one_hot:
        rows = domain.admitted(group)
        x[:, list(group)] = rows[random.integers(len(rows), size=count)]
    return x


def _admissible(domain: Domain, data: FloatArray) -> FloatArray:
    x = np.asarray(data, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != len(domain.lower):
        raise InputError(f"data must be of shape (m, {len(domain.lower)}), got {x.shape}")
    inside = ((domain.lower <= x) & (x <= domain.upper)).all(axis=1)
    for feature, values in domain.choices.items():
        inside &= np.isin(x[:, feature], values)
    for group in domain.one_hot:
        part = x[:, list(group)]
        inside &= np.isin(part, (0.0, 1.0)).all(axis=1) & (part.sum(axis=1) == 1)
    if not inside.any():
        raise InputError(f"data must have a row that the specification admits, got none of {len(x)} inside its box and "
                         "its finite values")
    return x[inside]


def _satisfied(graph: Graph, share: Share, specification: Specification, domain: Domain, x: FloatArray,
               random: np.random.Generator) -> NDArray[np.bool_]:
    """Which inputs satisfy the property, (m,), evaluated in float64; an output that is NaN does not."""
    y = graph.value(x)

    def of(side: Side | None) -> FloatArray:
        if side is None:
            return np.zeros(len(x))
        return x[:, side.feature] if isinstance(side, InputValue) else y[:, side]

    match share.of:
        case OutputRange(output, minimum, maximum, minus):
            low, high = (-np.inf if minimum is None else minimum), (np.inf if maximum is None else maximum)
            value = of(output) - of(minus)
            return np.asarray((low <= value) & (value <= high))
        case OutputOrder(upper, lower, margin, factor=factor):
            return np.asarray(of(upper) - factor * of(lower) >= margin)
        case Monotonicity(_, _, output) as rule:
            partner, picked = _partner(domain, rule, x, random)
            step = (partner - x).sum(axis=1)  # of one feature; the others are equal
            rise = rule.sign * np.sign(step) * (graph.value(partner) - y)[:, output]
            slopes = np.array([specification.slope(feature, output) for feature in range(graph.inputs)])
            return np.asarray(rise >= -slopes[picked] * np.abs(step))


def _partner(domain: Domain, rule: Monotonicity, x: FloatArray,
             random: np.random.Generator) -> tuple[FloatArray, NDArray[np.int64]]:
    """x (m, n) with another value in one of the rule's features that can have one, and in which (m,)."""
    movable = [feature for feature in rule.features if len(domain.choices.get(feature, ())) > 1 or (
        feature not in domain.choices and domain.lower[feature] < domain.upper[feature])]
    if not movable:
        raise InputError("monotone must be of a feature that can differ between two inputs, got "
                         f"{', '.join(map(str, rule.features))}, each at one value")
    partner, picked = x.copy(), random.choice(movable, len(x))
    for feature in rule.features:
        rows = np.flatnonzero(picked == feature)
        low, high = domain.lower[feature], domain.upper[feature]
        values = np.array(domain.choices.get(feature, ()))
        if len(values) > 1:
            moved = np.searchsorted(values, x[rows, feature]) + 1 + random.integers(len(values) - 1, size=len(rows))
            partner[rows, feature] = values[moved % len(values)]
        elif not len(values):
            partner[rows, feature] = np.clip(low + (high - low) * random.random(len(rows)), low, high)
    return partner, picked
