"""Rigorous lower bounds of partial derivatives over boxes: what monotonicity comes down to.

The derivative of row @ y by x[i] is a network of its own: t[0] = e_i, u[k] = sum of W[k, s] t[s], t[k+1] = d[k] u[k],
where d[k] is the activation's derivative, in [d_low, d_high] over the box (0..1 for an unstable ReLU), independent of
the other neurons'. Forward: intervals of every u. Then backward from the output: for u in [u_low, u_high] the least
of d u over d is concave in u, the largest convex, so that the chords are the tightest lines below and above (bound
propagation on the derivative's graph, Shi et al. 2022). Neurons whose u changes sign and whose d is open are bounded
once more by a backward pass of their own where that pays.

Rounding is charged as in linear_bounds.py, with t in the place of v.

Symbols: B boxes, F queries (feature, row of outputs), w neurons; u_low, u_high (B, F, w).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.verification.branch_and_bound import Margins
from models.verification.graph import FloatArray, Graph
from models.verification.linear_bounds import CHUNK_ELEMENTS, Bounder, LayerBounds
from models.verification.relaxation import derivative_interval


@dataclass(frozen=True)
class Slopes:
    """Must hold: rows[f] @ dy/dx[features[f]] >= -allowed[f]. features (F,), rows (F, o), allowed (F,)."""

    features: tuple[int, ...]
    rows: FloatArray
    allowed: FloatArray


@dataclass(frozen=True)
class _Chords:
    """Lines below and above t = d u over u's interval: each (B, F, w).

    size: error per unit of coefficient on u; cost_low, cost_high: what an open d may take away from a positive and a
    negative coefficient.
    """

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor
    size: Tensor
    cost_low: Tensor
    cost_high: Tensor


class DerivativeQuery:
    """Bounds the derivatives of one graph on one device."""

    def __init__(self, graph: Graph, slopes: Slopes, device: str = "cpu") -> None:
        self.graph, self.device = graph, device
        self._typed = {dtype: _Typed(graph, slopes, dtype, device) for dtype in (torch.float32, torch.float64)}
        self.allowed = torch.as_tensor(slopes.allowed, dtype=torch.float64, device=device)

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins over boxes with float64 walls (B, n); suspects are the boxes' centres."""
        typed = self._typed[dtype]
        boxes = typed.bounder.boxes(lower, upper)
        found = typed.bounder.layers(boxes)
        bounds, charges, costs = typed.derivatives(found, len(lower))
        margin, worst = (bounds.double() + self.allowed).min(dim=1)
        here = torch.arange(len(lower), device=lower.device)
        score = typed.score(found, costs, worst) * (boxes.radius > 0)
        return Margins(margin, margin >= 0, charges[here, worst].double(), score, (lower + upper) / 2)


class _Typed:
    """The query's tensors in one type."""

    def __init__(self, graph: Graph, slopes: Slopes, dtype: torch.dtype, device: str) -> None:
        self.bounder = Bounder(graph, dtype, device)
        self.features = torch.tensor(slopes.features, device=device)
        self.rows = torch.as_tensor(slopes.rows, dtype=dtype, device=device)

    @torch.no_grad()
    def derivatives(self, found: Sequence[LayerBounds], count: int) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Bounds (B, F), what of them rounding took, and each neuron's cost (B, F, w) per layer."""
        bounder, graph = self.bounder, self.bounder.graph
        queries = len(self.features)
        start = torch.zeros(1, queries, graph.inputs, dtype=bounder.dtype, device=bounder.device)
        start[0, torch.arange(queries), self.features] = 1
        low, high = [start], [start]
        chords: list[_Chords] = []
        for k, bound in enumerate(found):
            u_low, u_high, size = self._interval(k, low, high)
            d_low, d_high = derivative_interval(graph.layers[k], bound.z_low, bound.z_high)
            if k > 1:  # the intervals of the second layer are exact: its terms are independent
                u_low, u_high = self._refine(k, chords, u_low, u_high, d_high > d_low, size)
            chord = _chords(d_low[:, None], d_high[:, None], u_low, u_high, size, bounder.unit)
            chords.append(chord)
            products = torch.stack([d_low[:, None] * u_low, d_high[:, None] * u_low,
                                    d_low[:, None] * u_high, d_high[:, None] * u_high])
            grown = 2 * bounder.unit * products.abs().amax(0)
            low.append(products.amin(0) - grown)
            high.append(products.amax(0) + grown)
        k = len(found)
        size = self._size(k, low, high)
        shape = (count, queries)
        rows = {s: (self.rows @ m).expand(*shape, -1) for s, m in bounder.tensors.matrices[k].items() if s > 0}
        error = (self.rows.abs() * size).sum(-1).expand(shape)
        start = -error
        if 0 in bounder.tensors.matrices[k]:
            start = start + (self.rows * bounder.tensors.matrices[k][0][:, self.features].T).sum(-1)
        bounds, charge, met = self._backward(rows, start, chords, None)
        costs = [on_t.clamp_min(0) * chord.cost_low - on_t.clamp_max(0) * chord.cost_high
                for on_t, chord in zip(met, chords, strict=True)]
        return bounds, charge + error, costs

    def _interval(self, k: int, low: Sequence[Tensor], high: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """u_low, u_high (B, F, w) by interval arithmetic, outward, and size."""
        middle, half = torch.zeros(()), torch.zeros(())
        for source, matrix in self.bounder.tensors.matrices[k].items():
            a, b = low[source], high[source]
            middle = middle + ((a + b) / 2) @ matrix.T
            if source > 0:
                half = half + ((b - a) / 2) @ self.bounder.absolute[k][source].T
        size = self._size(k, low, high)
        return middle - half - 2 * size, middle + half + 2 * size, size

    def _size(self, k: int, low: Sequence[Tensor], high: Sequence[Tensor]) -> Tensor:
        bounder = self.bounder
        total, inexact, terms = torch.zeros(()), torch.zeros(()), 1
        for source, matrix in bounder.absolute[k].items():
            most = torch.maximum(low[source].abs(), high[source].abs())
            total = total + most @ matrix.T
            terms += matrix.shape[1]
            if source in bounder.errors[k]:
                inexact = inexact + most @ bounder.errors[k][source].T
        return bounder.eps(terms) * total + 1.1 * inexact + bounder.tiny

    def _refine(self, k: int, chords: Sequence[_Chords], low: Tensor, high: Tensor, open_: Tensor,
                size: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds u of the neurons whose chord depends on it by backward passes."""
        wanted = (low < 0) & (high > 0) & open_[:, None]
        if not wanted.any():
            return low, high
        bounder = self.bounder
        low, high = low.clone(), high.clone()
        count, queries, width = low.shape
        flat_low, flat_high = low.view(-1, width), high.view(-1, width)  # one row a (box, query) pair
        wanted = wanted.reshape(-1, width)
        counts = wanted.sum(dim=1)
        most_wanted = torch.argsort(wanted.to(torch.uint8), dim=1, descending=True, stable=True)
        by_count = torch.argsort(counts, descending=True)
        by_count = by_count[: int((counts > 0).sum())]
        size = size.expand(count, -1, -1).reshape(-1, width)
        first = 0
        while first < len(by_count):
            rows = int(counts[by_count[first]])
            part = by_count[first : first + max(CHUNK_ELEMENTS // (2 * rows * max(bounder.graph.widths[: k + 1])), 1)]
            first += len(part)
            neuron = most_wanted[part, :rows]
            matrices = {s: torch.cat([m[neuron], -m[neuron]], 1) for s, m in bounder.tensors.matrices[k].items()
                        if s > 0}
            start = -size[part].gather(1, neuron).repeat(1, 2)
            if 0 in bounder.tensors.matrices[k]:
                direct = bounder.tensors.matrices[k][0][neuron, self.features[part % queries][:, None]]
                start = start + torch.cat([direct, -direct], 1)
            bounds, _, _ = self._backward(matrices, start, chords, part)
            at = part[:, None].expand_as(neuron)
            flat_low[at, neuron] = torch.maximum(flat_low[at, neuron], bounds[:, :rows])
            flat_high[at, neuron] = torch.minimum(flat_high[at, neuron], -bounds[:, rows:])
        return low, torch.maximum(low, high)

    def _backward(self, rows: dict[int, Tensor], constant: Tensor, chords: Sequence[_Chords],
                  part: Tensor | None) -> tuple[Tensor, Tensor, list[Tensor]]:
        """From coefficients on t, layer by layer to the input.

        part None: rows (B, F, w), constant (B, F). Else part (b,) numbers (box, query) pairs: rows (b, Q, w).
        """
        bounder, queries = self.bounder, len(self.features)
        columns = {k: m[0][:, self.features].T for k, m in enumerate(bounder.tensors.matrices) if 0 in m}  # (F, w)

        def take(values: Tensor) -> Tensor:
            if part is None:
                return values
            box = part // queries if values.shape[0] > 1 else torch.zeros_like(part)
            return values[box, part % queries][:, None, :]

        met: list[Tensor] = []
        charge = torch.zeros_like(constant)
        for k in range(len(chords) - 1, -1, -1):
            chord, on_t = chords[k], rows.pop(k + 1, None)
            if on_t is None:
                met.append(torch.zeros(()))
                continue
            met.append(on_t)
            on_u = on_t.clamp_min(0)
            negative = on_t - on_u
            lift = on_u * take(chord.lower_offset)
            lift.addcmul_(negative, take(chord.upper_offset))
            constant = constant + lift.sum(-1)
            charge = charge + bounder.eps(on_t.shape[-1]) * lift.abs().sum(-1)
            on_u = (on_u * take(chord.lower_slope)).addcmul_(negative, take(chord.upper_slope))
            charge = charge + (on_u.abs() * take(chord.size)).sum(-1)
            for source, matrix in bounder.tensors.matrices[k].items():
                if source == 0:  # t[0] is one at the query's own feature and zero elsewhere
                    column = columns[k] if part is None else columns[k][part % queries][:, None, :]
                    constant = constant + (on_u * column).sum(-1)
                else:
                    step = on_u @ matrix
                    rows[source] = rows[source] + step if source in rows else step
        charge = 1.1 * charge + bounder.eps(8) * constant.abs() + bounder.tiny
        return constant - charge, charge, met[::-1]

    def score(self, found: Sequence[LayerBounds], costs: Sequence[Tensor], worst: Tensor) -> Tensor:
        """(B, n): what every open neuron costs the worst query, shared out by how far each input moves it."""
        here = torch.arange(len(worst), device=worst.device)
        total = torch.zeros(())
        for bound, cost_of_neuron in zip(found, costs, strict=True):
            cost = cost_of_neuron[here, worst] / (bound.z_high - bound.z_low).clamp_min(1e-12)
            total = total + (bound.slope.abs() @ cost[..., None])[..., 0]
        return total


def _chords(d_low: Tensor, d_high: Tensor, u_low: Tensor, u_high: Tensor, size: Tensor, unit: float) -> _Chords:
    open_ = d_high > d_low
    least_low, least_high = torch.minimum(d_low * u_low, d_high * u_low), torch.minimum(d_low * u_high, d_high * u_high)
    most_low, most_high = torch.maximum(d_low * u_low, d_high * u_low), torch.maximum(d_low * u_high, d_high * u_high)
    width = torch.where(open_ & (u_high > u_low), u_high - u_low, torch.ones_like(u_low))
    usable = open_ & (u_high > u_low)
    lower = torch.where(usable, (least_high - least_low) / width, d_high)
    upper = torch.where(usable, (most_high - most_low) / width, d_high)
    # least(u) - slope u is concave: smallest at an end; most(u) - slope u is convex: largest at an end
    slack = 16 * unit * (u_high.abs() + u_low.abs())
    below = torch.minimum(least_low - lower * u_low, least_high - lower * u_high) - slack
    above = torch.maximum(most_low - upper * u_low, most_high - upper * u_high) + slack
    zero = torch.zeros_like(below)
    lower_offset, upper_offset = torch.where(open_, below, zero), torch.where(open_, above, zero)
    spread = d_high - d_low
    return _Chords(lower, lower_offset, upper, upper_offset, size,
                   spread * (-u_low).clamp_min(0), spread * u_high.clamp_min(0))
