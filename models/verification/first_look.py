"""The first look at a part of a claim: decides what a few points or one box each decide, without the search.

Most questions end here: a wrong property shows at a few points in the box, and of a network that is monotone by
construction, or small, the checker proves the whole box at once. It needs NumPy and onnxruntime; the search needs
torch, whose import alone takes longer than this. What it leaves open, the search decides from the start.

    glance       points in every root, random ones first (and given ones), then corners; a witness must replay
    prove_roots  the checker's bounds (checker/check.py) on the roots, or on slices of them, where they are cheap

Symbols: R roots, n inputs, o outputs, P points; x (P, n).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from models.verification.attack.output_witness import OutputWitness, output_witnesses
from models.verification.checker.chain import Chain
from models.verification.language.claim import Part
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import FloatArray, Graph
from models.verification.network.runtime_agreement import chain_stages, stage_values
from models.verification.obligations.compile import PairObligation, RelationObligation
from models.verification.obligations.slopes import Slopes
from models.verification.search.search_result import Check, SearchResult
from models.verification.verdict import BoxTree, Status, Witness

Numbers = NDArray[np.int64]
# Random points in all, in every root at least; corners of all roots at most; roots that are looked at.
POINTS, LEAST_POINTS, CORNERS, ROOTS = 1024, 2, 2048, 4096
# Places along a feature's side at which the outputs of a point are compared, and points of slopes.
PLACES, SLOPE_POINTS = 5, 64
# Witnesses offered for replay.
OFFERS = 8
# Products of one first look, above which it would take longer than the import that it saves; of its points.
PRODUCTS, POINT_PRODUCTS = 300_000_000, 30_000_000
# Products of all slices, and their number, above which the search is asked instead; inputs of a network that is sliced;
# width of the slices that show whether an input does, as a share of its side.
SLICED_PRODUCTS, SLICES, SLICED_INPUTS, SLICE = 3_000_000_000, 2048, 1024, 2.0**-7


@dataclass(frozen=True)
class FirstLook:
    """Looks at parts of one claim on one network. seed: of the random points; points: (P, n) given ones, or None."""

    graph: Graph
    points: FloatArray | None
    seed: int

    def slopes(self, slopes: Slopes, lower: FloatArray, upper: FloatArray,
               accept: Callable[[Witness], bool]) -> Witness | None:
        """A pair in the wrong order that is accepted, or None. lower, upper (R, n)."""
        count = min(SLOPE_POINTS, POINT_PRODUCTS // (self.graph.products * PLACES * len(slopes.features)))
        for x, box in self._batches(lower, upper, count):
            low, high = _representable(lower[box], upper[box])
            for witness in _pairs(self.graph, slopes, x, low, high):
                if accept(witness):
                    return witness
        return None

    def outputs(self, graph: Graph, unsafe: UnsafeSet,
                accept: Callable[[OutputWitness], bool]) -> OutputWitness | None:
        """An input with unsafe outputs that replays, or None. graph: of the outputs that the set is about."""
        for x, box in self._batches(unsafe.lower, unsafe.upper, min(POINTS, POINT_PRODUCTS // graph.products)):
            violation = unsafe.violation(box, graph.value(x))
            worst = np.argsort(-np.nan_to_num(violation, nan=-np.inf), kind="stable")[:OFFERS]
            worst = worst[violation[worst] >= 0]
            for witness in output_witnesses(graph, unsafe, x[worst], box[worst], violation[worst]):
                if accept(witness):
                    return witness
        return None

    def _batches(self, lower: FloatArray, upper: FloatArray, count: int) -> list[tuple[FloatArray, Numbers]]:
        """Points and their roots: given and random ones, then corners; numbers of float32 where the box has them."""
        random, roots = np.random.default_rng(self.seed), np.arange(len(lower))
        if count <= 0:
            return []
        if len(roots) > ROOTS:
            roots = random.permutation(roots)[:ROOTS]
        box = np.repeat(roots, max(count // len(roots), LEAST_POINTS))
        low, high = _representable(lower, upper)
        share = random.random((len(box), lower.shape[1]))
        batches = [(_inside(low[box] * (1 - share) + high[box] * share, low[box], high[box]), box)]
        if self.points is not None:
            for root in roots[:max(POINTS // max(len(self.points), 1), 1)]:
                held = ((self.points >= lower[root]) & (self.points <= upper[root])).all(axis=1)
                batches.append((self.points[held], np.full(np.count_nonzero(held), root)))
        if len(roots) * 2 ** lower.shape[1] <= CORNERS:
            bits = np.array(list(product([False, True], repeat=lower.shape[1])))
            box = np.repeat(roots, len(bits))
            batches.append((np.where(np.tile(bits, (len(roots), 1)), high[box], low[box]), box))
        return [(x, box) for x, box in batches if len(x)]


def prove_roots(chain: Chain, check: Check, lower: FloatArray, upper: FloatArray, queries: int) -> SearchResult | None:
    """PROVED where the checker proves each root (R, n) as it is, or in slices across one input; else None.

    Slices across one input are what a search does not come to where a gate is open in one part of a root and shut in
    another: its bounds are lost at the gate, along which it splits for ever, though the property holds whatever it
    does. None as well where it would take long.

    Args:
        queries: rows that are bounded over each root.
    """
    sizes = [weight.size for weight in chain.weights]
    layers = sum(len(weight) * sum(sizes[: k + 1]) for k, weight in enumerate(chain.weights[:-1]))
    of_box = layers + queries * sum(sizes)
    if len(lower) * of_box > PRODUCTS:
        return None
    holds, margin = check(lower, upper, np.arange(len(lower)))
    trees: list[list[tuple[int, float]]] = [[(-1, 0.0)] for _ in lower]
    if not holds.all() and lower.shape[1] > SLICED_INPUTS:
        return None
    tried, most = PRODUCTS // of_box, min(SLICED_PRODUCTS // of_box, SLICES)
    least = float(margin[holds].min(initial=np.inf))
    for root in np.flatnonzero(~holds).tolist():
        sliced = _sliced(check, lower[root], upper[root], root, tried, most)
        if sliced is None:
            return None
        trees[root], worst = sliced
        most, least = most - len(trees[root]), min(least, worst)
    nodes = [node for tree in trees for node in tree]
    tree = BoxTree(np.array([side for side, _ in nodes], dtype=np.int16), np.array([wall for _, wall in nodes]))
    leaves = tree.leaves
    return SearchResult(Status.PROVED, f"{leaves} {'box covers' if leaves == 1 else 'boxes cover'} all inputs",
                        least, 1.0, leaves, tree)


def _sliced(check: Check, low: FloatArray, high: FloatArray, root: int, tried: int,
            most: int) -> tuple[list[tuple[int, float]], float] | None:
    """(input split or -1, wall) in preorder of a root (n,) that splits across one input prove, and their least margin.

    None: no input does, as `tried` boxes at most show, or more than `most` boxes would be bounded.
    """
    def over(side: int, begin: FloatArray, end: FloatArray) -> tuple[NDArray[np.bool_], FloatArray]:
        lows, highs = np.tile(low, (len(begin), 1)), np.tile(high, (len(begin), 1))
        lows[:, side], highs[:, side] = begin, end
        return check(lows, highs, np.full(len(begin), root))

    ends = np.array([0.0, 0.5, 1.0 - SLICE])
    with np.errstate(over="ignore"):
        sides = np.flatnonzero((high > low) & np.isfinite(high - low))
    for side in sides[: tried // len(ends)].tolist():
        begin = _between(low[side], high[side], ends)
        if over(side, begin, _between(low[side], high[side], ends + SLICE))[0].all():
            break
    else:
        return None
    walls, margins = [(float(low[side]), float(high[side]))], []
    children: dict[int, tuple[int, float]] = {}
    open_nodes = [0]
    while open_nodes:
        begin, end = np.array([walls[node] for node in open_nodes]).T
        if len(walls) > most:
            return None
        holds, margin = over(side, begin, end)
        margins += margin[holds].tolist()
        later = []
        for node in np.array(open_nodes)[~holds].tolist():
            begins, ends_at = walls[node]
            wall = float(_between(begins, ends_at, np.array([0.5]))[0])
            if not begins < wall < ends_at:
                return None
            children[node] = (len(walls), wall)
            later += [len(walls), len(walls) + 1]
            walls += [(begins, wall), (wall, ends_at)]
        open_nodes = later
    nodes: list[tuple[int, float]] = []
    stack = [0]
    while stack:
        first, wall = children.get(stack.pop(), (0, 0.0))  # the first node is nobody's child
        nodes.append((side if first else -1, wall))
        stack += [first + 1, first] if first else []
    return nodes, min(margins)


def _between(low: float, high: float, share: FloatArray) -> FloatArray:
    """Places of a side; of one that lies above 0 by ratios."""
    ratio = high / low if low > 0 else math.inf
    return np.minimum(low * ratio**share if math.isfinite(ratio) else low + (high - low) * share, high)


def agrees(chain: Chain, graph: Graph, lower: FloatArray, upper: FloatArray) -> bool:
    """Whether chain and normal form, which are read from the file by different code, compute the same in the boxes."""
    share = np.random.default_rng(0).random((16, 1))
    x = (lower[:1] * (1 - share) + upper[:1] * share).astype(np.float64)
    values = stage_values(chain_stages(chain.weights, chain.biases, chain.kinds), x)
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(values - graph.value(x))
        return values.shape[1] == graph.outputs and bool((off <= 4 * graph.rounding(x) * len(chain.weights)).all())


def _pairs(graph: Graph, slopes: Slopes, x: FloatArray, low: FloatArray, high: FloatArray) -> list[Witness]:
    """The worst pair of each point x (P, n) along each feature that is wrong beyond rounding; the worst first."""
    found = []
    share = np.linspace(0.0, 1.0, PLACES)
    for f, feature in enumerate(slopes.features):
        (output,) = np.flatnonzero(slopes.rows[f])
        sign, allowed = int(np.sign(slopes.rows[f, output])), slopes.allowed[f]
        line = np.repeat(x[:, None], PLACES, axis=1)
        places = low[:, feature, None] * (1 - share) + high[:, feature, None] * share
        line[:, :, feature] = _inside(places, low[:, feature, None], high[:, feature, None])
        with np.errstate(over="ignore", invalid="ignore"):  # what is infinite or NaN is no pair
            y = graph.value(line.reshape(-1, x.shape[1]))[:, output].reshape(len(x), PLACES)
            drop = np.maximum.accumulate(sign * y, axis=1) - sign * y
            falling = np.flatnonzero(~(np.nan_to_num(drop, nan=np.inf) <= 0).all(axis=1))
        if not len(falling):
            continue
        line, y = line[falling], y[falling]  # the others need no bound of what rounds, which takes longer than values
        with np.errstate(over="ignore", invalid="ignore"):
            off = graph.rounding(line.reshape(-1, x.shape[1]))[:, output].reshape(len(falling), PLACES)
        for a in range(PLACES):
            for b in range(a + 1, PLACES):
                with np.errstate(invalid="ignore", over="ignore"):
                    distance = line[:, b, feature] - line[:, a, feature]
                    excess = sign * (y[:, a] - y[:, b]) - allowed * distance - off[:, a] - off[:, b]
                for i in np.flatnonzero((excess > 0) & (distance > 0) & np.isfinite(excess)):
                    found.append(Witness(feature, sign, line[i, a], line[i, b], float(y[i, a]), float(y[i, b]),
                                         float(excess[i]), int(output)))
    return sorted(found, key=lambda witness: -witness.excess)[:OFFERS]


def _representable(lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Walls of the largest box of float32 numbers inside the box; the box's own in inputs where there is none."""
    with np.errstate(over="ignore"):
        low, high = lower.astype(np.float32), upper.astype(np.float32)
        low = np.where(low < lower, np.nextafter(low, np.float32(np.inf)), low).astype(np.float64)
        high = np.where(high > upper, np.nextafter(high, np.float32(-np.inf)), high).astype(np.float64)
    none = ~(low <= high) | ~np.isfinite(low) | ~np.isfinite(high)
    return np.where(none, lower, low), np.where(none, upper, high)


def _inside(x: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(x.astype(np.float32).astype(np.float64), low, high))


def queries_of(part: Part) -> int:
    """Rows that the checker bounds over each root of a part that is proved."""
    match part.obligation:
        case Slopes() as slopes:
            return 2 * len(slopes.features)
        case UnsafeSet() as unsafe:
            return int(unsafe.constants[0].size)
        case RelationObligation() as relation:
            return int(relation.unsafe.constants[0].size)
        case PairObligation() as pair:
            return 4 * int(pair.unsafe.constants[0].size)
        case _:
            raise AssertionError("a part that is counted, or of a forest, is not asked for")
