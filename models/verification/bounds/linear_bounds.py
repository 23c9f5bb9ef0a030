"""Rigorous linear bounds of a network's values over boxes, all boxes in one tensor operation.

Forward: linear bounds of every pre-activation as functions of the input, in coordinates in which the box is the unit
cube (CROWN's forward mode, Zhang et al. 2018), intersected with intervals. Backward: neurons that these leave
unstable are bounded once more from their layer back to the input, each by its own linear combination (CROWN); only
the (box, neuron) pairs that need it. `lower_bound` is the same backward pass for any linear combination of the
outputs, with lower slopes of the unstable ReLUs to be chosen (alpha-CROWN, Xu et al. 2021). It may end at any layer, at
the intervals of what it has reached: a network that clips its outputs keeps the limits whatever lies before.

Rounding (docs/reference/soundness.md derives it). u is the unit roundoff of the type, and a product of k terms in any
order of summation is off by at most k u / (1 - k u) of the product of the absolute values (Higham, Accuracy and
Stability, section 3.1). An error of a coefficient on v[s] shifts the bound by at most that error times the largest
|v[s]| in the box. So, with size[k] = |W[k]| |v| + |b[k]| bounding all that layer k can add up to, each backward step
costs eps(terms) |coefficients on z[k]| . size[k], two vectors' product, and everything is charged to the constant.
What underflows, a number or a product, is off by at most f, the smallest normal number of the type, absolutely: with
the sum of the largest |v[s]| that is f times it per unit of a coefficient, and a number per box and layer, `floor`.

Symbols: B boxes, n inputs, w neurons of a layer, Q combinations per box.
    lower, upper (B, n) walls; z_low, z_high (B, w) bounds of one layer's pre-activations
    coefficients (b, Q, w) of linear combinations, of v[s] or of z[k]; constant (b, Q)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from models.verification.bounds.relaxation import CURVE_ULPS, LOST, Lines, largest, lines
from models.verification.checker.time_limit import require_time
from models.verification.network.graph import Graph, Layer
from models.verification.network.graph_tensors import GraphTensors, activate

# Elements of one temporary tensor of the refinement: a few of them fit into the cache.
CHUNK_ELEMENTS = 250_000
# Neurons that are open for a smaller share of their interval than this are not cut: what is carried along a chain,
# and never below zero but for rounding, is none of them.
CUT = 1e-3


@dataclass(frozen=True)
class LayerBounds:
    """What is known of one layer over the boxes.

    z_low, z_high (B, w); lines of its activation; size (B, w): error of a bound per unit of coefficient on z;
    floor (B, 1): what a pass from here to the input loses to underflow whatever its coefficients; slope_low,
    slope_high (B, n, w): the forward pass's coefficients per input, unit cube (for choosing splits).
    """

    z_low: Tensor
    z_high: Tensor
    lines: Lines
    size: Tensor
    floor: Tensor
    slope_low: Tensor
    slope_high: Tensor

    def open_by(self, share: float) -> Tensor:
        """(B, w): which z may have either sign, each for more than a share of their interval."""
        least = share * (self.z_high - self.z_low)
        return (self.z_low < -least) & (self.z_high > least)


@dataclass(frozen=True)
class Boxes:
    """Centre, radius (rounded up) and largest |x|, each (B, n), of boxes in the bounder's type."""

    centre: Tensor
    radius: Tensor
    largest: Tensor


@dataclass(frozen=True)
class BackwardPass:
    """Result of a backward pass.

    lower (b, Q) bounds; charge (b, Q): what of them rounding took, from the first product on; coefficients (b, Q, n) of
    x, and those met on v[k + 1] per layer (b, Q, w), only where slopes were given.
    """

    lower: Tensor
    charge: Tensor
    input_coefficients: Tensor
    activation_coefficients: Mapping[int, Tensor]

    def of(self, boxes: Tensor) -> "BackwardPass":
        """Those of some boxes (m,)."""
        return BackwardPass(self.lower[boxes], self.charge[boxes], self.input_coefficients[boxes],
                            {k: on_a[boxes] for k, on_a in self.activation_coefficients.items()})

    def with_rows(self, boxes: Tensor, other: "BackwardPass") -> "BackwardPass":
        """With another's rows in the place of these boxes' (m,)."""
        def put(values: Tensor, new: Tensor) -> Tensor:
            return values.index_copy(0, boxes, new)

        return BackwardPass(put(self.lower, other.lower), put(self.charge, other.charge),
                            put(self.input_coefficients, other.input_coefficients),
                            {k: put(on_a, other.activation_coefficients[k])
                             for k, on_a in self.activation_coefficients.items()})


@dataclass(frozen=True)
class Rows:
    """Linear combinations of the outputs: coefficients (B, Q, o), constant (B, Q), and what they were added up from.

    coefficient_size, constant_size: sums of the absolute values of the terms, which bound their rounding.
    """

    coefficients: Tensor
    constant: Tensor
    coefficient_size: Tensor
    constant_size: Tensor

    def of(self, boxes: Tensor) -> "Rows":
        """Those of some boxes (m,)."""
        return Rows(self.coefficients[boxes], self.constant[boxes], self.coefficient_size[boxes],
                    self.constant_size[boxes])


def pieces(wanted: Tensor, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The wanted neurons (L, w) of lines, each twice in a pass of this width, in pieces that stay in the cache.

    Numbers of lines (l,) with like counts, those with most first, and of their neurons (l, c): the wanted ones and,
    where a line has fewer than c, some others.
    """
    counts = wanted.sum(dim=1)
    wanted_first = torch.argsort(wanted.to(torch.uint8), dim=1, descending=True, stable=True)
    by_count = torch.argsort(counts, descending=True)
    by_count = by_count[: int((counts > 0).sum())]
    first = 0
    while first < len(by_count):
        most = int(counts[by_count[first]])
        part = by_count[first : first + max(CHUNK_ELEMENTS // (2 * most * width), 1)]
        first += len(part)
        yield part, wanted_first[part, :most]


class Bounder:
    """Bounds one graph's values over batches of boxes in one floating-point type on one device."""

    def __init__(self, graph: Graph, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.graph, self.dtype, self.device = graph, dtype, device
        self.tensors = GraphTensors(graph, dtype, device)
        self.unit, self.floor = torch.finfo(dtype).eps / 2, torch.finfo(dtype).tiny
        self.tiny = 1e-30 if dtype == torch.float32 else 1e-290
        self.absolute = [{s: m.abs() for s, m in matrices.items()} for matrices in self.tensors.matrices]
        self.offset_sizes = [b.abs() for b in self.tensors.offsets]
        self.errors = [{s: self._up(self.tensors.tensor(e)) for s, e in affine.error.items()}
                       for affine in graph.affines]
        exact = torch.zeros((), dtype=dtype, device=device)
        self.offset_errors = [exact if a.offset_error is None else self._up(self.tensors.tensor(a.offset_error))
                              for a in graph.affines]
        self._set_costs()

    def _set_costs(self) -> None:
        """What rounding and underflow cost each layer, as linear functions of the sizes of what it adds up.

        costs: source -> (size, w + 1), backward, per unit of coefficient and, last, in any case; forward_costs: source
        -> (size, w); base, forward_base: the costs of what does not depend on the box.
        """
        lost, n = LOST * self.floor, self.graph.inputs
        self.costs: list[dict[int, Tensor]] = []
        self.forward_costs: list[dict[int, Tensor]] = []
        self.base: list[Tensor] = []
        self.forward_base: list[Tensor] = []
        for k, matrices in enumerate(self.absolute):
            offset, rows = self.offset_sizes[k], len(self.offset_sizes[k])
            columns = sum(m.shape[1] for m in matrices.values())
            # a backward step adds up over the rows, what it starts from over the columns
            backward, forward = self.eps(max(columns + 1, rows)), self.eps(n + 1 + columns)
            base = torch.cat([backward * offset + self.tiny, lost * (rows + columns + offset.sum(0, keepdim=True))])
            base[:-1] += 1.1 * self.offset_errors[k]
            ahead = 2 * (forward * offset + self.offset_errors[k]) + self.tiny
            self.costs.append({})
            self.forward_costs.append({})
            for source, m in matrices.items():
                inexact = self.errors[k].get(source)
                larger = m + self.floor / self.unit
                cost, ahead_cost = backward * larger, larger.mul_(2 * forward)
                if inexact is not None:
                    cost, ahead_cost = cost.add_(inexact, alpha=1.1), ahead_cost.add_(inexact, alpha=2)
                cost = torch.cat([cost, lost * (rows + columns + m.sum(0, keepdim=True))])
                base = base + self.floor * cost.sum(1)  # the largest |v| are known up to that
                ahead = ahead + lost * (n + 3) * (m.sum(1) + m.shape[1])  # each v is n + 3 numbers, off by a few f each
                self.costs[k][source] = cost.T
                self.forward_costs[k][source] = ahead_cost.T
            self.base.append(base)
            self.forward_base.append(ahead)

    def _up(self, x: Tensor) -> Tensor:
        return x * (1 + 4 * self.unit) + self.tiny

    def eps(self, terms: int) -> float:
        """Relative error of a product of so many terms and the few operations around it, conversion of W included."""
        return (1.1 * terms + 32 + 4 * len(self.graph.layers)) * self.unit

    def boxes(self, lower: Tensor, upper: Tensor) -> Boxes:
        """float64 walls (B, n) as centre and radius in this type, outward."""
        centre = ((lower + upper) / 2).to(self.dtype)
        centre = torch.where(centre.abs() < self.floor, 0.0, centre)
        exact = centre.double()
        radius = torch.maximum(upper - exact, exact - lower)
        rounded = (radius * (1 + 2.0**-50)).to(self.dtype)
        radius_here = torch.where(radius > 0, rounded * (1 + 4 * self.unit) + self.tiny, torch.zeros_like(rounded))
        return Boxes(centre, radius_here, centre.abs() + radius_here)

    @torch.no_grad()
    def layers(self, boxes: Boxes, refine: bool = True) -> list[LayerBounds]:
        """Bounds of every layer, first layer first. refine: with backward passes for the unstable neurons."""
        centre, radius = boxes.centre, boxes.radius
        # a source's row block: n slopes and the offset of the lower line, the same of the upper line
        identity = torch.diag_embed(radius)
        sources = [_Source(identity, centre, identity, centre, centre - radius, centre + radius, boxes.largest)]
        found: list[LayerBounds] = []
        floor = torch.zeros_like(centre[:, :1])
        for k, layer in enumerate(self.graph.layers):
            require_time()
            z = self._forward(k, sources)
            size, lost = self.size(k, [source.largest for source in sources])
            low, high = z.interval
            if refine and k > 1:  # before, the backward pass finds what the forward one does
                low, high = self._refine(k, found, boxes, low, high, size)
            floor = floor + lost
            # a NaN, from overflow, says nothing; every comparison with it would read as "never above zero"
            low, high = torch.where(low.isnan(), -torch.inf, low), torch.where(high.isnan(), torch.inf, high)
            relaxed = lines(layer, low, high)
            found.append(LayerBounds(low, high, relaxed, size, floor, z.slope_low, z.slope_high))
            if k + 1 < len(self.graph.layers):
                sources.append(z.through(layer, relaxed, low, high))
        return found

    def size(self, k: int, largest_values: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """What a step over z[k] costs, from the largest |v| of the sources (B, size).

        (B, w) per unit of coefficient on z[k]; (B, 1) whatever the coefficients, for what underflows.
        """
        total = self.base[k]
        for source, cost in self.costs[k].items():
            total = torch.addmm(total, largest_values[source], cost)
        return total[:, :-1], total[:, -1:]

    def _forward(self, k: int, sources: Sequence["_Source"]) -> "_Linear":
        """Linear bounds and intervals of z[k], rounding charged to the offsets."""
        n = sources[0].slope_low.shape[1]
        middles, halves = [], []
        error = self.forward_base[k]
        for source, matrix in self.tensors.matrices[k].items():
            mid, radius = sources[source].columns()
            middles.append(mid @ matrix.T)
            halves.append(radius @ self.absolute[k][source].T)
            error = torch.addmm(error, sources[source].size(), self.forward_costs[k][source])
        middle, half = reduce(torch.add, middles), reduce(torch.add, halves)
        offset = self.tensors.offsets[k]
        low, high = middle - half, middle + half  # columns: n slopes, offset, interval
        return _Linear(low[:, :n], low[:, n] + offset - error, high[:, :n], high[:, n] + offset + error,
                       low[:, n + 1] + offset - error, high[:, n + 1] + offset + error, 1 + self.eps(n))

    def _refine(
        self, k: int, found: Sequence[LayerBounds], boxes: Boxes, low: Tensor, high: Tensor, size: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Bounds the unstable neurons of layer k again, by a backward pass each; size (B, w) of layer k."""
        layer = self.graph.layers[k]
        wanted = (low < 0) & (high > 0) if layer.kind in ("relu", "leaky_relu") else high > low
        if not wanted.any():
            return low, high
        low, high = low.clone(), high.clone()
        for part, neuron in pieces(wanted, max(self.graph.widths[: k + 1])):
            rows = neuron.shape[1]
            matrices = {s: torch.cat([m[neuron], -m[neuron]], 1) for s, m in self.tensors.matrices[k].items()}
            offset, slack = self.tensors.offsets[k][neuron], size[part].gather(1, neuron)
            start, error = torch.cat([offset, -offset], 1), torch.cat([slack, slack], 1)
            lower = self._backward(matrices, start, error, found, boxes, part).lower
            at = part[:, None].expand_as(neuron)
            low[at, neuron] = torch.maximum(low[at, neuron], lower[:, :rows])
            high[at, neuron] = torch.minimum(high[at, neuron], -lower[:, rows:])
        return low, torch.maximum(low, high)

    def _largest(self, found: Sequence[LayerBounds], boxes: Boxes) -> list[Tensor]:
        return [boxes.largest, *(largest(self.graph.layers[j], bound.z_low, bound.z_high)
                                 for j, bound in enumerate(found))]

    @torch.no_grad()
    def lower_bound(
        self, found: Sequence[LayerBounds], boxes: Boxes, rows: "Rows", slopes: Mapping[int, Tensor] | None = None,
        part: Tensor | None = None, cut: int | None = None,
    ) -> BackwardPass:
        """Rigorous lower bounds of rows.coefficients @ y + rows.constant over the boxes.

        Args:
            slopes: layer -> (B, Q, w) lower slopes to use, within the activation's range of valid ones.
            part: (b,) the rows' boxes; None: all.
            cut: layer whose open neurons end at their intervals, while those of known sign go on to the input; None:
                no layer's.
        """
        k = len(self.graph.layers)
        size, floor = self.size(k, self._largest(found, boxes))
        size, floor = (values if part is None else values[part] for values in (size, floor))
        on_sources = {s: rows.coefficients @ m for s, m in self.tensors.matrices[k].items()}
        error = (rows.coefficient_size * size[:, None, :]).sum(-1) + floor
        error = error + self.eps(rows.coefficients.shape[-1] + 4) * (
            rows.constant_size + rows.coefficient_size @ self.offset_sizes[k])
        start = rows.constant + rows.coefficients @ self.tensors.offsets[k]
        intervals = [(boxes.centre - boxes.radius, boxes.centre + boxes.radius),
                     *(_values(layer, bound) for layer, bound in zip(self.graph.layers, found, strict=True))]
        return self._backward(on_sources, start, error, found, boxes, part, slopes, intervals, cut)

    def _backward(
        self, rows: dict[int, Tensor], constant: Tensor, error: Tensor, found: Sequence[LayerBounds], boxes: Boxes,
        part: Tensor | None, slopes: Mapping[int, Tensor] | None = None,
        intervals: Sequence[tuple[Tensor, Tensor]] | None = None, cut: int | None = None,
    ) -> BackwardPass:
        """From coefficients (b, Q, size) on the sources, layer by layer to the input.

        constant, error (b, Q): what the start adds, and how far it may be off; part (b,): the rows' boxes; intervals:
        of the sources, each (B, size) twice, at which the pass may end as well; cut: see lower_bound.
        """

        def take(values: Tensor) -> Tensor:
            return (values if part is None else values[part])[:, None, :]

        met: dict[int, Tensor] = {}
        charge = torch.zeros_like(constant)
        best = torch.full_like(constant, -torch.inf), torch.zeros_like(constant)
        for k in range(len(found) - 1, -1, -1):
            require_time()
            if intervals is not None and k + 1 in rows and cut is None:
                walls = {source: tuple(map(take, intervals[source])) for source in rows}
                best = _larger(best, self._stopped(rows, constant, charge, error, take(found[-1].floor), walls))
            on_a = rows.pop(k + 1, None)
            if on_a is None:
                continue
            bound = found[k]
            if slopes is not None:
                met[k] = on_a
            if intervals is not None and k == cut:
                low, high = intervals[k + 1]
                open_ = take(bound.open_by(CUT))
                ends = _at_ends(torch.where(open_, on_a, 0.0), take(low), take(high))
                charge += self.eps(on_a.shape[-1]) * ends.abs().sum(-1)
                constant, on_a = constant + ends.sum(-1), torch.where(open_, 0.0, on_a)
                # what splits may gain there is the interval, where it is the lines' gap elsewhere
                gap = take((high - low) / bound.lines.upper_offset.clamp_min(self.tiny))
                if k in met:
                    met[k] = torch.where(open_, met[k] * gap, met[k])
            # few passes over memory, in place: they cost as much as the products
            on_z = on_a.clamp_min(0)
            negative = on_a - on_z
            lift = (negative * take(bound.lines.upper_offset)).sum(-1)
            charge += self.eps(on_a.shape[-1]) * lift.abs()  # all terms of a lift have one sign
            constant = constant + lift
            if bound.lines.lower_offset is not None:
                terms = on_z * take(bound.lines.lower_offset)
                constant = constant + terms.sum(-1)
                charge += self.eps(on_a.shape[-1]) * (terms.abs().sum(-1) + (
                    negative * take(bound.lines.upper_offset)).abs().sum(-1))
            on_z *= slopes[k] if slopes is not None and k in slopes else take(bound.lines.lower_slope)
            on_z.addcmul_(negative, take(bound.lines.upper_slope))
            charge += torch.abs(on_z, out=negative).mul_(take(bound.size)).sum(-1)
            constant = constant + on_z @ self.tensors.offsets[k]
            for source, matrix in self.tensors.matrices[k].items():
                step = on_z @ matrix
                rows[source] = rows[source] + step if source in rows else step
        centre, radius = take(boxes.centre), take(boxes.radius)
        on_x = rows.get(0)
        if on_x is None:
            on_x = torch.zeros_like(constant)[..., None] * centre
        spread = (on_x.abs() * radius).sum(-1)
        reach = (on_x * centre).sum(-1)
        charge = charge * 1.1 + self.eps(on_x.shape[-1]) * (spread + (on_x.abs() * centre.abs()).sum(-1))
        charge = charge + 8 * (len(found) + 4) * self.unit * (constant.abs() + reach.abs()) + (error + self.tiny)
        if found:
            charge = charge + take(found[-1].floor)[..., 0]
        return BackwardPass(*_larger(best, (constant + reach - spread - charge, charge)), on_x, met)

    def _stopped(
        self, rows: Mapping[int, Tensor], constant: Tensor, charge: Tensor, error: Tensor, floor: Tensor,
        walls: Mapping[int, tuple[Tensor, ...]],
    ) -> tuple[Tensor, Tensor]:
        """Bounds and charges (b, Q) of a pass that ends here: the sources that it has reached, by their intervals."""
        ends = torch.cat([_at_ends(on, *walls[source]) for source, on in rows.items()], -1)
        size = constant.abs() + ends.abs().sum(-1)
        charge = charge * 1.1 + (self.eps(ends.shape[-1]) + 8 * (len(self.graph.layers) + 4) * self.unit) * size
        charge = charge + (error + self.tiny) + floor[..., 0]
        lower = constant + ends.sum(-1) - charge
        return torch.where(lower.isnan(), -torch.inf, lower), charge


def _values(layer: Layer, bound: LayerBounds) -> tuple[Tensor, Tensor]:
    """The interval (B, w) of the layer's activation."""
    slack = CURVE_ULPS * torch.finfo(bound.z_low.dtype).eps if layer.kind in ("tanh", "sigmoid") else 0.0
    return activate(layer, bound.z_low) - slack, activate(layer, bound.z_high) + slack


def _at_ends(rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The least of each term of rows @ v for v between low and high; 0 where the coefficient is, even if v is not."""
    return torch.where(rows == 0, 0.0, torch.where(rows > 0, rows * low, rows * high))


def _larger(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Bounds and their charges, the larger bound of the two; of NaN the second."""
    first = one[0] > other[0]
    return torch.where(first, one[0], other[0]), torch.where(first, one[1], other[1])


@dataclass(frozen=True)
class _Source:
    """Linear bounds (slopes (B, n, w), offsets (B, w)), intervals and largest |v| (B, w) of one source."""

    slope_low: Tensor
    offset_low: Tensor
    slope_high: Tensor
    offset_high: Tensor
    low: Tensor
    high: Tensor
    largest: Tensor

    def size(self) -> Tensor:
        """(B, w): all absolute values that enter a product with this source."""
        return (self.slope_low.abs().sum(1) + self.slope_high.abs().sum(1) + self.offset_low.abs()
                + self.offset_high.abs() + self.low.abs() + self.high.abs())

    def columns(self) -> tuple[Tensor, Tensor]:
        """Midpoints and half widths (B, n + 2, w) of slopes, offset and interval."""
        low = torch.cat([self.slope_low, self.offset_low[:, None], self.low[:, None]], 1)
        high = torch.cat([self.slope_high, self.offset_high[:, None], self.high[:, None]], 1)
        return (low + high) / 2, (high - low) / 2


@dataclass(frozen=True)
class _Linear:
    """Linear bounds of z and its interval by interval arithmetic, before they are intersected."""

    slope_low: Tensor
    offset_low: Tensor
    slope_high: Tensor
    offset_high: Tensor
    low: Tensor
    high: Tensor
    outward: float

    @property
    def interval(self) -> tuple[Tensor, Tensor]:
        """z_low, z_high (B, w)."""
        low = self.offset_low - self.slope_low.abs().sum(1) * self.outward
        high = self.offset_high + self.slope_high.abs().sum(1) * self.outward
        slack_low, slack_high = low.abs(), high.abs()
        unit = torch.finfo(low.dtype).eps
        low, high = low - unit * slack_low, high + unit * slack_high
        return torch.maximum(low, self.low), torch.maximum(torch.minimum(high, self.high), torch.maximum(low, self.low))

    def through(self, layer: Layer, relaxed: Lines, low: Tensor, high: Tensor) -> _Source:
        """The linear bounds of the activation: each line's slope is >= 0, so that lower stays lower."""
        unit = torch.finfo(low.dtype).eps
        slope_low = relaxed.lower_slope[:, None] * self.slope_low
        slope_high = relaxed.upper_slope[:, None] * self.slope_high
        offset_low = relaxed.lower_slope * self.offset_low
        offset_high = relaxed.upper_slope * self.offset_high + relaxed.upper_offset
        if relaxed.lower_offset is not None:
            offset_low = offset_low + relaxed.lower_offset
        # the products of slopes round as well: charged here, where |unit cube| <= 1
        offset_low = offset_low - unit * (offset_low.abs() * 2 + slope_low.abs().sum(1))
        rounded = offset_high.abs() * 2 + relaxed.upper_offset.abs() + slope_high.abs().sum(1)
        offset_high = offset_high + unit * rounded
        slack = CURVE_ULPS * unit if layer.kind in ("tanh", "sigmoid") else 0.0
        return _Source(slope_low, offset_low, slope_high, offset_high, activate(layer, low) - slack,
                       activate(layer, high) + slack, largest(layer, low, high))
