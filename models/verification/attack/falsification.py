"""Counterexample search: pairs of inputs that stand in the wrong order. Runs before any proof.

Random and given starting points are moved uphill on the violation: along the gradient of the pair's
gap in all coordinates, with the pair's two values of the feature themselves free. At each point the
whole feature axis is scanned at once for the largest fall. A pair that differs in several features
and violates the order always contains one that differs in a single feature, so only those are sought.

A slope that is wrong in a small region only is found by going downhill on the slope itself. It is piecewise constant,
so the descent follows a softened one, with every ReLU's derivative a sigmoid of its pre-activation, hardened step by
step; all queries descend together, and the first witness ends it. (Measured: of networks trained against sampled
violations it refutes in 0.02 to 0.5 s those that the scan and a mixed-integer solver leave open after 100 s. Steps of
full length found more than steps of random length, momentum or normalised gradients.)

Symbols: K candidates, G grid values of a feature, n inputs, R boxes, Q queries; x (K, n).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.verification.language.specification import Specification
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.graph import FloatArray, Graph
from models.verification.network.graph_tensors import GraphTensors, activate
from models.verification.verdict import Witness

# Rounding of a float32 forward pass at these sizes stays near 1e-6 of the output range; a witness must exceed it.
REPLAY_MARGIN = 1e-5
# Softness of a ReLU's derivative, first and last, in units of the layer's mean |pre-activation|; steps in shares of the
# box, first and last.
SOFTEST, HARDEST = 0.3, 0.01
WIDEST_STEP, NARROWEST_STEP = 0.1, 0.005
# Halvings of a side of the box: 2^-20 of it is near what float32 can tell apart.
NEAREST = 20
# Points with a wrong slope around which pairs are tried.
SUSPECTS = 8


@dataclass(frozen=True)
class Effort:
    """Of a descent: random points, of which each query's best climbers take so many steps."""

    samples: int = 2048
    climbers: int = 128
    steps: int = 60


@dataclass(frozen=True)
class SlopeQuery:
    """sign * y[output] must not fall along `feature` by more than is allowed per unit."""

    feature: int
    sign: int
    output: int = 0


class SlopeFalsifier:
    """Looks for pairs in the wrong order in boxes lower, upper (R, n) of one network.

    tolerance: what each query allows per unit of its feature, (Q,) or one for all; margin: a fall counts beyond that
    plus `margin` * (1 + |y|); 0 where the runtime itself judges every witness; over: whether to stop between rounds,
    with what was found until then.
    """

    def __init__(self, graph: Graph, queries: Sequence[SlopeQuery], tolerance: float | FloatArray, lower: FloatArray,
                 upper: FloatArray, margin: float = REPLAY_MARGIN) -> None:
        self.graph, self.queries, self.margin = graph, tuple(queries), margin
        self.tolerance = np.broadcast_to(np.asarray(tolerance, dtype=np.float64), len(self.queries)).copy()
        self.lower, self.upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        self.tensors = GraphTensors(graph, torch.float32)
        self.features = np.array([query.feature for query in self.queries], dtype=np.int64)
        self.signs = np.array([query.sign for query in self.queries], dtype=np.int64)
        self.outputs = np.array([query.output for query in self.queries], dtype=np.int64)
        # (Q,) shares of the longest side: what makes falls along features of different units comparable
        sides = (self.upper / 2 - self.lower / 2)[:, self.features].max(axis=0)
        self.sides = torch.as_tensor(sides / sides.max(initial=np.finfo(np.float64).tiny))

    def search(self, points: FloatArray | None = None, limit: int = 64, samples: int = 512, steps: int = 10,
               grid: int = 17, seed: int = 0, over: Callable[[], bool] = lambda: False) -> tuple[Witness, ...]:
        """Witnesses whose violation exceeds tolerance and float32 rounding, most violated first; empty: none found.

        Args:
            points: optional starting points (m, n), for example training rows; clipped to the nearest box.
            limit: largest number of witnesses returned, shared among the queries.
            samples: random starting points a query; steps: gradient steps; grid: values along the feature's axis.
        """
        generator = torch.Generator().manual_seed(seed)
        lower, upper = (torch.as_tensor(v, dtype=torch.float32) for v in (self.lower, self.upper))
        start, box = self._random(samples, generator)
        if points is not None and len(points):
            given = torch.as_tensor(np.asarray(points), dtype=torch.float32)
            given = given[torch.randperm(len(given), generator=generator)[:samples]]
            nearest = _nearest(given, lower, upper)
            start = torch.cat([start, given.clamp(lower[nearest], upper[nearest])])
            box = torch.cat([box, nearest])
        found: list[Witness] = []
        for which, query in enumerate(self.queries):
            if over():
                break
            if not (self.lower[:, query.feature] < self.upper[:, query.feature]).any():
                continue
            low, high, pair_box = self._climb(start, box, which, steps, grid, over)
            whose = np.full(len(low), which)
            found += self._witnesses(whose, low, high, pair_box)[: max(1, limit // len(self.queries))]
        return tuple(sorted(found, key=lambda witness: -witness.excess))

    def glance(self, samples: int = 64, seed: int = 0) -> tuple[tuple[Witness, ...], float]:
        """Witnesses around random points with a wrong slope, at the least cost; the mean size of the slopes there."""
        x, box = self._random(samples, torch.Generator().manual_seed(seed))
        slopes = self._slopes(x)
        return self._around(x, box, slopes), float(slopes.abs().mean())

    def descend(self, effort: Effort = Effort(), seed: int = 0,
                over: Callable[[], bool] = lambda: False) -> tuple[Witness, ...]:
        """Witnesses around the first points with a wrong slope that a descent on the slope meets; see the module
        docstring."""
        generator = torch.Generator().manual_seed(seed)
        x, box = self._random(effort.samples, generator)
        slopes = self._slopes(x)
        if over() or not len(self.queries):
            return ()
        if found := self._around(x, box, slopes):
            return found
        start = slopes.argsort(dim=0)[: effort.climbers].T  # (Q, K)
        which = torch.arange(len(self.queries)).repeat_interleave(start.shape[1])
        x, box = x[start.reshape(-1)], box[start.reshape(-1)]
        lower, upper = (torch.as_tensor(v, dtype=torch.float32)[box] for v in (self.lower, self.upper))
        for step in range(effort.steps + 1):
            if over():
                break
            done = step / effort.steps
            here = x.requires_grad_(True)
            soft, hard = self._soft_slopes(here, which, SOFTEST * (HARDEST / SOFTEST) ** done)
            if not soft.requires_grad:  # a network without hidden neurons has one slope
                break
            (downhill,) = torch.autograd.grad(soft.sum(), here)
            x = x.detach()
            if found := self._near_worst(x, box, hard, which):
                return found
            reach = WIDEST_STEP * (NARROWEST_STEP / WIDEST_STEP) ** done * (upper - lower)
            x = torch.minimum(torch.maximum(x - reach * downhill.sign(), lower), upper)
        return ()

    def near(self, points: FloatArray, which: NDArray[np.int64], box: NDArray[np.int64]) -> tuple[Witness, ...]:
        """Searches close to points (m, n) of boxes (m,) at which the slopes of queries `which` (m,) have a wrong sign.

        A fall that is narrow along the feature's axis lies between the values that `search` scans: here pairs stand
        around each point, half the side of the box apart, a quarter, and so on down to NEAREST halvings. At most one
        witness a point.
        """
        points = np.asarray(points, dtype=np.float64)
        rows, features = np.arange(len(points)), self.features[which]
        share = 0.5 ** np.arange(1, NEAREST + 1)
        low, high = (np.repeat(points[:, None, :], len(share), axis=1) for _ in range(2))
        walls = (side[box, features][:, None] * (share / 2) for side in (self.upper, self.lower))
        half = np.subtract(*walls)
        low[rows, :, features] -= half
        high[rows, :, features] += half
        below, above = (torch.as_tensor(side.reshape(-1, points.shape[1])) for side in (low, high))
        whose, boxes, point = (np.repeat(index, len(share)) for index in (which, box, rows))
        return tuple(self._witnesses(whose, below, above, torch.as_tensor(boxes), point))

    def _random(self, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Points (samples, n), uniform over boxes that are drawn at random, and their boxes (samples,)."""
        lower, upper = (torch.as_tensor(v, dtype=torch.float32) for v in (self.lower, self.upper))
        box = torch.randint(len(lower), (samples,), generator=generator) if len(lower) > 1 else torch.zeros(
            samples, dtype=torch.long)
        return lower[box] + (upper - lower)[box] * torch.rand(samples, lower.shape[1], generator=generator), box

    def _slopes(self, x: Tensor) -> Tensor:
        """(K, Q): sign * dy[output]/dx[feature] of every query at x (K, n)."""
        rows = torch.zeros(len(self.queries), self.graph.outputs)
        rows[torch.arange(len(rows)), torch.as_tensor(self.outputs)] = torch.as_tensor(self.signs, dtype=rows.dtype)
        return self.tensors.slopes(x, self.features.tolist(), rows)

    def _around(self, x: Tensor, box: Tensor, slopes: Tensor) -> tuple[Witness, ...]:
        """Witnesses near the points x (K, n) whose slopes (K, Q) are the worst of all queries'."""
        which = (slopes * self.sides).argmin(dim=1)
        return self._near_worst(x, box, slopes.gather(1, which[:, None])[:, 0], which)

    def _near_worst(self, x: Tensor, box: Tensor, slope: Tensor, which: Tensor) -> tuple[Witness, ...]:
        wide = torch.as_tensor(self.lower < self.upper)[box, torch.as_tensor(self.features)[which]]
        wrong = (slope < -torch.as_tensor(self.tolerance)[which]) & wide
        if not wrong.any():
            return ()
        worst = torch.where(wrong, slope * self.sides[which], torch.inf).argsort()[: min(SUSPECTS, int(wrong.sum()))]
        return self.near(x[worst].double().numpy(), which[worst].numpy(), box[worst].numpy())

    def _soft_slopes(self, x: Tensor, which: Tensor, softness: float) -> tuple[Tensor, Tensor]:
        """Each (K,): sign * dy/dx[feature] of query which[k] at x (K, n), softened for differentiation and as it is."""
        graph, tensors, rows = self.graph, self.tensors, torch.arange(len(x))
        start = torch.zeros(x.shape)
        start[rows, torch.as_tensor(self.features)[which]] = torch.as_tensor(self.signs, dtype=x.dtype)[which]
        values, soft, hard = [x], [start], [start]
        for k, layer in enumerate(graph.layers):
            z = tensors.affine(k, values)
            a = activate(layer, z)
            if layer.kind in ("relu", "leaky_relu"):
                width = softness * z.detach().abs().mean(0).clamp_min(1e-6)
                d = layer.leak + (1 - layer.leak) * torch.sigmoid(z / width)
                step = layer.leak + (1 - layer.leak) * (z.detach() > 0)
            else:
                d = 1 - a * a if layer.kind == "tanh" else a * (1 - a)
                step = d.detach()
            values.append(a)
            soft.append(d * _sum(soft[s] @ matrix.T for s, matrix in tensors.matrices[k].items()))
            hard.append(step * _sum(hard[s] @ matrix.T for s, matrix in tensors.matrices[k].items()))
        rows_of = torch.as_tensor(self.outputs)[which]
        last = tensors.matrices[len(graph.layers)].items()
        return (_sum((soft[s] * matrix[rows_of]).sum(1) for s, matrix in last),
                _sum((hard[s] * matrix[rows_of]).sum(1) for s, matrix in last))

    def _climb(self, start: Tensor, box: Tensor, which: int, steps: int, grid: int,
               over: Callable[[], bool]) -> tuple[Tensor, Tensor, Tensor]:
        """Best pairs (low, high), each (K, n), and their boxes, after gradient ascent from the best scanned points."""
        query, tolerance = self.queries[which], float(self.tolerance[which])
        low, high, gap = self._scan(start, box, which, grid)
        keep = torch.argsort(gap, descending=True)[:64]
        low, high, box = low[keep], high[keep], box[keep]
        lower, upper = (torch.as_tensor(v, dtype=torch.float32)[box] for v in (self.lower, self.upper))
        width = (upper - lower).clamp_min(1e-12)
        rate = 0.1
        for _ in range(steps):
            if over():
                break
            both = torch.stack([low, high]).requires_grad_(True)
            distance = both[1, :, query.feature] - both[0, :, query.feature]
            outputs = self.tensors(both)[..., query.output]
            violation = query.sign * (outputs[0] - outputs[1]) - tolerance * distance
            (slope,) = torch.autograd.grad(violation.sum(), both)
            shared = slope.sum(0)
            with torch.no_grad():
                move = rate * width * (shared * width).sign()
                move[:, query.feature] = 0
                moved = (low + move).clamp(lower, upper)
                new_low, new_high, new_gap = self._scan(moved, box, which, grid)
                better = (new_gap > violation.detach())[:, None]
                low, high = torch.where(better, new_low, low), torch.where(better, new_high, high)
            rate *= 0.75
        return low.detach(), high.detach(), box

    @torch.no_grad()
    def _scan(self, x: Tensor, box: Tensor, which: int, grid: int) -> tuple[Tensor, Tensor, Tensor]:
        """For each x (K, n) the pair along the feature's axis with the largest violation: (low, high, gap (K,))."""
        query, tolerance = self.queries[which], float(self.tolerance[which])
        sides = (torch.as_tensor(v[:, query.feature], dtype=torch.float32)[box] for v in (self.lower, self.upper))
        lower, upper = (side[:, None] for side in sides)
        axis = (torch.linspace(0, 1, grid) * (upper - lower) + lower).clamp(lower, upper)
        line = x[:, None, :].repeat(1, grid, 1)
        line[:, :, query.feature] = axis
        # sign * f + tolerance * x may never fall along the axis: the largest fall ends at some position
        level = query.sign * self.tensors(line)[..., query.output] + tolerance * axis
        # NaN is no fall, though cummax and max take it for the largest
        peak, peak_at = torch.cummax(torch.where(level.isnan(), -torch.inf, level), dim=1)
        fall = peak - level
        gap, end = torch.where(fall.isnan(), -torch.inf, fall).max(dim=1)
        begin = peak_at.gather(1, end[:, None])[:, 0]
        rows = torch.arange(len(x))
        return line[rows, begin], line[rows, end], gap

    def _witnesses(self, which: NDArray[np.int64], low: Tensor, high: Tensor, box: Tensor,
                   group: NDArray[np.int64] | None = None) -> list[Witness]:
        """Pairs (K, n) of queries `which` (K,) that hold up in float64 on the boxes' float64 walls, worst first; of
        each group (K,) the worst."""
        at, rows = box.numpy(), np.arange(len(which))
        feature, sign, output = self.features[which], self.signs[which], self.outputs[which]
        a = np.clip(low.double().numpy(), self.lower[at], self.upper[at])
        b = np.clip(high.double().numpy(), self.lower[at], self.upper[at])
        distance = b[rows, feature] - a[rows, feature]
        with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity are no witnesses
            both = np.concatenate([a, b])
            f_a, f_b = np.split(self.graph.value(both), 2)
            doubt_a, doubt_b = np.split(self.graph.rounding(both), 2)
            f_a, f_b, doubt = f_a[rows, output], f_b[rows, output], (doubt_a + doubt_b)[rows, output]
            margin = self.margin * (1.0 + np.maximum(np.abs(f_a), np.abs(f_b))) + doubt
            excess = sign * (f_a - f_b) - self.tolerance[which] * distance - margin
        order = np.argsort(-excess)
        order = order[(excess[order] > 0) & (distance[order] > 0)]
        if group is not None:
            order = order[np.sort(np.unique(group[order], return_index=True)[1])]
        return [Witness(int(feature[i]), int(sign[i]), a[i], b[i], float(f_a[i]), float(f_b[i]), float(excess[i]),
                        int(output[i])) for i in order]


def _sum(terms: Iterable[Tensor]) -> Tensor:
    first, *others = terms  # a network's layer takes some value
    return sum(others, first)


def _nearest(points: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """(m,): which of the boxes (R, n) each point (m, n) is in, or nearest to; NaN is in the first."""
    if len(lower) == 1:
        return torch.zeros(len(points), dtype=torch.long)
    return torch.stack([((low - points).clamp_min(0) + (points - high).clamp_min(0)).sum(1)
                        for low, high in zip(lower, upper, strict=True)], 1).nan_to_num(0.0).argmin(dim=1)


def falsify(network: ReluNetwork, specification: Specification, points: FloatArray | None = None, limit: int = 64,
            samples: int = 512, steps: int = 10, seed: int = 0) -> tuple[Witness, ...]:
    """Searches the specification's box for pairs that violate its monotone properties; see SlopeFalsifier.search."""
    return slope_falsifier(network.graph, specification).search(points, limit, samples, steps, seed=seed)


def slope_falsifier(graph: Graph, specification: Specification) -> SlopeFalsifier:
    """The search over the whole box of a specification."""
    queries = [SlopeQuery(feature, sign) for feature, sign in specification.queries]
    return SlopeFalsifier(graph, queries, specification.tolerance, specification.lower[None], specification.upper[None])
