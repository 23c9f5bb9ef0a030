"""Search for an input whose outputs lie in an unsafe set: refutes most wrong properties in milliseconds.

Three stages on whole batches: random points in every box; gradient ascent (projected, sign steps, as PGD) on the
violation from the best of them; random moves of shrinking size around the best, which cross the kinks where a
gradient stops. Points are representable in float32 wherever the box holds such a point, so that what is found can be
replayed on the exported file.

Symbols: R boxes, n inputs, o outputs, m points.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.verification.graph import FloatArray, Graph, GraphTensors
from models.verification.unsafe_set import UnsafeSet

CLIMBERS = 32
GRADIENT_STEPS = 8
MOVES, MOVE_ROUNDS, SHRINK = 16, 12, 0.7


@dataclass(frozen=True)
class OutputWitness:
    """An input x (n,) of box number `box` whose outputs (o,) are unsafe by `violation` >= 0, in float64."""

    box: int
    x: FloatArray
    outputs: FloatArray
    violation: float


class OutputFalsifier:
    """Looks for witnesses against one graph and one unsafe set."""

    def __init__(self, graph: Graph, unsafe: UnsafeSet, device: str = "cpu") -> None:
        self.graph, self.unsafe, self.device = graph, unsafe, device
        self.single, self.double = graph.tensors(torch.float32, device), graph.tensors(torch.float64, device)
        as_tensor = torch.as_tensor
        self.lower, self.upper = as_tensor(unsafe.lower, device=device), as_tensor(unsafe.upper, device=device)
        # of a box without width in float32 only its float64 points are left
        self.low, self.high = _inward(self.lower, self.upper)
        self.coefficients = as_tensor(unsafe.coefficients, device=device)
        self.constants = as_tensor(unsafe.constants, device=device)

    def search(self, points: FloatArray | None = None, samples: int = 2000, seed: int = 0) -> OutputWitness | None:
        """The first witness found, or None. points (m, n): starting points, used in every box that holds them."""
        random = torch.Generator(device=self.device).manual_seed(seed)
        boxes = len(self.lower)
        box = torch.arange(boxes, device=self.device).repeat_interleave(max(samples // boxes, 2))
        share = torch.rand(len(box), self.lower.shape[1], generator=random, device=self.device, dtype=torch.float64)
        x = self._inside(self.low[box] + (self.high - self.low)[box] * share, box)
        if points is not None and len(points):
            given = torch.as_tensor(points, dtype=torch.float64, device=self.device)
            x, box = torch.cat([x, self._inside(given, torch.zeros_like(given[:, 0], dtype=torch.long))]), \
                torch.cat([box, torch.zeros(len(given), dtype=torch.long, device=self.device)])
        violation = self._violation(x, box)
        for stage in (self._climb, self._wander):
            found = self._witness(x, box, violation)
            if found is not None:
                return found
            keep = violation.argsort(descending=True)[:CLIMBERS]
            x, violation = stage(x[keep], box[keep], random)
            box = box[keep]
        return self._witness(x, box, violation)

    def confirm(self, suspects: Tensor, box: Tensor) -> OutputWitness | None:
        """A witness among the points (m, n) of boxes (m,), or None."""
        x = self._inside(suspects, box)
        return self._witness(x, box, self._violation(x, box))

    def _inside(self, x: Tensor, box: Tensor) -> Tensor:
        """Points of float32 where the box has them, in any case inside of the box's own walls."""
        near = x.float().double()
        near = torch.minimum(torch.maximum(near, self.low[box]), self.high[box])
        return torch.minimum(torch.maximum(near, self.lower[box]), self.upper[box])

    def _rows(self, tensors: GraphTensors, x: Tensor, box: Tensor) -> Tensor:
        y = tensors(x.to(tensors.dtype)).double()
        rows = (self.coefficients[box] @ y[:, None, :, None])[..., 0] + self.constants[box]
        return rows.amin(dim=2).amax(dim=1)

    @torch.no_grad()
    def _violation(self, x: Tensor, box: Tensor) -> Tensor:
        return self._rows(self.double, x, box)

    def _climb(self, x: Tensor, box: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        width = (self.high - self.low)[box]
        best, best_value = x, self._violation(x, box)
        rate = 0.2
        for _ in range(GRADIENT_STEPS):
            here = best.clone().requires_grad_(True)
            (slope,) = torch.autograd.grad(self._rows(self.single, here, box).sum(), here)
            moved = self._inside(best + rate * width * slope.sign(), box)
            value = self._violation(moved, box)
            better = value > best_value
            best = torch.where(better[:, None], moved, best)
            best_value = torch.maximum(value, best_value)
            rate *= 0.7
        return best, best_value

    @torch.no_grad()
    def _wander(self, x: Tensor, box: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        width, reach = (self.high - self.low)[box][:, None], 0.5
        best_value = self._violation(x, box)
        rows = torch.arange(len(x), device=x.device)
        many = box.repeat_interleave(MOVES)
        for _ in range(MOVE_ROUNDS):
            step = 2 * torch.rand(len(x), MOVES, x.shape[1], generator=random, device=x.device, dtype=x.dtype) - 1
            moved = self._inside((x[:, None] + reach * width * step).flatten(0, 1), many)
            value, which = self._violation(moved, many).reshape(len(x), MOVES).max(dim=1)
            better = value > best_value
            x = torch.where(better[:, None], moved.reshape(len(x), MOVES, -1)[rows, which], x)
            best_value = torch.maximum(value, best_value)
            if (best_value >= 0).any():
                break
            reach *= SHRINK
        return x, best_value

    def _witness(self, x: Tensor, box: Tensor, violation: Tensor) -> OutputWitness | None:
        worst = int(violation.argmax())
        if not violation[worst] >= 0:
            return None
        point = x[worst].cpu().numpy()
        return OutputWitness(int(box[worst]), point, self.graph.value(point[None])[0], float(violation[worst]))


def _inward(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The largest box with float32 walls inside the box; the box itself in inputs where there is none."""
    low, high = lower.float(), upper.float()
    infinity = torch.full_like(low, np.inf)
    low = torch.where(low.double() < lower, torch.nextafter(low, infinity), low).double()
    high = torch.where(high.double() > upper, torch.nextafter(high, -infinity), high).double()
    none = low > high
    return torch.where(none, lower, low), torch.where(none, upper, high)
