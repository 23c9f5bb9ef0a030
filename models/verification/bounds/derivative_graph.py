"""Partial derivatives as the values of a graph without offsets, read from the output back or from the input on.

The derivative of row @ y by x[i] is linear in the row, in the direction e_i and in the activations' derivatives d[k] of
each layer. It can be carried through the network from either end, with p[k] = d[k] g[k] in both cases:

    from the output   g[k] = sum of W[j, k + 1]' p[j] over the layers j that take v[k + 1], and W[output, k + 1]' row
    from the input    g[k] = sum of W[k, j + 1] p[j] over the layers j that layer k takes, and W[k, 0] e_i

The seeds are the rows, or the directions e_i; the other ones say which combination of all p[k] the derivative is. Both
values agree wherever every d is known. Where a d is known up to an interval the bounds from the two ends differ, and
neither is always the better one.

Symbols: F queries (feature, row of outputs), R distinct seeds of s numbers, w neurons of a layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from models.verification.bounds.linear_bounds import Bounder
from models.verification.bounds.relaxation import LOST
from models.verification.network.graph import FloatArray
from models.verification.obligations.slopes import Slopes

End = Literal["output", "input"]


@dataclass(frozen=True)
class Edge:
    """What values add to others: values @ matrix; matrix (size, w), its absolute values, and a bound of its error.

    error: entrywise, of the same shape; None where the matrix is exact.
    """

    matrix: Tensor
    absolute: Tensor
    error: Tensor | None

    @property
    def turned(self) -> "Edge":
        """The other way round."""
        return Edge(self.matrix.T, self.absolute.T, None if self.error is None else self.error.T)


@dataclass(frozen=True)
class DerivativeGraph:
    """The graph as it is read from one end.

    order: the layers, from the seeds on.
    edges: of layer k, by layer j: how p[j] enters g[k].
    ends: by layer k: how a seed enters g[k].
    seeds (R, s); seed_of (F,): the seed of each query.
    starts: by layer k: each query's coefficients on p[k] (F, w), and a bound of their errors (F, w).
    direct: what reaches the output past all layers (F,) and a bound of its error (F,); None where nothing does.
    """

    order: tuple[int, ...]
    edges: tuple[Mapping[int, Edge], ...]
    ends: Mapping[int, Edge]
    seeds: Tensor
    seed_of: Tensor
    starts: Mapping[int, tuple[Tensor, Tensor]]
    direct: tuple[Tensor, Tensor] | None


def derivative_graph(bounder: Bounder, slopes: Slopes, end: End) -> DerivativeGraph:
    """The graph of these slopes in the bounder's type, with its seeds at this end."""
    count = len(bounder.graph.layers)
    layers = [_edges(bounder, k) for k in range(count + 1)]
    outputs = {source - 1: edge for source, edge in layers[count].items() if source > 0}
    inputs = {k: layer[0].turned for k, layer in enumerate(layers[:count]) if 0 in layer}
    rows, row_of = _distinct(bounder, slopes.rows)
    directions, direction_of = _distinct(bounder, np.eye(bounder.graph.inputs)[list(slopes.features)])
    direct = None
    if 0 in layers[count]:
        values, errors = _product(bounder, rows, layers[count][0])
        direct = values[row_of, list(slopes.features)], errors[row_of, list(slopes.features)]
    if end == "output":
        edges = [{j: layers[j][k + 1] for j in range(count) if k + 1 in layers[j]} for k in range(count)]
        starts = {k: _product(bounder, directions, edge) for k, edge in inputs.items()}
        return DerivativeGraph(tuple(range(count - 1, -1, -1)), tuple(edges), outputs, rows, row_of,
                               _each(starts, direction_of), direct)
    edges = [{source - 1: edge.turned for source, edge in layer.items() if source > 0} for layer in layers[:count]]
    starts = {k: _product(bounder, rows, edge) for k, edge in outputs.items()}
    return DerivativeGraph(tuple(range(count)), tuple(edges), inputs, directions, direction_of,
                           _each(starts, row_of), direct)


def most_terms(vectors: Tensor) -> int:
    """Products that a sum over a vector (R, s) may round: those of zeros are exact."""
    return int((vectors != 0).sum(1).max()) if len(vectors) else 0


def _edges(bounder: Bounder, k: int) -> dict[int, Edge]:
    """Of the affine map k, by source: how an output takes the source's values."""
    return {source: Edge(matrix, bounder.absolute[k][source], bounder.errors[k].get(source))
            for source, matrix in bounder.tensors.matrices[k].items()}


def _distinct(bounder: Bounder, vectors: FloatArray) -> tuple[Tensor, Tensor]:
    """The distinct ones (R, s), and which of them each is (F,)."""
    distinct, which = np.unique(vectors, axis=0, return_inverse=True)
    return (torch.as_tensor(distinct, dtype=bounder.dtype, device=bounder.device),
            torch.as_tensor(which.reshape(-1), device=bounder.device))


def _product(bounder: Bounder, vectors: Tensor, edge: Edge) -> tuple[Tensor, Tensor]:
    """vectors @ matrix (R, w), and a bound of its error: rounding, underflow, and what is not known of the matrix."""
    lost, terms = LOST * bounder.floor, most_terms(vectors)
    doubt = bounder.eps(terms) * edge.absolute + lost
    if edge.error is not None:
        doubt = doubt + 1.1 * edge.error
    return vectors @ edge.matrix, vectors.abs() @ doubt + lost * (terms + edge.absolute.sum(0))


def _each(of_distinct: Mapping[int, tuple[Tensor, Tensor]], which: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
    return {k: (values[which], errors[which]) for k, (values, errors) in of_distinct.items()}
