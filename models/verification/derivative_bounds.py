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

from models.verification.box_splits import Stakes
from models.verification.graph import Graph
from models.verification.linear_bounds import Bounder, LayerBounds, pieces
from models.verification.relaxation import LOST, derivative_interval
from models.verification.slopes import Slopes


@dataclass(frozen=True)
class _Chords:
    """Lines below and above p = d g over g's interval: each (B, R, w).

    size: error per unit of coefficient on g; floor (B, R, 1): what a pass from here to the output loses to underflow
    whatever its coefficients; cost_low, cost_high: what an open d may take away from a positive and a negative
    coefficient; gain_low, gain_high: what it takes away at least, from a positive coefficient where g is positive and
    from a negative one where g is negative. What does not depend on the box has 1 in the place of B.
    """

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor
    size: Tensor
    floor: Tensor
    cost_low: Tensor
    cost_high: Tensor
    gain_low: Tensor
    gain_high: Tensor


class DerivativeBounder:
    """Bounds the slopes of one graph over batches of boxes in one floating-point type on one device."""

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
        lost = LOST * self.bounder.floor
        if direct is not None:
            doubt = self.bounder.eps(graph.outputs) * direct.abs() + lost
            if 0 in errors[layers]:
                doubt = doubt + 1.1 * errors[layers][0]
            self.direct_error = (self.rows.abs()[self.row_of] * doubt[:, features].T).sum(-1) + lost * (
                graph.outputs + direct.abs().sum(0)[features])
        # the layers that take v[k + 1], and what the rows make of it where the output does: (R, w)
        self.takers = [[j for j in range(layers) if k + 1 in matrices[j]] for k in range(layers)]
        last = matrices[layers]
        self.ends = [self.rows @ last[k + 1] if k + 1 in last else None for k in range(layers)]
        self._set_costs()

    def _set_costs(self) -> None:
        """What rounding and underflow cost each g, as linear functions of the largest |p| of the layers that take v.

        costs: taker -> (size, w + 1), per unit of coefficient on g and, last, in any case; base (R, w + 1): of the
        output, and of what does not depend on the box.
        """
        bounder, lost, last = self.bounder, LOST * self.bounder.floor, len(self.takers)
        self.costs: list[dict[int, Tensor]] = []
        self.base: list[Tensor] = []
        for k, width in enumerate(bounder.graph.widths):
            output = [last] if k + 1 in bounder.absolute[last] else []
            parts = [(j, bounder.absolute[j][k + 1], bounder.errors[j].get(k + 1)) for j in (*self.takers[k], *output)]
            columns = sum(len(m) for _, m, _ in parts)
            # a forward step adds up over this layer's neurons, the interval of g over those that take them
            eps = bounder.eps(max(columns + 1, width))
            base = self.rows.new_full((len(self.rows), width + 1), bounder.tiny)
            base[:, -1] = lost * (width + columns)
            self.costs.append({})
            for j, m, inexact in parts:
                base[:, :-1] += lost * (m.sum(0) + len(m))  # p and products that underflow
                cost = (m + bounder.floor / bounder.unit).mul_(eps)
                if inexact is not None:
                    cost.add_(inexact, alpha=1.1)
                cost = torch.cat([cost, lost * (width + columns + m.sum(1, keepdim=True))], 1)
                if j == last:
                    base += self.rows.abs() @ cost
                else:
                    self.costs[k][j] = cost
            self.base.append(base)

    @torch.no_grad()
    def derivatives(self, found: Sequence[LayerBounds], refine: bool) -> tuple[Tensor, Tensor, list[Stakes]]:
        """Bounds (B, F), what of them rounding took, and each layer's stakes."""
        bounder, layers = self.bounder, self.bounder.graph.layers
        chords: dict[int, _Chords] = {}
        low: dict[int, Tensor] = {}
        high: dict[int, Tensor] = {}
        floor = torch.zeros((), dtype=bounder.dtype, device=bounder.device)
        for k in range(len(layers) - 1, -1, -1):
            g_low, g_high, size, lost = self._interval(k, low, high)
            floor = floor + lost
            d_low, d_high = (d[:, None] for d in derivative_interval(layers[k], found[k].z_low, found[k].z_high))
            # the intervals of the last two layers are exact: their terms are independent
            if refine and any(self.takers[j] for j in self.takers[k]):
                g_low, g_high = self._refine(k, chords, g_low, g_high, d_high > d_low, size)
            chords[k] = _chords(d_low, d_high, g_low, g_high, size, floor, bounder)
            ends = torch.stack([d_low * g_low, d_high * g_low, d_low * g_high, d_high * g_high])
            grown = 2 * bounder.unit * ends.abs().amax(0) + LOST * bounder.floor
            low[k], high[k] = ends.amin(0) - grown, ends.amax(0) + grown
        count = len(found[0].z_low) if found else 1
        constant = torch.zeros(count, len(self.row_of), dtype=bounder.dtype, device=bounder.device)
        charge = torch.zeros_like(constant)
        if self.direct is not None:
            constant = constant + self.direct
            charge = charge + self.direct_error
        for k, start in self.start.items():  # the stored first coefficients are off by their error and conversion
            most = torch.maximum(low[k].abs(), high[k].abs())[:, self.row_of]
            off = bounder.eps(1) * start.abs() + 1.1 * self.start_error[k] + LOST * bounder.floor
            charge = charge + (most * off).sum(-1)
        coefficients = {k: start.expand(count, -1, -1) for k, start in self.start.items()}
        bounds, charge, met = self._forward(coefficients, constant, charge, chords, None)
        stakes = []
        for k in range(len(layers)):
            on_p = met.get(k)
            if on_p is None:
                none = torch.zeros_like(found[k].z_low)[:, None]
                stakes.append(Stakes(none, none, none))
                continue
            up, down = on_p.clamp_min(0), (-on_p).clamp_min(0)
            cost_low, cost_high, gain_low, gain_high = (
                values[:, self.row_of] for values in (chords[k].cost_low, chords[k].cost_high, chords[k].gain_low,
                                                      chords[k].gain_high))
            stakes.append(Stakes(up * cost_low + down * cost_high, up * gain_low + down * gain_high,
                                  up * gain_high + down * gain_low))
        return bounds, charge, stakes

    def _interval(self, k: int, low: dict[int, Tensor],
                  high: dict[int, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """g_low, g_high (B, R, w) by interval arithmetic, outward; size, and what this layer adds to the floor."""
        bounder, source, end, cost = self.bounder, k + 1, self.ends[k], self.base[k][None]
        half = torch.zeros_like(cost[..., :-1])
        middle = half if end is None else end[None]
        for j in self.takers[k]:
            middle = middle + ((low[j] + high[j]) / 2) @ bounder.tensors.matrices[j][source]
            half = half + ((high[j] - low[j]) / 2) @ bounder.absolute[j][source]
            cost = cost + torch.maximum(low[j].abs(), high[j].abs()) @ self.costs[k][j]
        size, floor = cost[..., :-1], cost[..., -1:]
        return middle - half - 2 * size, middle + half + 2 * size, size.expand_as(middle), floor

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
        size = size.expand(low.shape).reshape(-1, width)
        for part, neuron in pieces(wanted.reshape(-1, width), max(bounder.graph.widths[k:])):
            most = neuron.shape[1]
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
        if coefficients:
            charge = charge + take(chords[min(coefficients)].floor)[..., 0]
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

    def refinement_cost(self, lower: Tensor, upper: Tensor) -> float:
        """Operations of a refined bound of these boxes in those of a plain one, from the neurons that are open."""
        found = self.bounder.layers(self.bounder.boxes(lower, upper), refine=False)
        sizes = [float(sum(m.numel() for m in matrices.values())) for matrices in self.bounder.tensors.matrices[:-1]]
        rows, refined = len(self.rows), 0.0
        for k, bound in enumerate(found):
            open_ = float(((bound.z_low < 0) & (bound.z_high > 0)).sum(1).double().mean())
            refined += 2 * open_ * (sum(sizes[:k]) * (k > 1) + rows * sum(sizes[k + 2:]))
        plain = (2 * lower.shape[1] + 5 + 2 * rows + len(self.row_of)) * sum(sizes)
        return 1 + refined / plain


def _chords(d_low: Tensor, d_high: Tensor, g_low: Tensor, g_high: Tensor, size: Tensor, floor: Tensor,
            bounder: Bounder) -> _Chords:
    open_ = d_high > d_low
    least_low, least_high = torch.minimum(d_low * g_low, d_high * g_low), torch.minimum(d_low * g_high, d_high * g_high)
    most_low, most_high = torch.maximum(d_low * g_low, d_high * g_low), torch.maximum(d_low * g_high, d_high * g_high)
    width = torch.where(open_ & (g_high > g_low), g_high - g_low, torch.ones_like(g_low))
    usable = open_ & (g_high > g_low)
    lower = torch.where(usable, (least_high - least_low) / width, d_high)
    upper = torch.where(usable, (most_high - most_low) / width, d_high)
    # least(g) - slope g is concave: smallest at an end; most(g) - slope g is convex: largest at an end
    slack = 16 * bounder.unit * (g_high.abs() + g_low.abs()) + LOST * bounder.floor
    below = torch.minimum(least_low - lower * g_low, least_high - lower * g_high) - slack
    above = torch.maximum(most_low - upper * g_low, most_high - upper * g_high) + slack
    zero = torch.zeros_like(below)
    lower_offset, upper_offset = torch.where(open_, below, zero), torch.where(open_, above, zero)
    spread = d_high - d_low
    return _Chords(lower, lower_offset, upper, upper_offset, size, floor,
                   spread * (-g_low).clamp_min(0), spread * g_high.clamp_min(0),
                   spread * g_low.clamp_min(0), spread * (-g_high).clamp_min(0))
