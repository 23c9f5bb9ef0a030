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
from functools import cache

import numpy as np
import torch
from torch import Tensor

from models.verification.branch_and_bound import Margins, replace_rows
from models.verification.graph import FloatArray, Graph
from models.verification.linear_bounds import CHUNK_ELEMENTS, Bounder, LayerBounds
from models.verification.relaxation import LOST, derivative_interval

# Weight of a round in the running estimate of what refinement leaves.
LEARNING = 0.3
# Boxes of a trial, open boxes met before the first one, and rounds from one trial to the next: a search that ends soon
# pays for none.
TRIALS, UNTRIED, EVERY = 8, 32, 16
# A box is cut off its middle where that proves so large a part; what is left is never narrower than so much of the
# side, and the wall stands so much inside of the part that shall be proved.
LEAST_CUT, NARROWEST_PART, CUT_SLACK = 0.3, 0.05, 1e-6


@dataclass(frozen=True)
class Slopes:
    """Must hold: rows[f] @ dy/dx[features[f]] >= -allowed[f]. features (F,), rows (F, o), allowed (F,)."""

    features: tuple[int, ...]
    rows: FloatArray
    allowed: FloatArray


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


@dataclass(frozen=True)
class _Stakes:
    """What open derivatives of a layer have to do with the bounds, each (B, F, w).

    cost: what they may take away. on, off: what a bound wins at least once d is known to be its largest and its least
    (of a ReLU: once z > 0 and z < 0).
    """

    cost: Tensor
    on: Tensor
    off: Tensor

    def of(self, query: Tensor) -> "_Stakes":
        """Those of one query (B,) of each box: (B, w)."""
        here = torch.arange(len(query), device=query.device)
        return _Stakes(*(values[here, query if values.shape[1] > 1 else torch.zeros_like(query)]
                         for values in (self.cost, self.on, self.off)))


class DerivativeQuery:
    """Bounds the derivatives of one graph on one device."""

    def __init__(self, graph: Graph, slopes: Slopes, device: str = "cpu") -> None:
        self.graph, self.device = graph, device
        self._typed = cache(lambda dtype: _Typed(graph, slopes, dtype, device))  # most searches need one type only
        self.allowed = torch.as_tensor(slopes.allowed, dtype=torch.float64, device=device)
        self.features, self.rows = slopes.features, torch.as_tensor(slopes.rows, device=device)
        self._exact = graph.tensors(torch.float64, device)
        self._refinement = _Refinement()

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins over boxes with float64 walls (B, n); suspects are the boxes' centres."""
        typed = self._typed(dtype)
        centre = (lower + upper) / 2
        margins = self._margins(typed, lower, upper, centre, refine=False)
        if len(self.graph.layers) < 3:  # the intervals of two layers' derivatives are exact as they are
            return margins
        trial = self._refinement.trial(int((~margins.proved).sum()))
        if not (self._refinement.pays or trial):
            return margins
        reach = (self._exact.slopes(centre, self.features, self.rows) + self.allowed).min(dim=1).values
        hoped = reach - self._refinement.left * (reach - margins.margin.double())
        again = (~margins.proved & ~(hoped < 0)).nonzero()[:, 0]
        if not self._refinement.pays:
            again = again[:TRIALS]
        if not len(again):
            return margins
        better = self._margins(typed, lower[again], upper[again], centre[again], refine=True)
        if trial:
            some = again[:TRIALS]
            halves = [self._margins(typed, *walls, (walls[0] + walls[1]) / 2, refine=False).margin.double()
                      for walls in _halves(lower[some], upper[some], margins.split_score[some])]
            self._refinement.learn(margins.margin[some].double(), better.margin[:len(some)].double(),
                                   (halves[0] + halves[1]) / 2, reach[some],
                                   typed.refinement_cost(lower[some], upper[some]))
        replace_rows(margins, again, better)
        return margins

    def _margins(self, typed: "_Typed", lower: Tensor, upper: Tensor, centre: Tensor, refine: bool) -> Margins:
        boxes = typed.bounder.boxes(lower, upper)
        found = typed.bounder.layers(boxes, refine)
        bounds, charges, stakes = typed.derivatives(found, refine)
        # without hidden layers one bound serves all boxes
        bounds, charges = (of_box.expand(len(lower), -1) for of_box in (bounds, charges))
        margin, worst = (bounds.double() + self.allowed).min(dim=1)
        here = torch.arange(len(lower), device=lower.device)
        score, share = typed.splits(found, stakes, worst, (bounds + self.allowed).to(typed.bounder.dtype), boxes.radius)
        return Margins(margin, margin >= 0, charges[here, worst].double(), score, centre, share)


@dataclass
class _Refinement:
    """Whether refinement pays: what it gains beside what halving the box gains, and what it costs beside a plain bound.

    left: share of a bound's looseness that refinement leaves, 0..1; gain, step: by how much refinement and halving
    raise a margin; cost: of a refined bound in plain ones. All are running means over trials.
    """

    left: float = 0.0
    gain: float = 0.0
    step: float = 0.0
    cost: float = 1.0
    met: int = 0
    rounds: int = 0
    trials: int = 0

    @property
    def pays(self) -> bool:
        """A box that refinement proves would take about this many halvings, and the boxes of such a tree."""
        if not self.trials:
            return False
        halvings = self.gain / max(self.step, 1e-30)
        return halvings > 40 or 2 ** (halvings + 1) - 2 > self.cost

    def trial(self, candidates: int) -> bool:
        """Whether to try this round."""
        self.rounds += candidates > 0
        self.met += candidates
        return candidates > 0 and self.met > UNTRIED and (self.trials < 3 or self.rounds % EVERY == 0)

    def learn(self, plain: Tensor, refined: Tensor, halved: Tensor, reach: Tensor, cost: float) -> None:
        left = ((reach - refined) / (reach - plain).clamp_min(1e-12)).clamp(0, 1)
        found = [(self.left, left), (self.gain, refined - plain), (self.step, halved - plain)]
        if not all(torch.isfinite(new).all() for _, new in found):
            return
        rate = max(LEARNING, 1 / (self.trials + 1))
        self.left, self.gain, self.step = (old + rate * (float(new.mean()) - old) for old, new in found)
        self.cost += rate * (cost - self.cost)
        self.trials += 1


def _halves(lower: Tensor, upper: Tensor, score: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Walls of the two halves across each box's best input."""
    at = torch.arange(len(lower), device=lower.device), score.argmax(dim=1)
    left, right = upper.clone(), lower.clone()
    left[at] = right[at] = (lower[at] + upper[at]) / 2
    return (lower, left), (right, upper)


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
    def derivatives(self, found: Sequence[LayerBounds], refine: bool) -> tuple[Tensor, Tensor, list[_Stakes]]:
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
                stakes.append(_Stakes(none, none, none))
                continue
            up, down = on_p.clamp_min(0), (-on_p).clamp_min(0)
            cost_low, cost_high, gain_low, gain_high = (
                values[:, self.row_of] for values in (chords[k].cost_low, chords[k].cost_high, chords[k].gain_low,
                                                      chords[k].gain_high))
            stakes.append(_Stakes(up * cost_low + down * cost_high, up * gain_low + down * gain_high,
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

    def splits(self, found: Sequence[LayerBounds], stakes: Sequence[_Stakes], worst: Tensor, margins: Tensor,
               radius: Tensor) -> tuple[Tensor, Tensor]:
        """Which input to split, scores (B, n), and where, shares (B, n) of the sides.

        worst (B,): the query with the least margin; margins (B, F); radius (B, n) of the boxes.

        A score is what is at stake for the worst query in every open neuron, for inputs that may close it. A ReLU costs
        the same until its sign is fixed. Halving an input moves a wall of z by |slope|, so what counts is that beside
        the wall's distance from 0. (Measured on certified networks: square, 1.2 to 5 times fewer boxes than shares of
        z's width; beside the widest side 0.6 to 1.2 times.)

        A ReLU whose sign, once it is known, makes up for the margins of all queries proves a part of the box: where one
        input fixes that sign whatever the others are. Moving along the whole side of an input moves z's wall by
        2 |slope|, which tells where that part begins. Where it is large the box is cut there. (Measured on certified
        networks: at three layers half of the boxes, at two three quarters.)
        """
        here = torch.arange(len(worst), device=worst.device)
        total = torch.zeros_like(radius)
        best, at = torch.zeros_like(margins[:, 0]), torch.zeros_like(here)
        above = torch.zeros_like(here, dtype=torch.bool)
        need = (-margins).clamp_min(0)[..., None]
        for layer, bound, at_stake in zip(self.bounder.graph.layers, found, stakes, strict=True):
            of_worst, tiny, width = at_stake.of(worst), self.bounder.tiny, bound.z_low.shape[1]
            if layer.kind not in ("relu", "leaky_relu"):
                slope = ((bound.slope_low + bound.slope_high) / 2).abs_()
                share = slope.div_(((bound.z_high - bound.z_low) / 2).clamp_min(tiny)[:, None]).clamp_max_(1)
                total = total + (share.square_() @ of_worst.cost[..., None])[..., 0]
                continue
            open_ = (bound.z_low < 0) & (bound.z_high > 0)
            for gain, value, reach, slope, sign in (
                    (at_stake.on, of_worst.on, -bound.z_low, bound.slope_low, 1),
                    (at_stake.off, of_worst.cost, bound.z_high, bound.slope_high, -1)):
                share = slope.abs().mul_((open_ / reach.clamp_min(tiny))[:, None])
                enough = open_ & (gain >= need).all(dim=1)
                if enough.any():
                    most, where = (share * enough[:, None]).flatten(1).max(dim=1)
                    better = most > best
                    best = torch.where(better, most, best)
                    at = torch.where(better, where // width, at)
                    above = torch.where(better, sign * slope[here, where // width, where % width] > 0, above)
                total = total + (share.clamp_max_(1).square_() @ value[..., None])[..., 0]
        shares = torch.full_like(total, 0.5, dtype=torch.float64)
        part = (1 - 0.5 / best.double().clamp_min(0.5)) * (1 - CUT_SLACK)
        rows = (part > LEAST_CUT).nonzero()[:, 0]
        part = part[rows].clamp_max(1 - NARROWEST_PART)
        shares[rows, at[rows]] = torch.where(above[rows], 1 - part, part)
        total[rows, at[rows]] = 2 * total[rows].amax(1) + 1
        return total * (radius > 0), shares


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
