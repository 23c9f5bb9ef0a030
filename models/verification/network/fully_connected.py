"""The network as the verifier sees it: weights of a fully connected ReLU network, and its values.

    y = W[L-1] a[L-2] + b[L-1],  a[k] = relu(W[k] a[k-1] + b[k]),  a[-1] = x

Symbols: W[k] (width k+1, width k), b[k] (width k+1,), float32; x (batch, n); y (batch, 1).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import nn

from feature_store.errors import InputError
from models.verification.network.graph import Graph, dense_graph


@dataclass(frozen=True)
class ReluNetwork:
    """Weights and biases, tuple position = layer. One output. Raises InputError on NaN or wrong shapes or types."""

    weights: tuple[NDArray[np.float32], ...]
    biases: tuple[NDArray[np.float32], ...]

    def __post_init__(self) -> None:
        if len(self.weights) < 2 or len(self.weights) != len(self.biases):
            raise InputError(f"network must have at least one hidden layer and one bias a layer, got "
                             f"{len(self.weights)} weights and {len(self.biases)} biases")
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if weight.ndim != 2 or bias.shape != weight.shape[:1]:
                raise InputError(f"layer {k} must have a matrix and a fitting bias, got {weight.shape}, {bias.shape}")
            if k and weight.shape[1] != self.weights[k - 1].shape[0]:
                raise InputError(f"layer {k} must take {self.weights[k - 1].shape[0]} inputs, got {weight.shape[1]}")
            if weight.dtype != np.float32 or bias.dtype != np.float32:
                raise InputError(f"weights must be float32, got {weight.dtype}, {bias.dtype} (layer {k})")
            if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
                raise InputError(f"weights must be finite, got NaN or infinity (layer {k})")
        if self.weights[-1].shape[0] != 1:
            raise InputError(f"network must have one output, got {self.weights[-1].shape[0]}")

    @property
    def inputs(self) -> int:
        """n, the number of inputs."""
        return self.weights[0].shape[1]

    @cached_property
    def graph(self) -> Graph:
        """The same network in the verifier's normal form."""
        return dense_graph(self.weights, self.biases)

    def value(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """f at x (batch, n), in float64: (batch,)."""
        return self.graph.value(x)[:, 0]

    def rounding(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """Upper bound of |value(x) - f(x)| for f in real arithmetic: (batch,)."""
        return self.graph.rounding(x)[:, 0]


def network_from_torch(module: nn.Sequential) -> ReluNetwork:
    """Reads an alternation Linear, ReLU, ..., Linear. Raises InputError naming any other layer."""
    weights: list[NDArray[np.float32]] = []
    biases: list[NDArray[np.float32]] = []
    for index, layer in enumerate(module):
        if isinstance(layer, nn.Linear) and index % 2 == 0:
            weights.append(layer.weight.detach().cpu().numpy().astype(np.float32))
            biases.append(layer.bias.detach().cpu().numpy().astype(np.float32))
        elif not (isinstance(layer, nn.ReLU) and index % 2 == 1):
            raise InputError(f"network must alternate Linear and ReLU, got {type(layer).__name__} (layer {index})")
    return ReluNetwork(tuple(weights), tuple(biases))
