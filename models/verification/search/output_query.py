"""Margins of an unsafe set over boxes: by how much each box stays clear of it, and where it is worst.

An alternative cannot happen in a box if one of its constraints is bounded below zero over the whole box, or one
combination of them with weights >= 0: at every point of the box one is below zero then. So a property is proved under
linear conditions that cut the box. The weights are climbed to on the rows' own linear bounds; the combination is then
bounded as one row. The lower slopes of the unstable ReLUs in the last backward pass are improved by a few steps along
the bound's supergradient (alpha-CROWN): the bound is the value of the chosen linear relaxations at their worst corner,
so that its derivative by a slope is the coefficient on that activation times the relaxed pre-activation there.

Symbols: B boxes, n inputs, K alternatives of M constraints, Q = K M rows per box.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from models.verification.bounds.linear_bounds import BackwardPass, Bounder, Boxes, LayerBounds, Rows
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import Graph
from models.verification.search.branch_and_bound import Margins

STEPS = 4
# Places between two combinations of constraints that are tried.
PLACES = 9
STEP_SIZES = (1.0, 0.5, 0.25, 0.25)
LEAST_LACK = 1e-3  # what a row lacks to a proof counts as so much of what the others lack, at least


class OutputQuery:
    """Bounds for one graph and one unsafe set on one device."""

    def __init__(self, graph: Graph, unsafe: UnsafeSet, device: str = "cpu", steps: int = STEPS) -> None:
        self.graph, self.unsafe, self.device, self.steps = graph, unsafe, device, steps
        self._typed = cache(lambda dtype: _Typed(graph, unsafe, dtype, device))  # most searches need one type only

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins of boxes with float64 walls (B, n); root (B,): which box of the unsafe set each is part of."""
        typed = self._typed(dtype)
        boxes = typed.bounder.boxes(lower, upper)
        found = typed.bounder.layers(boxes)
        best, every = typed.optimise(found, boxes, root, self.steps)
        margin, alternative = best.lower.min(dim=1)
        here = torch.arange(len(lower), device=lower.device)
        on_x = best.input_coefficients[here, alternative]
        on_a = {k: c[here, alternative] for k, c in best.activation_coefficients.items()}
        suspect = torch.where(on_x > 0, lower, upper)
        if every is not None:
            on_x, on_a = _summed(every, here, alternative)
        score = typed.score(found, boxes, on_x, on_a)
        return Margins(margin, margin > 0, best.charge[here, alternative], score, suspect)


class _Typed:
    """The query's tensors in one type. Bounded are the negated constraints: one of them above zero is safe."""

    def __init__(self, graph: Graph, unsafe: UnsafeSet, dtype: torch.dtype, device: str) -> None:
        self.bounder = Bounder(graph, dtype, device)
        self.coefficients = -torch.as_tensor(unsafe.coefficients, device=device).to(dtype)
        self.constants = -torch.as_tensor(unsafe.constants, device=device).to(dtype)

    def optimise(self, found: Sequence[LayerBounds], boxes: Boxes, root: Tensor,
                 steps: int) -> tuple[BackwardPass, BackwardPass | None]:
        """The best backward pass per alternative, (B, K, ...), met while improving the lower slopes of the best row;
        and that of every row (B, K, M, ...), where an alternative has several."""
        coefficients, constants = self.coefficients[root], self.constants[root]
        count, alternatives, rows, _ = coefficients.shape
        every = self.bounder.lower_bound(found, boxes, _rows(coefficients.flatten(1, 2), constants.flatten(1)), {})
        free = [k for k in every.activation_coefficients if found[k].lines.freedom.any()]
        best_row = every.lower.reshape(count, alternatives, rows).argmax(dim=2)
        pick = best_row + rows * torch.arange(alternatives, device=best_row.device)
        current = best = _select(every, pick)
        chosen = _combined(coefficients, constants, one_hot(best_row, rows).to(constants.dtype))
        if rows > 1 and not (best.lower > 0).all():
            chosen = _combined(coefficients, constants, _weights(every, boxes, best_row, rows))
            current = self.bounder.lower_bound(found, boxes, chosen, {})
            best = _better(best, current)
        slopes: dict[int, Tensor] = {}
        for step in range(steps if free else 0):
            gradients = self._slope_gradients(found, boxes, current, slopes)
            for k in free:
                gradient, relaxed = gradients[k], found[k].lines
                gradient /= gradient.abs().amax(-1, keepdim=True).clamp_min(1e-30)
                moved = slopes.get(k, relaxed.lower_slope[:, None]) + STEP_SIZES[step] * gradient
                least = relaxed.least[:, None]
                slopes[k] = torch.minimum(torch.maximum(moved, least), least + relaxed.freedom[:, None])
            current = self.bounder.lower_bound(found, boxes, chosen, slopes)
            best = _better(best, current)
        return self._cut(found, boxes, chosen, best), _by_row(every, count, alternatives) if rows > 1 else None

    def _cut(self, found: Sequence[LayerBounds], boxes: Boxes, chosen: Rows, best: BackwardPass) -> BackwardPass:
        """The same, where that proves nothing, from passes in which the open neurons of one layer go no further."""
        for k in reversed(range(len(found))):
            left = (~(best.lower > 0).all(dim=1)).nonzero()[:, 0]
            if not len(left):
                return best
            if k not in best.activation_coefficients or not found[k].lines.freedom[left].any():
                continue
            cut = self.bounder.lower_bound(found, boxes, chosen.of(left), {}, left, k)
            best = best.with_rows(left, _better(best.of(left), cut))
        return best

    def _slope_gradients(self, found: Sequence[LayerBounds], boxes: Boxes, at: BackwardPass,
                         slopes: dict[int, Tensor]) -> dict[int, Tensor]:
        """d bound / d lower slope (B, K, w): positive coefficients times the relaxed z at the worst corner."""
        corner = boxes.centre[:, None] - boxes.radius[:, None] * at.input_coefficients.sign()
        values, gradients = [corner], {}
        for k, bound in enumerate(found):
            z = self.bounder.tensors.affine(k, values)
            relaxed = bound.lines
            below = z * slopes.get(k, relaxed.lower_slope[:, None])
            if relaxed.lower_offset is not None:
                below += relaxed.lower_offset[:, None]
            above = torch.addcmul(relaxed.upper_offset[:, None], z, relaxed.upper_slope[:, None])
            on_a = at.activation_coefficients.get(k)
            if on_a is None:
                values.append(above)
                continue
            gradients[k] = on_a.clamp_min(0).mul_(z).mul_(relaxed.freedom[:, None])
            values.append(torch.lerp(above, below, (on_a > 0).to(z.dtype)))
        return gradients

    def score(self, found: Sequence[LayerBounds], boxes: Boxes, on_x: Tensor, on_a: dict[int, Tensor]) -> Tensor:
        """(B, n): coefficient times radius, plus the relaxation gap of every neuron shared out over the inputs."""
        score = on_x.abs() * boxes.radius
        for k, coefficients in on_a.items():
            bound = found[k]
            lift = bound.lines.upper_offset
            if bound.lines.lower_offset is not None:
                lift = lift - bound.lines.lower_offset
            # a gap is about proportional to the width of z, of which an input makes up 2 |slope|
            cost = 2 * lift * coefficients.abs() / (bound.z_high - bound.z_low).clamp_min(self.bounder.tiny)
            score = score + (((bound.slope_low + bound.slope_high) / 2).abs() @ cost[..., None])[..., 0]
        return score


def _by_row(passes: BackwardPass, count: int, alternatives: int) -> BackwardPass:
    """A pass over (B, Q) rows as (B, K, M)."""
    def rows(values: Tensor) -> Tensor:
        return values.reshape(count, alternatives, -1, *values.shape[2:])

    return BackwardPass(rows(passes.lower), rows(passes.charge), rows(passes.input_coefficients),
                        {k: rows(c) for k, c in passes.activation_coefficients.items()})


def _summed(every: BackwardPass, here: Tensor, alternative: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
    """Sizes of coefficients on inputs (B, n) and activations, summed over the rows of an alternative, each row's over
    what it lacks: any of them may close the box, and splitting for the nearest alone may never."""
    lacking = -every.lower[here, alternative]
    share = lacking.amax(dim=1, keepdim=True) / torch.maximum(lacking, LEAST_LACK * lacking.amax(dim=1, keepdim=True))

    def summed(coefficients: Tensor) -> Tensor:
        return (coefficients[here, alternative].abs() * share[..., None]).sum(dim=1)

    return summed(every.input_coefficients), {k: summed(c) for k, c in every.activation_coefficients.items()}


def _combined(coefficients: Tensor, constants: Tensor, weights: Tensor) -> Rows:
    """The weighted (B, K, M) sums of the rows (B, K, M, o) of each alternative."""
    sums = [(weights[..., None] * values).sum(2) for values in (coefficients, coefficients.abs())]
    return Rows(sums[0], (weights * constants).sum(2), sums[1], (weights * constants.abs()).sum(2))


def _weights(every: BackwardPass, boxes: Boxes, best_row: Tensor, rows: int) -> Tensor:
    """Weights (B, K, M) of the rows of each alternative for which their combined linear bound is large.

    What is bounded is concave in them: from the best row it is climbed along the lines to each of the others.
    """
    shape = (*best_row.shape, rows)
    on_x = every.input_coefficients.reshape(*shape, -1)
    radius = boxes.radius[:, None, None]
    centre = every.lower.reshape(shape) + (on_x.abs() * radius).sum(-1)  # the linear bounds' values there
    weights = one_hot(best_row, rows).to(on_x.dtype)
    share = torch.linspace(0, 1, PLACES, dtype=on_x.dtype, device=on_x.device)[:, None]
    for other in (*range(rows), *range(rows)):
        towards = torch.zeros_like(weights[0, 0])
        towards[other] = 1
        moved = torch.lerp(weights[:, :, None], towards, share)  # (B, K, T, M)
        value = (moved @ centre[..., None])[..., 0] - ((moved @ on_x).abs() * radius).sum(-1)
        at = torch.nan_to_num(value, nan=-torch.inf).argmax(dim=2)
        weights = moved.gather(2, at[..., None, None].expand(-1, -1, 1, rows))[:, :, 0]
    return weights


def _rows(coefficients: Tensor, constant: Tensor) -> Rows:
    return Rows(coefficients, constant, coefficients.abs(), constant.abs())


def _select(passes: BackwardPass, pick: Tensor) -> BackwardPass:
    """The queries (B, K) of a pass over (B, Q) of them."""
    def rows(values: Tensor) -> Tensor:
        return values.gather(1, pick[..., None].expand(-1, -1, values.shape[-1]))

    return BackwardPass(passes.lower.gather(1, pick), passes.charge.gather(1, pick), rows(passes.input_coefficients),
                        {k: rows(c) for k, c in passes.activation_coefficients.items()})


def _better(old: BackwardPass, new: BackwardPass) -> BackwardPass:
    """Per query the pass with the greater bound."""
    gains = new.lower > old.lower
    share = gains[..., None].to(new.lower.dtype)
    return BackwardPass(
        torch.maximum(old.lower, new.lower), torch.where(gains, new.charge, old.charge),
        torch.lerp(old.input_coefficients, new.input_coefficients, share),
        {k: torch.lerp(old.activation_coefficients[k], c, share) for k, c in new.activation_coefficients.items()})
