"""Rigorous lower bounds of partial derivatives over boxes: what monotonicity comes down to.

A derivative is the value of a graph (derivative_graph.py): seeds at one end of the network and, layer by layer to the
other end, p[k] = d[k] g[k], with g[k] a sum of the p that the layer takes, and d[k] the activation's derivative, in
[d_low, d_high] over the box (0..1 for an unstable ReLU), independent of the other neurons'. First, from the seeds on:
intervals of every g. Then back from the other end: the derivative is linear in the p of the layers there, and each p is
bounded by lines in g, down to the seeds, which are known. For g in [g_low, g_high] the least of d g over d is concave
in g, the largest convex, so that the chords are the tightest lines below and above (bound propagation on the
derivative's graph, Shi et al. 2022). Where that pays, neurons whose g changes sign and whose d is open have their g
bounded by such a pass of their own.

Rounding is charged as in linear_bounds.py, with p in the place of v.

Symbols: B boxes, F queries (feature, row of outputs), R distinct seeds, w neurons; d_low, d_high (B, w); g_low, g_high
(B, R, w).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.verification.bounds.box_splits import Stakes
from models.verification.bounds.derivative_graph import End, derivative_graph, most_terms
from models.verification.bounds.linear_bounds import Bounder, pieces
from models.verification.bounds.relaxation import LOST
from models.verification.checker.time_limit import require_time
from models.verification.obligations.slopes import Slopes

# Least and largest derivative of a layer's activations, (B, w) each.
Span = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class _Chords:
    """Lines below and above p = d g over g's interval: each (B, R, w).

    size: error per unit of coefficient on g; floor (B, R, 1): what a pass from here to the seeds loses to underflow
    whatever its coefficients; spread (B, 1, w): by how much d is open; g_low, g_high; p_low, p_high: bounds of p. What
    does not depend on the box has 1 in the place of B.
    """

    lower_slope: Tensor
    lower_offset: Tensor
    upper_slope: Tensor
    upper_offset: Tensor
    size: Tensor
    floor: Tensor
    spread: Tensor
    g_low: Tensor
    g_high: Tensor
    p_low: Tensor
    p_high: Tensor


@dataclass(frozen=True)
class DerivativeBounds:
    """bounds (B, F), (1, F) without layers; charge, of that shape: what of them rounding took.

    coefficients: layer -> those on p that the bounds' passes met (B, F, w); chords: of each layer; seed_of (F,).
    """

    bounds: Tensor
    charge: Tensor
    coefficients: Mapping[int, Tensor]
    chords: Mapping[int, _Chords]
    seed_of: Tensor

    def stakes(self, boxes: Tensor) -> list[Stakes]:
        """Of each layer, for the boxes numbered (b,)."""
        return [self._stakes(self.coefficients.get(k), self.chords[k], boxes) for k in range(len(self.chords))]

    def _stakes(self, on_p: Tensor | None, chords: _Chords, boxes: Tensor) -> Stakes:
        def take(values: Tensor) -> Tensor:
            return values[boxes] if len(values) > 1 else values

        spread, g_low, g_high = (take(values) for values in (chords.spread, chords.g_low, chords.g_high))
        if on_p is None:
            none = torch.zeros_like(spread)
            return Stakes(none, none, none)
        on_p, g_low, g_high = on_p[boxes], g_low[:, self.seed_of], g_high[:, self.seed_of]
        up, down = on_p.clamp_min(0) * spread, (-on_p).clamp_min(0) * spread
        # what an open d may take away, and what it takes away at least where g has one sign
        cost = up * (-g_low).clamp_min(0) + down * g_high.clamp_min(0)
        positive, negative = g_low.clamp_min(0), (-g_high).clamp_min(0)
        return Stakes(cost, up * positive + down * negative, up * negative + down * positive)


class DerivativeBounder:
    """Bounds the slopes of one graph, from one end, over batches of boxes in one floating-point type on one device."""

    def __init__(self, bounder: Bounder, slopes: Slopes, end: End) -> None:
        self.bounder, self.graph = bounder, derivative_graph(bounder, slopes, end)
        self.seeds, self.seed_of = self.graph.seeds, self.graph.seed_of
        self.ends = {k: self.seeds @ edge.matrix for k, edge in self.graph.ends.items()}  # (R, w)
        self._set_costs()

    def _set_costs(self) -> None:
        """What rounding and underflow cost each g, as linear functions of the largest |p| that it adds up from.

        costs: layer -> (size, w + 1), per unit of coefficient on g and, last, in any case; base (R, w + 1): of the
        seeds, and of what does not depend on the box.
        """
        bounder, lost, terms = self.bounder, LOST * self.bounder.floor, most_terms(self.seeds)
        self.costs: list[dict[int, Tensor]] = []
        self.base: list[Tensor] = []
        for k, width in enumerate(bounder.graph.widths):
            edges, end = self.graph.edges[k], self.graph.ends.get(k)
            columns = sum(len(edge.matrix) for edge in edges.values()) + (terms if end else 0)
            # a linear step adds up over this layer's neurons, the interval of g over those that it takes
            eps = bounder.eps(max(columns + 1, width))
            base = self.seeds.new_full((len(self.seeds), width + 1), bounder.tiny)
            base[:, -1] = lost * (width + columns)
            self.costs.append({})
            for j, edge in (*edges.items(), *([(None, end)] if end else [])):
                m = edge.absolute
                base[:, :-1] += lost * (m.sum(0) + len(m))  # p and products that underflow
                cost = (m + bounder.floor / bounder.unit).mul_(eps)
                if edge.error is not None:
                    cost.add_(edge.error, alpha=1.1)
                cost = torch.cat([cost, lost * (width + columns + m.sum(1, keepdim=True))], 1)
                if j is None:
                    base += self.seeds.abs() @ cost
                else:
                    self.costs[k][j] = cost
            self.base.append(base)

    @torch.no_grad()
    def derivatives(self, spans: Sequence[Span], refine: bool) -> DerivativeBounds:
        """Bounds over boxes in which the layers' derivatives have these intervals d_low, d_high (B, w) each."""
        bounder, graph = self.bounder, self.graph
        chords: dict[int, _Chords] = {}
        floor = torch.zeros((), dtype=bounder.dtype, device=bounder.device)
        for k in graph.order:
            g_low, g_high, size, lost = self._interval(k, chords)
            floor = floor + lost
            d_low, d_high = (d[:, None] for d in spans[k])
            # the intervals of the first two layers are exact: their terms are independent
            if refine and any(graph.edges[j] for j in graph.edges[k]):
                g_low, g_high = self._refine(k, chords, g_low, g_high, d_high > d_low, size)
            chords[k] = _chords(d_low, d_high, g_low, g_high, size, floor, bounder)
        count = len(spans[0][0]) if spans else 1
        constant = torch.zeros(count, len(self.seed_of), dtype=bounder.dtype, device=bounder.device)
        charge = torch.zeros_like(constant)
        if graph.direct is not None:
            constant, charge = constant + graph.direct[0], charge + graph.direct[1]
        for k, (_, error) in graph.starts.items():
            most = torch.maximum(chords[k].p_low.abs(), chords[k].p_high.abs())[:, self.seed_of]
            charge = charge + (most * (error + LOST * bounder.floor)).sum(-1)
        coefficients = {k: start.expand(count, -1, -1) for k, (start, _) in graph.starts.items()}
        bounds, charge, met = self._linear(coefficients, constant, charge, chords, None)
        return DerivativeBounds(bounds, charge, met, chords, self.seed_of)

    def _interval(self, k: int, chords: Mapping[int, _Chords]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """g_low, g_high (B, R, w) by interval arithmetic, outward; size, and what this layer adds to the floor."""
        end, cost = self.ends.get(k), self.base[k][None]
        half = torch.zeros_like(cost[..., :-1])
        middle = half if end is None else end[None]
        for j, edge in self.graph.edges[k].items():
            low, high = chords[j].p_low, chords[j].p_high
            middle = middle + ((low + high) / 2) @ edge.matrix
            half = half + ((high - low) / 2) @ edge.absolute
            cost = cost + torch.maximum(low.abs(), high.abs()) @ self.costs[k][j]
        size, floor = cost[..., :-1], cost[..., -1:]
        return middle - half - 2 * size, middle + half + 2 * size, size.expand_as(middle), floor

    def _refine(self, k: int, chords: dict[int, _Chords], low: Tensor, high: Tensor, open_: Tensor,
                size: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds g of the neurons whose chord depends on it by linear passes of their own."""
        wanted = (low < 0) & (high > 0) & open_
        if not wanted.any():
            return low, high
        low, high = low.contiguous().clone(), high.contiguous().clone()
        seeds, width = low.shape[1:]
        flat_low, flat_high = low.view(-1, width), high.view(-1, width)  # one line a (box, seed) pair
        size = size.expand(low.shape).reshape(-1, width)
        widest = max(self.bounder.graph.widths[j] for j in (k, *chords))
        for part, neuron in pieces(wanted.reshape(-1, width), widest):
            most = neuron.shape[1]
            start = {}
            for j, edge in self.graph.edges[k].items():
                columns = edge.matrix.T[neuron]
                start[j] = torch.cat([columns, -columns], 1)
            error = size[part].gather(1, neuron).repeat(1, 2)
            constant = torch.zeros_like(error)
            end = self.ends.get(k)
            if end is not None:
                here = end[(part % seeds)[:, None], neuron]
                constant = torch.cat([here, -here], 1)
            bounds, _, _ = self._linear(start, constant, error, chords, part)
            at = part[:, None].expand_as(neuron)
            flat_low[at, neuron] = torch.maximum(flat_low[at, neuron], bounds[:, :most])
            flat_high[at, neuron] = torch.minimum(flat_high[at, neuron], -bounds[:, most:])
        return low, torch.maximum(low, high)

    def _linear(self, coefficients: dict[int, Tensor], constant: Tensor, charge: Tensor, chords: dict[int, _Chords],
                part: Tensor | None) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """From coefficients on p, layer by layer back to the seeds: bounds, charge, coefficients met.

        part None: coefficients (B, F, w), constant (B, F). Else part (b,) numbers (box, seed) pairs: (b, Q, w).
        """
        bounder, seeds = self.bounder, len(self.seeds)

        def take(values: Tensor) -> Tensor:
            if part is None:
                return values[:, self.seed_of]
            box = part // seeds if values.shape[0] > 1 else torch.zeros_like(part)
            return values[box, part % seeds][:, None, :]

        met: dict[int, Tensor] = {}
        for k in reversed(self.graph.order):
            require_time()
            on_p = coefficients.pop(k, None)
            if on_p is None:
                continue
            chord = chords[k]
            if not met:  # of the layers from here on
                charge = charge + take(chord.floor)[..., 0]
            met[k] = on_p
            on_g = on_p.clamp_min(0)
            negative = on_p - on_g
            lift = on_g * take(chord.lower_offset)
            lift.addcmul_(negative, take(chord.upper_offset))
            constant = constant + lift.sum(-1)
            charge = charge + bounder.eps(on_p.shape[-1]) * lift.abs().sum(-1)
            on_g = (on_g * take(chord.lower_slope)).addcmul_(negative, take(chord.upper_slope))
            charge = charge + (on_g.abs() * take(chord.size)).sum(-1)
            end = self.ends.get(k)
            if end is not None:
                constant = constant + (on_g * take(end[None])).sum(-1)
            for j, edge in self.graph.edges[k].items():
                step = on_g @ edge.matrix.T
                coefficients[j] = coefficients[j] + step if j in coefficients else step
        charge = 1.1 * charge + bounder.eps(8) * constant.abs() + bounder.tiny
        return constant - charge, charge, met

    def plain_products(self) -> float:
        """Operations of a plain bound of one box."""
        return float((2 * len(self.seeds) + len(self.seed_of)) * sum(map(self._products, self.graph.order)))

    def refinement_products(self, open_neurons: Sequence[float]) -> float:
        """Operations of bounding so many neurons of each layer once more in one box."""
        behind: dict[int, set[int]] = {}
        total = 0.0
        for k in self.graph.order:
            behind[k] = set().union(*({j} | behind[j] for j in self.graph.edges[k]))
            total += 2 * open_neurons[k] * len(self.seeds) * sum(map(self._products, behind[k]))
        return total

    def _products(self, k: int) -> int:
        """Operations of one pass over layer k's edges."""
        return sum(edge.matrix.numel() for edge in self.graph.edges[k].values())


def _chords(d_low: Tensor, d_high: Tensor, g_low: Tensor, g_high: Tensor, size: Tensor, floor: Tensor,
            bounder: Bounder) -> _Chords:
    """Of d (B, 1, w) and g (B, R, w)."""
    ends = d_low * g_low, d_high * g_low, d_low * g_high, d_high * g_high
    least_low, least_high = torch.minimum(ends[0], ends[1]), torch.minimum(ends[2], ends[3])
    most_low, most_high = torch.maximum(ends[0], ends[1]), torch.maximum(ends[2], ends[3])
    open_ = d_high > d_low
    usable = open_ & (g_high > g_low)
    width = torch.where(usable, g_high - g_low, torch.ones_like(g_low))
    lower = torch.where(usable, (least_high - least_low) / width, d_high)
    upper = torch.where(usable, (most_high - most_low) / width, d_high)
    # least(g) - slope g is concave: smallest at an end; most(g) - slope g is convex: largest at an end
    slack = 16 * bounder.unit * (g_high.abs() + g_low.abs()) + LOST * bounder.floor
    below = torch.minimum(least_low - lower * g_low, least_high - lower * g_high) - slack
    above = torch.maximum(most_low - upper * g_low, most_high - upper * g_high) + slack
    zero = torch.zeros_like(below)
    p_low, p_high = torch.minimum(least_low, least_high), torch.maximum(most_low, most_high)
    grown = 2 * bounder.unit * torch.maximum(p_low.abs(), p_high.abs()) + LOST * bounder.floor
    return _Chords(lower, torch.where(open_, below, zero), upper, torch.where(open_, above, zero), size, floor,
                   d_high - d_low, g_low, g_high, p_low - grown, p_high + grown)
