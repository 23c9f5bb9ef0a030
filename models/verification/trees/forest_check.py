"""Whether onnxruntime computes a forest as it was read, and what its float32 adds to a proof about real numbers."""

import hashlib

import numpy as np

from feature_store.errors import InputError
from models.verification.execution import Execution
from models.verification.language.amounts import amount
from models.verification.language.claim import Claim
from models.verification.language.properties import Monotonicity, OutputOrder, OutputRange
from models.verification.network.fed_numbers import hull
from models.verification.network.runtime_agreement import said_by_runtime
from models.verification.network.runtime_session import open_session
from models.verification.trees.forest import FLOAT32, Floats, Forest, rounded_inward

RANDOM_POINTS, AT_WALLS, SEED = 48, 48, 0
MOST_COMPARED = 2**28  # of a number with a wall: a second, and some points of a forest of 10,000 leaves and 20 inputs
SHOWN = 12  # inputs of a point in a message


def require_forest_runs(content: bytes, forest: Forest, claim: Claim, where: str) -> None:
    """Raises InputError where onnxruntime computes something else, with its default optimisations or without.

    Looks at points of the boxes: random ones, half of which depend on the file's digest, ones at a wall of some tree's
    boxes and at the numbers beside it, and one in each leaf that they meet, up to MOST_COMPARED comparisons.
    """
    seeds = [SEED], [SEED, *hashlib.sha256(content).digest()]
    points = np.concatenate([*(_points(forest, *_boxes(claim), seed) for seed in seeds),
                             _in_leaves(forest, *_boxes(claim), seeds[1])])
    expected, allowed = forest.value(points), forest.execution_error(points)
    for optimised in (False, True):
        how = "with its default optimisations" if optimised else "as the file stands"
        try:
            session = open_session(content, optimised)
            (found,) = session.run(None, {session.get_inputs()[0].name: points.astype(np.float32)})
        except Exception as error:  # it has no family of errors
            raise InputError(f"model must run in onnxruntime, {how}, which says: {said_by_runtime(error)} "
                             f"({where})") from error
        values = np.asarray(found, dtype=np.float64)
        if values.shape != expected.shape:
            raise InputError(f"forest must give {expected.shape[1]} outputs a row, got shape {values.shape} ({where})")
        wrong = ~(abs(values - expected) <= allowed)  # NaN is not
        if wrong.any():
            point, output = np.argwhere(wrong)[0]
            raise InputError(
                f"forest as read must compute what onnxruntime computes, {how}: output {output} must be "
                f"{expected[point, output]:.9g} within {allowed[point, output]:.2g}, got {values[point, output]:.9g} "
                f"at {points[point].tolist()[:SHOWN]} ({where})")


def _boxes(claim: Claim) -> tuple[Floats, Floats]:
    """Walls (B, n) of all inputs that the claim speaks of, as they are fed."""
    if (specification := claim.specification) is not None:
        return hull(specification.lower[None], specification.upper[None], FLOAT32)
    walls = [part.proved for part in claim.parts]
    return np.concatenate([lower for lower, _ in walls]), np.concatenate([upper for _, upper in walls])


def _points(forest: Forest, lower: Floats, upper: Floats, seed: list[int]) -> Floats:
    """Random points of boxes (B, n), each one float32 numbers; the latter half with one input at a wall, or beside."""
    random = np.random.default_rng(seed)
    low, high = rounded_inward(lower, upper)
    usable = np.flatnonzero((low <= high).all(axis=1))
    if not len(usable):
        return np.zeros((1, forest.inputs))
    of = usable[random.integers(0, len(usable), RANDOM_POINTS + AT_WALLS)]
    points = low[of] + (high[of] - low[of]) * random.random((len(of), forest.inputs))
    box, feature = random.integers(0, len(forest.tree), AT_WALLS), random.integers(0, forest.inputs, AT_WALLS)
    wall = np.where(random.random(AT_WALLS) < 0.5, forest.low[box, feature], forest.high[box, feature])
    finite = np.where(np.isfinite(wall), wall, points[np.arange(AT_WALLS), feature])
    beside = np.nextafter(finite.astype(np.float32), np.float32(np.inf) * random.choice((-1, 1), AT_WALLS))
    points[np.arange(AT_WALLS), feature] = np.where(random.random(AT_WALLS) < 0.5, finite, beside)
    return np.clip(points.astype(np.float32).astype(np.float64), low[of], high[of])


def _in_leaves(forest: Forest, lower: Floats, upper: Floats, seed: list[int]) -> Floats:
    """A random point in each box of the trees, or in as many as there is time for, that meets boxes (B, n)."""
    random = np.random.default_rng(seed)
    leaves = random.permutation(len(forest.tree))[:MOST_COMPARED // forest.products]
    of = random.integers(0, len(lower), len(leaves))
    low, high = rounded_inward(np.maximum(lower[of], forest.low[leaves]), np.minimum(upper[of], forest.high[leaves]))
    low, high = (one[(low <= high).all(axis=1)] for one in (low, high))
    points = low + (high - low) * random.random(low.shape)
    return np.clip(points.astype(np.float32).astype(np.float64), low, high)


def execution_of_forest(forest: Forest, claim: Claim) -> Execution:
    """What float32 adds to the outputs, and whether the specification's `rounding` allows it."""
    error, specification = forest.largest_execution_error(*_boxes(claim)), claim.specification
    named = [f"{name} by at most {amount(float(e), claim.units.get(name, ''))}" if np.isfinite(e) else
             f"{name} by any amount, for sums may overflow" for name, e in zip(claim.output_names, error, strict=True)]
    sentence = f"Executed in float32, with sums in any order, it may differ from that: {', '.join(named)}."
    specified = () if specification is None else specification.properties
    y = forest.value(_points(forest, *_boxes(claim), [SEED]))
    for rule in specified:
        for output in rule.outputs:
            largest = float(abs(y[:, output]).max())
            size = float(np.ptp(y[:, output])) if isinstance(rule, Monotonicity) else largest
            if size and not error[output] <= max(size, 2.0**-23 * largest):
                return Execution(sentence, f"execution in float32 must keep {claim.output_names[output]} within its "
                                           f"size, about {size:.3g}, got {error[output]:.3g}: the proof says nothing "
                                           "about what runs")
    if overflowing := [name for name, one in zip(claim.output_names, error, strict=True) if not np.isfinite(one)]:
        return Execution(sentence, "sums of a forest must stay within float32 in whatever order they are made, and may "
                                   f"leave it in {overflowing[0]}")
    for output, limit in ({} if specification is None else specification.rounding).items():
        adds = max((_times(rule) for rule in claim.given.properties if output in rule.outputs), default=0.0)
        if not adds * error[output] <= limit:
            return Execution(sentence, f"execution in float32 may add at most {limit:g} to a violation in "
                                       f"{claim.output_names[output]}, got {adds * error[output]:.3g}")
    return Execution(sentence)


def _times(rule: object) -> float:
    """How many times an output's error may come to in a violation of the rule, and no less."""
    match rule:
        case OutputRange() if rule.minus is None:
            return 1.0
        case OutputOrder():
            return 1.0 + abs(rule.factor)
        case Monotonicity() | _:
            return 2.0
