"""Tolerances of SPEC.yaml in units of the outputs; the default: a share of what an output does over the box.

    range    (o,) largest minus smallest output at fixed points of the box: never more than the true range
    allowed  (n, o) slope by which an output may go the wrong way: over the whole width of a feature it comes to
             DEFAULT_TOLERANCE of that output's range

The points are the same every time and the evaluation is float64's, so whoever checks a proof finds the same numbers;
what they come to over the box is cut to three digits, which another machine's rounding does not reach.

Symbols: n inputs, o outputs, m points; x (m, n).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import product

import numpy as np

from feature_store.errors import InputError
from models.verification.checker.time_limit import require_time
from models.verification.language.amounts import DIGITS
from models.verification.language.properties import Monotonicity, Share
from models.verification.language.specification import DEFAULT_TOLERANCE, Specification
from models.verification.network.graph import FloatArray, Function

# A range counts as round where it is so up to this share of it: machines differ by less in how they round.
SAME = Fraction(1, 10**9)
# Points inside, corners at most, and points that are moved to both ends of the monotone features.
INSIDE, CORNERS, MOVED = 2048, 1024, 256
# Products of one evaluation, beyond which fewer points do; values of a layer held at a time.
PRODUCTS, BATCH_ELEMENTS = 2_000_000_000, 1_000_000
FLOAT32 = 2.0**-23  # resolution of float32, relatively


def with_relative_tolerance(function: Function, specification: Specification) -> Specification:
    """The specification with the default tolerance: of each output a share of its range."""
    return with_tolerance(specification, [share_of(reach) for reach in output_range(function, specification).tolist()])


def share_of(reach: float, share: float = DEFAULT_TOLERANCE) -> float:
    """This share of a range, cut to three digits, in its unit: the tolerance of an output over the box."""
    return float(cut(Fraction(share) * Fraction(reach)))


def with_tolerance(specification: Specification, over_the_box: Sequence[float]) -> Specification:
    """The specification with an allowed slope for each feature and output instead of one for all.

    over_the_box (o,): by how much each output may go the wrong way where one feature goes through its whole box.

    Raises InputError: an amount is below 0 or no finite number.
    """
    if unusable := [most for most in over_the_box if not 0 <= most < math.inf]:
        raise InputError(f"tolerance: expected a number from 0, got {unusable[0]!r}")
    allowed = np.zeros((len(specification.feature_names), len(specification.output_names)))
    for output, most in enumerate(over_the_box):
        require_time()
        for feature, (low, high) in enumerate(zip(specification.lower, specification.upper, strict=True)):
            if low < high:
                allowed[feature, output] = _below(Fraction(most) / (Fraction(high) - Fraction(low)))
    return replace(specification, allowed=allowed, over_the_box=np.array(over_the_box, dtype=np.float64))


def output_range(function: Function, specification: Specification) -> FloatArray:
    """Largest minus smallest value of each output at `points_of` the box, (o,); at least what float32 tells apart."""
    x = points_of(specification, int(np.clip(PRODUCTS // function.products, 64, INSIDE)))
    batch = max(BATCH_ELEMENTS // function.widest, 1)
    largest, smallest = np.full(function.outputs, -np.inf), np.full(function.outputs, np.inf)
    for first in range(0, len(x), batch):
        y = function.value(x[first : first + batch])
        y = y[np.isfinite(y).all(axis=1)]
        largest, smallest = np.vstack([y, largest]).max(axis=0), np.vstack([y, smallest]).min(axis=0)
    if not np.isfinite(largest).all():  # of no point
        largest = smallest = np.zeros(function.outputs)
    with np.errstate(over="ignore"):
        reach = np.minimum(largest - smallest, np.finfo(np.float64).max)
    least = FLOAT32 * np.maximum(np.maximum(np.abs(largest), np.abs(smallest)), float(np.finfo(np.float32).tiny))
    return np.asarray(np.maximum(reach, least))


def points_of(specification: Specification, inside: int = INSIDE) -> FloatArray:
    """Points that the specification admits: its centre, corners, points inside, and of each output its extremes.

    An output's extremes are points inside, moved to the lowest and to the highest end of all features that the output
    is monotone in: there an output that obeys the specification is smallest and largest.
    """
    lower, upper = specification.lower, specification.upper
    n = len(lower)
    # raw bits: the one stream that NumPy promises to keep
    share = (np.random.PCG64(0).random_raw((inside + CORNERS) * n).reshape(-1, n) >> np.uint64(11)) * 2.0**-53
    share, bits = share[:inside], share[inside:] < 0.5
    if 2**n <= CORNERS:
        bits = np.array(list(product([False, True], repeat=n)))
    points = [np.full((1, n), 0.5), bits.astype(np.float64), share]
    for output in range(len(specification.output_names)):
        signs = np.zeros(n)
        for rule in specification.properties:
            inner = rule.of if isinstance(rule, Share) else rule
            if isinstance(inner, Monotonicity) and inner.output == output:
                signs[list(inner.features)] = inner.sign
        if signs.any():
            points += [np.where(signs == 0, share[:MOVED], signs == end) for end in (1, -1)]
    return _admitted(specification, np.concatenate(points), lower, upper)


def _admitted(specification: Specification, share: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Points at these shares (m, n) of the way from lower to upper wall; of finite inputs, at values that they take."""
    with np.errstate(over="ignore"):
        x = np.clip(lower * (1 - share) + upper * share, lower, upper)
    for feature, values in specification.choices.items():
        number = np.minimum((share[:, feature] * len(values)).astype(np.int64), len(values) - 1)
        x[:, feature] = np.array(values)[number]
    for group in specification.one_hot:
        x[:, list(group)] = np.eye(len(group))[share[:, list(group)].argmax(axis=1)]
    return np.asarray(x)


def cut(value: Fraction) -> Fraction:
    """The largest number of three digits that is at most the value (or above it by a share of SAME)."""
    exact = value * (1 + SAME)
    context = Context(prec=DIGITS, rounding=ROUND_FLOOR, Emin=-9_999, Emax=9_999)
    return Fraction(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))


def _below(exact: Fraction) -> float:
    """The largest float64 <= exact >= 0."""
    try:
        near = float(exact)
    except OverflowError:
        return float(np.finfo(np.float64).max)
    return near if Fraction(near) <= exact else float(np.nextafter(near, 0.0))
