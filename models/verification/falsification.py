"""Counterexample search: pairs of inputs that stand in the wrong order. Runs before any proof.

Random and given starting points are moved uphill on the violation: along the gradient of the pair's
gap in all coordinates, with the pair's two values of the feature themselves free. At each point the
whole feature axis is scanned at once for the largest fall. A pair that differs in several features
and violates the order always contains one that differs in a single feature, so only those are sought.

A slope that is wrong in a small region only is found by going downhill on the slope itself. It is piecewise constant,
so the descent follows a softened one, with every ReLU's derivative a sigmoid of its pre-activation, hardened step by
step. (Measured: of networks trained against sampled violations it refutes in 0.1 s those that the scan and a
mixed-integer solver leave open after 100 s.)

Symbols: K candidates, G grid values of a feature, n inputs, R boxes; x (K, n).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.verification.graph import FloatArray, Graph, activate
from models.verification.network import ReluNetwork
from models.verification.specification import Specification
from models.verification.verdict import Witness

# Rounding of a float32 forward pass at these sizes stays near 1e-6 of the output range; a witness must exceed it.
REPLAY_MARGIN = 1e-5
# Softness of a ReLU's derivative, first and last, in units of the layer's mean |pre-activation|; steps in shares of the
# box, first and last.
SOFTEST, HARDEST = 0.6, 0.02
WIDEST_STEP, NARROWEST_STEP = 0.05, 0.005
# Halvings of a side of the box: 2^-20 of it is near what float32 can tell apart.
NEAREST = 20


@dataclass(frozen=True)
class SlopeQuery:
    """sign * y[output] must not fall along `feature` by more than `tolerance` per unit."""

    feature: int
    sign: int
    output: int = 0


class SlopeFalsifier:
    """Looks for pairs in the wrong order in boxes lower, upper (R, n) of one network.

    over: whether to stop between rounds, with what was found until then.
    """

    def __init__(self, graph: Graph, queries: Sequence[SlopeQuery], tolerance: float, lower: FloatArray,
                 upper: FloatArray) -> None:
        self.graph, self.queries, self.tolerance = graph, tuple(queries), tolerance
        self.lower, self.upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        self.tensors = graph.tensors(torch.float32)

    def search(self, points: FloatArray | None = None, limit: int = 64, samples: int = 512, steps: int = 10,
               grid: int = 17, seed: int = 0, over: Callable[[], bool] = lambda: False) -> tuple[Witness, ...]:
        """Witnesses whose violation exceeds tolerance and float32 rounding, most violated first; empty: none found.

        Args:
            points: optional starting points (m, n), for example training rows; clipped to the first box.
            limit: largest number of witnesses returned, shared among the queries.
            samples: random starting points a query; steps: gradient steps; grid: values along the feature's axis.
        """
        generator = torch.Generator().manual_seed(seed)
        lower, upper = (torch.as_tensor(v, dtype=torch.float32) for v in (self.lower, self.upper))
        box = torch.randint(len(lower), (samples,), generator=generator) if len(lower) > 1 else torch.zeros(
            samples, dtype=torch.long)
        start = lower[box] + (upper - lower)[box] * torch.rand(samples, lower.shape[1], generator=generator)
        if points is not None and len(points):
            given = torch.as_tensor(np.asarray(points), dtype=torch.float32)
            order = torch.randperm(len(given), generator=generator)[:samples]
            start = torch.cat([start, given[order].clamp(lower[0], upper[0])])
            box = torch.cat([box, torch.zeros(len(order), dtype=torch.long)])
        found: list[Witness] = []
        for query in self.queries:
            if over():
                break
            if not (self.lower[:, query.feature] < self.upper[:, query.feature]).any():
                continue
            low, high, pair_box = self._climb(start, box, query, steps, grid, over)
            found += self._witnesses(query, low, high, pair_box)[: max(1, limit // len(self.queries))]
        return tuple(sorted(found, key=lambda witness: -witness.excess))

    def descend(self, samples: int = 2048, climbers: int = 128, steps: int = 60, seed: int = 0,
                over: Callable[[], bool] = lambda: False) -> tuple[Witness, ...]:
        """Witnesses around the points where the slope itself is found to be smallest; see the module docstring."""
        generator = torch.Generator().manual_seed(seed)
        lower, upper = (torch.as_tensor(v, dtype=torch.float32) for v in (self.lower, self.upper))
        found: list[Witness] = []
        for query in self.queries:
            if over():
                break
            row = torch.zeros(self.graph.outputs)
            row[query.output] = query.sign
            box = torch.randint(len(lower), (samples,), generator=generator)
            x = lower[box] + (upper - lower)[box] * torch.rand(samples, lower.shape[1], generator=generator)
            slope = self.tensors.gradient(x, row)[:, query.feature]
            keep = slope.argsort()[:climbers]
            x, box, best = x[keep], box[keep], slope[keep]
            best_x = x.clone()
            for step in range(steps):
                if over():
                    break
                done = step / steps
                here = x.clone().requires_grad_(True)
                soft = self._soft_slope(here, query, SOFTEST * (HARDEST / SOFTEST) ** done)
                (downhill,) = torch.autograd.grad(soft.sum(), here)
                reach = WIDEST_STEP * (NARROWEST_STEP / WIDEST_STEP) ** done * (upper - lower)[box]
                move = reach * downhill.sign() * torch.rand(x.shape, generator=generator)
                x = torch.minimum(torch.maximum(x - move, lower[box]), upper[box])
                slope = self.tensors.gradient(x, row)[:, query.feature]
                better = slope < best
                best, best_x = torch.minimum(slope, best), torch.where(better[:, None], x, best_x)
            order = best.argsort()[: int((best < -self.tolerance).sum())]
            found += self.near(best_x[order].double().numpy(), box[order].numpy())
        return tuple(sorted(found, key=lambda witness: -witness.excess))

    def _soft_slope(self, x: Tensor, query: SlopeQuery, softness: float) -> Tensor:
        """(K,): sign * dy/dx[feature] with softened derivatives, differentiable by x (K, n)."""
        graph, tensors = self.graph, self.tensors
        one = torch.zeros_like(x)
        one[:, query.feature] = query.sign
        values, tangents = [x], [one]
        for k, layer in enumerate(graph.layers):
            z = tensors.affine(k, values)
            u = sum(tangents[s] @ matrix.T for s, matrix in tensors.matrices[k].items())
            a = activate(layer, z)
            if layer.kind in ("relu", "leaky_relu"):
                width = softness * z.detach().abs().mean(0).clamp_min(1e-6)
                d = layer.leak + (1 - layer.leak) * torch.sigmoid(z / width)
            else:
                d = 1 - a * a if layer.kind == "tanh" else a * (1 - a)
            values.append(a)
            tangents.append(d * u)
        last = len(graph.layers)
        outputs = sum(tangents[s] @ matrix[query.output] for s, matrix in tensors.matrices[last].items())
        assert isinstance(outputs, Tensor)  # a network has an output
        return outputs

    def near(self, points: FloatArray, box: FloatArray | None = None) -> tuple[Witness, ...]:
        """Searches close to points (m, n) of boxes (m,) at which a slope is known to have the wrong sign.

        A fall that is narrow along the feature's axis lies between the values that `search` scans: here pairs stand
        around each point, half the side of the box apart, a quarter, and so on down to NEAREST halvings. At most 32
        points.
        """
        points = np.asarray(points, dtype=np.float64)[:32]
        boxes = np.zeros(len(points), dtype=np.int64) if box is None else np.asarray(box)[:32]
        share = 0.5 ** np.arange(1, NEAREST + 1)
        found: list[Witness] = []
        for query in self.queries:
            low, high = (np.repeat(points[:, None, :], len(share), axis=1) for _ in range(2))
            walls = (side[boxes, query.feature][:, None] * (share / 2) for side in (self.upper, self.lower))
            half = np.subtract(*walls)
            low[:, :, query.feature] -= half
            high[:, :, query.feature] += half
            below, above = (torch.as_tensor(side.reshape(-1, points.shape[1])) for side in (low, high))
            found += self._witnesses(query, below, above, torch.as_tensor(np.repeat(boxes, len(share))))
        return tuple(sorted(found, key=lambda witness: -witness.excess))

    def _climb(self, start: Tensor, box: Tensor, query: SlopeQuery, steps: int, grid: int,
               over: Callable[[], bool]) -> tuple[Tensor, Tensor, Tensor]:
        """Best pairs (low, high), each (K, n), and their boxes, after gradient ascent from the best scanned points."""
        low, high, gap = self._scan(start, box, query, grid)
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
            violation = query.sign * (outputs[0] - outputs[1]) - self.tolerance * distance
            (slope,) = torch.autograd.grad(violation.sum(), both)
            shared = slope.sum(0)
            with torch.no_grad():
                move = rate * width * (shared * width).sign()
                move[:, query.feature] = 0
                moved = (low + move).clamp(lower, upper)
                new_low, new_high, new_gap = self._scan(moved, box, query, grid)
                better = (new_gap > violation.detach())[:, None]
                low, high = torch.where(better, new_low, low), torch.where(better, new_high, high)
            rate *= 0.75
        return low.detach(), high.detach(), box

    @torch.no_grad()
    def _scan(self, x: Tensor, box: Tensor, query: SlopeQuery, grid: int) -> tuple[Tensor, Tensor, Tensor]:
        """For each x (K, n) the pair along the feature's axis with the largest violation: (low, high, gap (K,))."""
        sides = (torch.as_tensor(v[:, query.feature], dtype=torch.float32)[box] for v in (self.lower, self.upper))
        lower, upper = (side[:, None] for side in sides)
        axis = (torch.linspace(0, 1, grid) * (upper - lower) + lower).clamp(lower, upper)
        line = x[:, None, :].repeat(1, grid, 1)
        line[:, :, query.feature] = axis
        # sign * f + tolerance * x may never fall along the axis: the largest fall ends at some position
        level = query.sign * self.tensors(line)[..., query.output] + self.tolerance * axis
        # NaN is no fall, though cummax and max take it for the largest
        peak, peak_at = torch.cummax(torch.where(level.isnan(), -torch.inf, level), dim=1)
        fall = peak - level
        gap, end = torch.where(fall.isnan(), -torch.inf, fall).max(dim=1)
        begin = peak_at.gather(1, end[:, None])[:, 0]
        rows = torch.arange(len(x))
        return line[rows, begin], line[rows, end], gap

    def _witnesses(self, query: SlopeQuery, low: Tensor, high: Tensor, box: Tensor) -> list[Witness]:
        """Pairs that hold up in float64 on the box's float64 walls, most violated first."""
        at = box.numpy()
        a = np.clip(low.double().numpy(), self.lower[at], self.upper[at])
        b = np.clip(high.double().numpy(), self.lower[at], self.upper[at])
        distance = b[:, query.feature] - a[:, query.feature]
        with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity are no witnesses
            f_a, f_b = (self.graph.value(side)[:, query.output] for side in (a, b))
            scale = 1.0 + np.maximum(np.abs(f_a), np.abs(f_b))
            margin = REPLAY_MARGIN * scale + sum(self.graph.rounding(side)[:, query.output] for side in (a, b))
            excess = query.sign * (f_a - f_b) - self.tolerance * distance - margin
        order = [int(i) for i in np.argsort(-excess) if excess[i] > 0 and distance[i] > 0]
        return [Witness(query.feature, query.sign, a[i], b[i], float(f_a[i]), float(f_b[i]), float(excess[i]),
                        query.output) for i in order]


def falsify(network: ReluNetwork, specification: Specification, points: FloatArray | None = None, limit: int = 64,
            samples: int = 512, steps: int = 10, seed: int = 0) -> tuple[Witness, ...]:
    """Searches the specification's box for pairs that violate its monotone properties; see SlopeFalsifier.search."""
    return slope_falsifier(network.graph, specification).search(points, limit, samples, steps, seed=seed)


def slope_falsifier(graph: Graph, specification: Specification) -> SlopeFalsifier:
    """The search over the whole box of a specification."""
    queries = [SlopeQuery(feature, sign) for feature, sign in specification.queries]
    return SlopeFalsifier(graph, queries, specification.tolerance, specification.lower[None], specification.upper[None])
