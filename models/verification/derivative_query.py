"""Rigorous lower bounds of partial derivatives over boxes: what monotonicity comes down to.

The derivatives of row @ y run through the network from the output to the input: p[k] = dy/dz[k] = d[k] g[k] with
g[k] = dy/dv[k + 1] = sum over the layers j that take v[k + 1] of W[j, k + 1]' p[j], and d[k] the activation's
derivative, in [d_low, d_high] over the box (0..1 for an unstable ReLU), independent of the other neurons'. First,
backward: intervals of every g. Then forward from an input: its derivative is linear in the p of the layers that it
enters, and each p is bounded by lines in g, up to the output, where the row is known. For g in [g_low, g_high] the
least of d g over d is concave in g, the largest convex, so that the chords are the tightest lines below and above
(bound propagation on the derivative's graph, Shi et al. 2022). Where that pays, neurons whose g changes sign and whose
d is open have their g bounded by such a pass of their own. (Measured: bounds of the other direction, from the input's
tangent, were 5 to 30 % looser on trained networks.)

Rounding is charged as in linear_bounds.py, with p in the place of v.

Symbols: B boxes, F queries (feature, row of outputs), R distinct rows, o outputs, w neurons; g_low, g_high (B, R, w).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.verification.branch_and_bound import Margins
from models.verification.graph import FloatArray, Graph
from models.verification.linear_bounds import CHUNK_ELEMENTS, Bounder, LayerBounds
from models.verification.relaxation import derivative_interval

# Weight of a round in the running estimate of what refinement leaves.
LEARNING = 0.3


@dataclass(frozen=True)
class Slopes:
    """Must hold: rows[f] @ dy/dx[features[f]] >= -allowed[f]. features (F,), rows (F, o), allowed (F,)."""

    features: tuple[int, ...]
    rows: FloatArray
    allowed: FloatArray


@dataclass(frozen=True)
class _Chords:
    """Lines below and above p = d g over g's interval: each (B, R, w).

    size: error per unit of coefficient on g; cost_low, cost_high: what an open d may take away from a positive and a
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
        self.features, self.rows = slopes.features, torch.as_tensor(slopes.rows, device=device)
        self._exact = graph.tensors(torch.float64, device)
        self._left = 0.0  # how much of a bound's looseness refinement left so far: it is tried where that may suffice

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins over boxes with float64 walls (B, n); suspects are the boxes' centres."""
        typed = self._typed[dtype]
        centre = (lower + upper) / 2
        margins = self._margins(typed, lower, upper, centre, refine=False)
        if len(self.graph.layers) < 3:  # the intervals of two layers' derivatives are exact as they are
            return margins
        slopes = torch.stack([(self._exact.gradient(centre, self.rows[f]))[:, feature]
                              for f, feature in enumerate(self.features)], 1)
        reach = (slopes + self.allowed).min(dim=1).values
        hoped = reach - self._left * (reach - margins.margin.double())
        again = (~margins.proved & ~(hoped < 0)).nonzero()[:, 0]
        if not len(again):
            return margins
        better = self._margins(typed, lower[again], upper[again], centre[again], refine=True)
        before, after = margins.margin[again].double(), better.margin.double()
        left = ((reach[again] - after) / (reach[again] - before).clamp_min(1e-12)).clamp(0, 1)
        left = left[torch.isfinite(left)]
        if len(left):
            self._left += LEARNING * (float(left.mean()) - self._left)
        for name in Margins.__dataclass_fields__:
            getattr(margins, name)[again] = getattr(better, name).to(getattr(margins, name).dtype)
        return margins

    def _margins(self, typed: "_Typed", lower: Tensor, upper: Tensor, centre: Tensor, refine: bool) -> Margins:
        boxes = typed.bounder.boxes(lower, upper)
        found = typed.bounder.layers(boxes, refine)
        bounds, charges, costs = typed.derivatives(found, refine)
        # without hidden layers one bound serves all boxes
        bounds, charges = (of_box.expand(len(lower), -1) for of_box in (bounds, charges))
        margin, worst = (bounds.double() + self.allowed).min(dim=1)
        here = torch.arange(len(lower), device=lower.device)
        score = typed.score(found, costs, worst) * (boxes.radius > 0)
        return Margins(margin, margin >= 0, charges[here, worst].double(), score, centre)


class _Typed:
    """The query's tensors in one type."""

    def __init__(self, graph: Graph, slopes: Slopes, dtype: torch.dtype, device: str) -> None:
        self.bounder = Bounder(graph, dtype, device)
        rows, which = np.unique(slopes.rows, axis=0, return_inverse=True)
        self.rows = torch.as_tensor(rows, dtype=dtype, device=device)  # (R, o)
        self.row_of = torch.as_tensor(which.reshape(-1), device=device)  # (F,)
        layers, matrices = len(graph.layers), self.bounder.tensors.matrices
        features = list(slopes.features)
        # coefficients of the queries on p, per layer that takes x: (F, w)
        self.start = {k: m[0][:, features].T for k, m in enumerate(matrices[:layers]) if 0 in m}
        errors = self.bounder.errors
        self.start_error = {k: errors[k][0][:, features].T if 0 in errors[k] else torch.zeros_like(start)
                            for k, start in self.start.items()}
        direct = matrices[layers].get(0)
        self.direct = None if direct is None else (self.rows[self.row_of] * direct[:, features].T).sum(-1)
        self.direct_error = torch.zeros((), dtype=dtype, device=device)
        if direct is not None:
            doubt = self.bounder.eps(graph.outputs) * direct.abs()
            if 0 in errors[layers]:
                doubt = doubt + 1.1 * errors[layers][0]
            self.direct_error = (self.rows.abs()[self.row_of] * doubt[:, features].T).sum(-1)
        # the layers that take v[k + 1], and what the rows make of it where the output does: (R, w)
        self.takers = [[j for j in range(layers) if k + 1 in matrices[j]] for k in range(layers)]
        last = matrices[layers]
        self.ends = [self.rows @ last[k + 1] if k + 1 in last else None for k in range(layers)]

    @torch.no_grad()
    def derivatives(self, found: Sequence[LayerBounds], refine: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Bounds (B, F), what of them rounding took, and each neuron's cost (B, F, w) per layer."""
        bounder, layers = self.bounder, self.bounder.graph.layers
        chords: dict[int, _Chords] = {}
        low: dict[int, Tensor] = {}
        high: dict[int, Tensor] = {}
        for k in range(len(layers) - 1, -1, -1):
            g_low, g_high, size = self._interval(k, low, high)
            d_low, d_high = (d[:, None] for d in derivative_interval(layers[k], found[k].z_low, found[k].z_high))
            # the intervals of the last two layers are exact: their terms are independent
            if refine and any(self.takers[j] for j in self.takers[k]):
                g_low, g_high = self._refine(k, chords, g_low, g_high, d_high > d_low, size)
            chords[k] = _chords(d_low, d_high, g_low, g_high, size, bounder.unit)
            ends = torch.stack([d_low * g_low, d_high * g_low, d_low * g_high, d_high * g_high])
            grown = 2 * bounder.unit * ends.abs().amax(0)
            low[k], high[k] = ends.amin(0) - grown, ends.amax(0) + grown
        count = len(found[0].z_low) if found else 1
        constant = torch.zeros(count, len(self.row_of), dtype=bounder.dtype, device=bounder.device)
        charge = torch.zeros_like(constant)
        if self.direct is not None:
            constant = constant + self.direct
            charge = charge + self.direct_error
        for k, start in self.start.items():  # the stored first coefficients are off by their error and conversion
            most = torch.maximum(low[k].abs(), high[k].abs())[:, self.row_of]
            charge = charge + (most * (bounder.eps(1) * start.abs() + 1.1 * self.start_error[k])).sum(-1)
        coefficients = {k: start.expand(count, -1, -1) for k, start in self.start.items()}
        bounds, charge, met = self._forward(coefficients, constant, charge, chords, None)
        costs = []
        for k in range(len(layers)):
            on_p = met.get(k)
            costs.append(torch.zeros_like(found[k].z_low)[:, None] if on_p is None else
                         on_p.clamp_min(0) * chords[k].cost_low[:, self.row_of]
                         - on_p.clamp_max(0) * chords[k].cost_high[:, self.row_of])
        return bounds, charge, costs

    def _interval(self, k: int, low: dict[int, Tensor], high: dict[int, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """g_low, g_high (B, R, w) by interval arithmetic, outward, and size."""
        bounder, source = self.bounder, k + 1
        middle, half, total, inexact, terms = torch.zeros(()), torch.zeros(()), torch.zeros(()), torch.zeros(()), 1
        for j in self.takers[k]:
            middle = middle + ((low[j] + high[j]) / 2) @ bounder.tensors.matrices[j][source]
            half = half + ((high[j] - low[j]) / 2) @ bounder.absolute[j][source]
            most = torch.maximum(low[j].abs(), high[j].abs())
            total = total + most @ bounder.absolute[j][source]
            terms += most.shape[-1]
            if source in bounder.errors[j]:
                inexact = inexact + most @ bounder.errors[j][source]
        end, last = self.ends[k], len(bounder.graph.layers)
        if end is not None:
            middle = middle + end[None]
            total = total + self.rows.abs() @ bounder.absolute[last][source]
            terms += self.rows.shape[1]
            if source in bounder.errors[last]:
                inexact = inexact + self.rows.abs() @ bounder.errors[last][source]
        if not self.takers[k] and end is None:  # nothing takes this layer
            middle = middle + torch.zeros(1, len(self.rows), bounder.graph.widths[k], dtype=bounder.dtype,
                                          device=bounder.device)
        # a forward step adds up over this layer's neurons, this interval over those that take them
        size = bounder.eps(max(terms, bounder.graph.widths[k])) * total + 1.1 * inexact + bounder.tiny
        return middle - half - 2 * size, middle + half + 2 * size, size.expand_as(middle)

    def _refine(self, k: int, chords: dict[int, _Chords], low: Tensor, high: Tensor, open_: Tensor,
                size: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds g of the neurons whose chord depends on it by forward passes of their own."""
        wanted = (low < 0) & (high > 0) & open_
        if not wanted.any():
            return low, high
        bounder, source = self.bounder, k + 1
        low, high = low.contiguous().clone(), high.contiguous().clone()
        rows, width = low.shape[1:]
        flat_low, flat_high = low.view(-1, width), high.view(-1, width)  # one line a (box, row) pair
        wanted = wanted.reshape(-1, width)
        counts = wanted.sum(dim=1)
        most_wanted = torch.argsort(wanted.to(torch.uint8), dim=1, descending=True, stable=True)
        by_count = torch.argsort(counts, descending=True)
        by_count = by_count[: int((counts > 0).sum())]
        size = size.expand(low.shape).reshape(-1, width)
        widest = max(bounder.graph.widths[k:])
        first = 0
        while first < len(by_count):
            most = int(counts[by_count[first]])
            part = by_count[first : first + max(CHUNK_ELEMENTS // (2 * most * widest), 1)]
            first += len(part)
            neuron = most_wanted[part, :most]
            start = {}
            for j in self.takers[k]:
                columns = bounder.tensors.matrices[j][source].T[neuron]
                start[j] = torch.cat([columns, -columns], 1)
            error = size[part].gather(1, neuron).repeat(1, 2)
            constant = torch.zeros_like(error)
            end = self.ends[k]
            if end is not None:
                here = end[(part % rows)[:, None], neuron]
                constant = torch.cat([here, -here], 1)
            bounds, _, _ = self._forward(start, constant, error, chords, part)
            at = part[:, None].expand_as(neuron)
            flat_low[at, neuron] = torch.maximum(flat_low[at, neuron], bounds[:, :most])
            flat_high[at, neuron] = torch.minimum(flat_high[at, neuron], -bounds[:, most:])
        return low, torch.maximum(low, high)

    def _forward(self, coefficients: dict[int, Tensor], constant: Tensor, charge: Tensor, chords: dict[int, _Chords],
                 part: Tensor | None) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """From coefficients on p, layer by layer to the output: bounds, charge, coefficients met.

        part None: coefficients (B, F, w), constant (B, F). Else part (b,) numbers (box, row) pairs: (b, Q, w).
        """
        bounder, rows = self.bounder, len(self.rows)

        def take(values: Tensor) -> Tensor:
            if part is None:
                return values[:, self.row_of]
            box = part // rows if values.shape[0] > 1 else torch.zeros_like(part)
            return values[box, part % rows][:, None, :]

        met: dict[int, Tensor] = {}
        for k in range(len(bounder.graph.layers)):
            on_p = coefficients.pop(k, None)
            if on_p is None:
                continue
            met[k], chord = on_p, chords[k]
            on_g = on_p.clamp_min(0)
            negative = on_p - on_g
            lift = on_g * take(chord.lower_offset)
            lift.addcmul_(negative, take(chord.upper_offset))
            constant = constant + lift.sum(-1)
            charge = charge + bounder.eps(on_p.shape[-1]) * lift.abs().sum(-1)
            on_g = (on_g * take(chord.lower_slope)).addcmul_(negative, take(chord.upper_slope))
            charge = charge + (on_g.abs() * take(chord.size)).sum(-1)
            end = self.ends[k]
            if end is not None:
                constant = constant + (on_g * take(end[None])).sum(-1)
            for j in self.takers[k]:
                step = on_g @ bounder.tensors.matrices[j][k + 1].T
                coefficients[j] = coefficients[j] + step if j in coefficients else step
        charge = 1.1 * charge + bounder.eps(8) * constant.abs() + bounder.tiny
        return constant - charge, charge, met

    def score(self, found: Sequence[LayerBounds], costs: Sequence[Tensor], worst: Tensor) -> Tensor:
        """(B, n): what every open neuron costs the worst query, shared out by how far each input moves it."""
        here = torch.arange(len(worst), device=worst.device)
        total = torch.zeros(())
        for bound, cost_of_neuron in zip(found, costs, strict=True):
            of_worst = cost_of_neuron[here, worst if cost_of_neuron.shape[1] > 1 else torch.zeros_like(worst)]
            cost = of_worst / (bound.z_high - bound.z_low).clamp_min(self.bounder.tiny)
            total = total + (bound.slope.abs() @ cost[..., None])[..., 0]
        return total


def _chords(d_low: Tensor, d_high: Tensor, g_low: Tensor, g_high: Tensor, size: Tensor, unit: float) -> _Chords:
    open_ = d_high > d_low
    least_low, least_high = torch.minimum(d_low * g_low, d_high * g_low), torch.minimum(d_low * g_high, d_high * g_high)
    most_low, most_high = torch.maximum(d_low * g_low, d_high * g_low), torch.maximum(d_low * g_high, d_high * g_high)
    width = torch.where(open_ & (g_high > g_low), g_high - g_low, torch.ones_like(g_low))
    usable = open_ & (g_high > g_low)
    lower = torch.where(usable, (least_high - least_low) / width, d_high)
    upper = torch.where(usable, (most_high - most_low) / width, d_high)
    # least(g) - slope g is concave: smallest at an end; most(g) - slope g is convex: largest at an end
    slack = 16 * unit * (g_high.abs() + g_low.abs())
    below = torch.minimum(least_low - lower * g_low, least_high - lower * g_high) - slack
    above = torch.maximum(most_low - upper * g_low, most_high - upper * g_high) + slack
    zero = torch.zeros_like(below)
    lower_offset, upper_offset = torch.where(open_, below, zero), torch.where(open_, above, zero)
    spread = d_high - d_low
    return _Chords(lower, lower_offset, upper, upper_offset, size,
                   spread * (-g_low).clamp_min(0), spread * g_high.clamp_min(0))
