"""Search for an input whose outputs lie in an unsafe set: refutes most wrong properties in milliseconds.

Three stages on whole batches: random points in every box, and given ones; gradient ascent (projected, sign steps, as
PGD) on the violation from the best of them; random moves of shrinking size around the best, which cross the kinks where
a gradient stops. Points are representable in float32 wherever the box holds such a point, so that what is found can be
replayed on the exported file.

What counts as a witness: output_witness.py. Whether it replays in the type that ships the caller says (`accept`).

Symbols: R boxes, n inputs, o outputs, m points, P pairs of a point and a box, K alternatives of M constraints.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from models.verification.attack.output_witness import OutputWitness, output_witnesses
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import FloatArray, Graph
from models.verification.network.graph_tensors import GraphTensors

CLIMBERS = 32
GRADIENT_STEPS = 8
MOVES, MOVE_ROUNDS, SHRINK = 16, 12, 0.7
# Points offered for replay at a time, the most violated first.
OFFERS = 16
# Pairs evaluated at a time; walls that given points are held against, in all and at a time.
PAIRS, MOST_WALLS, WALLS = 2**16, 2**28, 2**22
LEAST_POINTS = 512


Accept = Callable[[OutputWitness], bool]


class OutputFalsifier:
    """Looks for witnesses against one graph and one unsafe set.

    accept: whether a witness counts (it must replay where the network will run); over: whether to stop between rounds.
    """

    def __init__(self, graph: Graph, unsafe: UnsafeSet, device: str = "cpu") -> None:
        self.graph, self.unsafe, self.device = graph, unsafe, device
        self.single, self.double = (GraphTensors(graph, dtype, device) for dtype in (torch.float32, torch.float64))
        as_tensor = torch.as_tensor
        self.lower, self.upper = as_tensor(unsafe.lower, device=device), as_tensor(unsafe.upper, device=device)
        # of a box without width in float32 only its float64 points are left
        self.low, self.high = _inward(self.lower, self.upper)
        self.coefficients = as_tensor(unsafe.coefficients, device=device)
        self.constants = as_tensor(unsafe.constants, device=device)

    def search(self, points: FloatArray | None = None, samples: int = 2000, seed: int = 0,
               accept: Accept = lambda witness: True, over: Callable[[], bool] = lambda: False) -> OutputWitness | None:
        """The first witness found, or None.

        Args:
            points: (m, n), starting points, used in every box that holds them, or else in the nearest; rows with NaN
                are left out, and so is a random part where points times boxes are more than can be held against.
        """
        random = torch.Generator(device=self.device).manual_seed(seed)
        boxes = len(self.lower)
        box = torch.arange(boxes, device=self.device).repeat_interleave(max(samples // boxes, 2))
        share = torch.rand(len(box), self.lower.shape[1], generator=random, device=self.device, dtype=torch.float64)
        x = self._inside(self.low[box] + (self.high - self.low)[box] * share, box)
        x, box, violation = self._worst(x, box)
        if points is not None and len(points):
            x, box, violation = self._with_given(points, x, box, violation, random, over)
        for stage in (self._climb, self._wander):
            found = self._witness(x, box, violation, accept)
            if found is not None or over():
                return found
            x, violation = stage(x, box, random, over)
            keep = violation.argsort(descending=True)
            x, box, violation = x[keep], box[keep], violation[keep]
        return self._witness(x, box, violation, accept)

    def confirm(self, suspects: Tensor, box: Tensor, accept: Accept = lambda witness: True) -> OutputWitness | None:
        """A witness among the points (m, n) of boxes (m,), or None."""
        x = self._inside(suspects, box)
        return self._witness(x, box, self._violation(x, box), accept)

    def _with_given(self, points: FloatArray, x: Tensor, box: Tensor, violation: Tensor, random: torch.Generator,
                    over: Callable[[], bool]) -> tuple[Tensor, Tensor, Tensor]:
        """The worst of these pairs and of the points in the boxes that hold them."""
        given = torch.as_tensor(points, dtype=torch.float64, device=self.device)
        given = given[~given.isnan().any(dim=1)]
        most = max(MOST_WALLS // self.lower.numel(), LEAST_POINTS)
        if len(given) > most:
            given = given[torch.randperm(len(given), generator=random, device=self.device)[:most]]
        for part in given.split(max(WALLS // self.lower.numel(), 1)):
            if over():
                break
            here = part[:, None]
            outside = torch.maximum(self.lower - here, here - self.upper).amax(dim=2).clamp_min(0)
            held = outside == 0
            held[torch.arange(len(part), device=self.device), outside.argmin(dim=1)] = True
            point, of = held.nonzero(as_tuple=True)
            more = self._worst(self._inside(part[point], of), of)
            pairs = [torch.cat(both) for both in zip((x, box, violation), more, strict=True)]
            keep = pairs[2].argsort(descending=True)[:CLIMBERS]
            x, box, violation = (values[keep] for values in pairs)
        return x, box, violation

    def _inside(self, x: Tensor, box: Tensor) -> Tensor:
        """Points of float32 where the box has them, in any case inside of the box's own walls."""
        near = x.float().double()
        near = torch.minimum(torch.maximum(near, self.low[box]), self.high[box])
        return torch.minimum(torch.maximum(near, self.lower[box]), self.upper[box])

    def _rows(self, tensors: GraphTensors, x: Tensor, box: Tensor) -> Tensor:
        """(P, K, M): the constraints' values at x (P, n)."""
        y = tensors(x.to(tensors.dtype)).double()
        return (self.coefficients[box] @ y[:, None, :, None])[..., 0] + self.constants[box]

    @torch.no_grad()
    def _violation(self, x: Tensor, box: Tensor) -> Tensor:
        """(P,): how far inside the unsafe set the outputs are; NaN is not unsafe."""
        rows = self._rows(self.double, x, box)
        return torch.where(rows.isnan(), -torch.inf, rows).amin(dim=2).amax(dim=1)

    def _worst(self, x: Tensor, box: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The CLIMBERS most violated pairs of x (P, n) and box (P,), and by how much."""
        violation = torch.cat([self._violation(*part) for part in zip(x.split(PAIRS), box.split(PAIRS), strict=True)])
        keep = violation.argsort(descending=True)[:CLIMBERS]
        return x[keep], box[keep], violation[keep]

    def _climb(self, x: Tensor, box: Tensor, random: torch.Generator,
               over: Callable[[], bool]) -> tuple[Tensor, Tensor]:
        width = (self.high - self.low)[box]
        best, best_value = x, self._violation(x, box)
        rate = 0.2
        for _ in range(GRADIENT_STEPS):
            if over():
                break
            here = best.clone().requires_grad_(True)
            rows = self._rows(self.single, here, box)
            (slope,) = torch.autograd.grad(rows.amin(dim=2).amax(dim=1).sum(), here)
            moved = self._inside(best + rate * width * slope.sign(), box)
            value = self._violation(moved, box)
            better = value > best_value
            best = torch.where(better[:, None], moved, best)
            best_value = torch.maximum(value, best_value)
            rate *= 0.7
        return best, best_value

    @torch.no_grad()
    def _wander(self, x: Tensor, box: Tensor, random: torch.Generator,
                over: Callable[[], bool]) -> tuple[Tensor, Tensor]:
        width, reach = (self.high - self.low)[box][:, None], 0.5
        best_value = self._violation(x, box)
        rows = torch.arange(len(x), device=x.device)
        many = box.repeat_interleave(MOVES)
        for _ in range(MOVE_ROUNDS):
            if over():
                break
            step = 2 * torch.rand(len(x), MOVES, x.shape[1], generator=random, device=x.device, dtype=x.dtype) - 1
            moved = self._inside((x[:, None] + reach * width * step).flatten(0, 1), many)
            value, which = self._violation(moved, many).reshape(len(x), MOVES).max(dim=1)
            better = value > best_value
            x = torch.where(better[:, None], moved.reshape(len(x), MOVES, -1)[rows, which], x)
            best_value = torch.maximum(value, best_value)
            if self._certain(x, box, best_value):
                break
            reach *= SHRINK
        return x, best_value

    def _witness(self, x: Tensor, box: Tensor, violation: Tensor, accept: Accept) -> OutputWitness | None:
        return next((witness for witness in self._certain(x, box, violation) if accept(witness)), None)

    def _certain(self, x: Tensor, box: Tensor, violation: Tensor) -> list[OutputWitness]:
        """The most violated of the points (P, n), at most OFFERS, that are unsafe beyond rounding; the worst first."""
        values, order = violation.topk(min(OFFERS, len(violation)))
        order = order[values >= 0]
        if not len(order):
            return []
        return output_witnesses(self.graph, self.unsafe, x[order].cpu().numpy(), box[order].cpu().numpy(),
                                violation[order].cpu().numpy())


def _inward(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The largest box with float32 walls inside the box; the box itself in inputs where there is none."""
    low, high = lower.float(), upper.float()
    infinity = torch.full_like(low, np.inf)
    low = torch.where(low.double() < lower, torch.nextafter(low, infinity), low).double()
    high = torch.where(high.double() > upper, torch.nextafter(high, -infinity), high).double()
    none = low > high
    return torch.where(none, lower, low), torch.where(none, upper, high)
