"""A network in normal form (graph.py) on a device: what the search evaluates and bounds with.

Symbols: n inputs, o outputs, w neurons of a layer, F slopes; x (..., n).
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.verification.checker.time_limit import require_time
from models.verification.network.graph import Graph, Layer


class GraphTensors:
    """A graph's weights as tensors of one type on one device. Calling it evaluates: x (..., n) -> y (..., o)."""

    def __init__(self, graph: Graph, dtype: torch.dtype = torch.float64, device: str = "cpu") -> None:
        self.graph, self.dtype, self.device = graph, dtype, device
        self.matrices = [{s: self.tensor(m) for s, m in sorted(affine.matrices.items())} for affine in graph.affines]
        self.offsets = [self.tensor(affine.offset) for affine in graph.affines]

    def tensor(self, values: NDArray[np.floating]) -> Tensor:
        """An array on this device in this type."""
        return torch.as_tensor(values, dtype=self.dtype, device=self.device)

    def __call__(self, x: Tensor) -> Tensor:
        """y (..., o) at x (..., n)."""
        values = [x]
        for k, layer in enumerate(self.graph.layers):
            values.append(activate(layer, self.affine(k, values)))
        return self.affine(len(self.graph.layers), values)

    def affine(self, k: int, values: Sequence[Tensor]) -> Tensor:
        """z[k] (..., w) from the sources' values; k = number of layers: the output."""
        require_time()
        total = self.offsets[k]
        for source, matrix in self.matrices[k].items():
            total = total + values[source] @ matrix.T
        return total

    def gradient(self, x: Tensor, row: Tensor) -> Tensor:
        """Gradient by x of row @ y at x (batch, n), the activation region's own: (batch, n); row (o,) or (batch, o)."""
        values, slopes = [x], []
        for k, layer in enumerate(self.graph.layers):
            z = self.affine(k, values)
            a = activate(layer, z)
            slopes.append(_slope(layer, z, a))
            values.append(a)
        gradients: list[Tensor | None] = [None] * len(values)
        flowing: Tensor | None = row.expand(len(x), -1)
        for k in range(len(self.graph.layers), -1, -1):
            if flowing is not None:
                for source, matrix in self.matrices[k].items():
                    part, old = flowing @ matrix, gradients[source]
                    gradients[source] = part if old is None else old + part
            if k > 0:
                reached = gradients[k]
                flowing = None if reached is None else reached * slopes[k - 1]
        return torch.zeros_like(x) if gradients[0] is None else gradients[0]

    def slopes(self, x: Tensor, features: Sequence[int], rows: Tensor) -> Tensor:
        """rows[f] @ dy/dx[features[f]] at x (batch, n): (batch, F); features (F,), rows (F, o)."""
        distinct, which = torch.unique(rows, dim=0, return_inverse=True)
        gradients = [self.gradient(x, row) for row in distinct]
        return torch.stack([gradients[k][:, feature] for k, feature in zip(which.tolist(), features, strict=True)], 1)


def activate(layer: Layer, z: Tensor) -> Tensor:
    """The layer's activation, elementwise."""
    if layer.kind == "relu":
        return torch.relu(z)
    if layer.kind == "leaky_relu":
        return torch.where(z >= 0, z, layer.leak * z)
    return torch.tanh(z) if layer.kind == "tanh" else torch.sigmoid(z)


def _slope(layer: Layer, z: Tensor, a: Tensor) -> Tensor:
    """The activation's derivative at z, where a = activate(z); at the kink of a ReLU the slope below it."""
    if layer.kind in ("relu", "leaky_relu"):
        return torch.where(z > 0, 1.0, layer.leak).to(z.dtype)
    return 1 - a * a if layer.kind == "tanh" else a * (1 - a)
