"""Counterexample search: pairs of inputs that stand in the wrong order. Runs before any proof.

Random and given starting points are moved uphill on the violation: along the gradient of the pair's
gap in all coordinates, with the pair's two values of the feature themselves free. At each point the
whole feature axis is scanned at once for the largest fall. A pair that differs in several features
and violates the order always contains one that differs in a single feature, so only those are sought.

Symbols: K candidates, G grid values of a feature, n inputs; x (K, n).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from models.verification.network import ReluNetwork, forward
from models.verification.specification import FloatArray, Specification
from models.verification.verdict import Witness

# Rounding of a float32 forward pass at these sizes stays near 1e-6 of the output range; a witness must exceed it.
REPLAY_MARGIN = 1e-5
# Halvings of a side of the box: 2^-20 of it is near what float32 can tell apart.
NEAREST = 20


def falsify(
    network: ReluNetwork,
    specification: Specification,
    points: FloatArray | None = None,
    limit: int = 64,
    samples: int = 512,
    steps: int = 10,
    grid: int = 17,
    seed: int = 0,
) -> tuple[Witness, ...]:
    """Searches for violating pairs inside the box.

    Args:
        points: optional starting points (m, n), for example training rows; clipped to the box.
        limit: largest number of witnesses returned, shared among the queries.
        samples: random starting points a query; steps: gradient steps; grid: values along the feature's axis.

    Returns:
        Witnesses whose violation exceeds tolerance and float32 rounding, most violated first; empty: none found.
    """
    generator = torch.Generator().manual_seed(seed)
    lower, upper = (torch.as_tensor(v, dtype=torch.float32) for v in (specification.lower, specification.upper))
    start = lower + (upper - lower) * torch.rand(samples, network.inputs, generator=generator)
    if points is not None and len(points):
        given = torch.as_tensor(np.asarray(points), dtype=torch.float32)
        order = torch.randperm(len(given), generator=generator)[:samples]
        start = torch.cat([start, given[order].clamp(lower, upper)])
    weights, biases = network.tensors()
    queries = specification.queries
    found: list[Witness] = []
    for feature, sign in queries:
        if not specification.lower[feature] < specification.upper[feature]:
            continue
        pairs = _climb(weights, biases, start, (feature, sign), lower, upper, specification.tolerance, steps, grid)
        found += _witnesses(network, specification, feature, sign, *pairs)[: max(1, limit // len(queries))]
    return tuple(sorted(found, key=lambda witness: -witness.excess))


def falsify_near(network: ReluNetwork, specification: Specification, points: FloatArray) -> tuple[Witness, ...]:
    """Searches close to points (m, n) at which a slope is known to have the wrong sign.

    A fall that is narrow along the feature's axis lies between the values that `falsify` scans: here pairs stand
    around each point, half the side of the box apart, a quarter, and so on down to NEAREST halvings. At most 32 points.
    """
    points = np.asarray(points, dtype=np.float64)[:32]
    share = 0.5 ** np.arange(1, NEAREST + 1)
    found: list[Witness] = []
    for feature, sign in specification.queries:
        low, high = (np.repeat(points[:, None, :], len(share), axis=1) for _ in range(2))
        half = (specification.upper[feature] - specification.lower[feature]) * share / 2
        low[:, :, feature] -= half
        high[:, :, feature] += half
        pairs = (torch.as_tensor(side.reshape(-1, network.inputs)) for side in (low, high))
        found += _witnesses(network, specification, feature, sign, *pairs)
    return tuple(sorted(found, key=lambda witness: -witness.excess))


def _climb(
    weights: Sequence[Tensor], biases: Sequence[Tensor], start: Tensor, query: tuple[int, int],
    lower: Tensor, upper: Tensor, tolerance: float, steps: int, grid: int,
) -> tuple[Tensor, Tensor]:
    """Best pairs (low, high), each (K, n), after gradient ascent from the best scanned starting points."""
    feature, sign = query
    low, high, gap = _scan(weights, biases, start, query, lower, upper, tolerance, grid)
    keep = torch.argsort(gap, descending=True)[:64]
    low, high = low[keep], high[keep]
    width = (upper - lower).clamp_min(1e-12)
    rate = 0.1
    for _ in range(steps):
        both = torch.stack([low, high]).requires_grad_(True)
        distance = both[1, :, feature] - both[0, :, feature]
        outputs = forward(weights, biases, both)
        violation = sign * (outputs[0] - outputs[1]) - tolerance * distance
        (slope,) = torch.autograd.grad(violation.sum(), both)
        shared = slope.sum(0)
        with torch.no_grad():
            move = rate * width * (shared * width).sign()
            move[:, feature] = 0
            moved = (low + move).clamp(lower, upper)
            new_low, new_high, new_gap = _scan(weights, biases, moved, query, lower, upper, tolerance, grid)
            old_gap = violation.detach()
            better = (new_gap > old_gap)[:, None]
            low, high = torch.where(better, new_low, low), torch.where(better, new_high, high)
        rate *= 0.75
    return low.detach(), high.detach()


@torch.no_grad()
def _scan(
    weights: Sequence[Tensor], biases: Sequence[Tensor], x: Tensor, query: tuple[int, int],
    lower: Tensor, upper: Tensor, tolerance: float, grid: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """For each x (K, n) the pair along the feature's axis with the largest violation: (low, high, gap (K,))."""
    feature, sign = query
    axis = torch.linspace(0, 1, grid) * (upper[feature] - lower[feature]) + lower[feature]
    axis = axis.clamp(lower[feature], upper[feature])
    line = x[:, None, :].repeat(1, grid, 1)
    line[:, :, feature] = axis
    # sign * f + tolerance * x may never fall along the axis: the largest fall ends at some position
    level = sign * forward(weights, biases, line) + tolerance * axis
    peak, peak_at = torch.cummax(level, dim=1)
    gap, end = (peak - level).max(dim=1)
    begin = peak_at.gather(1, end[:, None])[:, 0]
    rows = torch.arange(len(x))
    return line[rows, begin], line[rows, end], gap


def _witnesses(
    network: ReluNetwork, specification: Specification, feature: int, sign: int, low: Tensor, high: Tensor,
) -> list[Witness]:
    """Pairs that hold up in float64 on the box's float64 walls, most violated first."""
    a = np.clip(low.double().numpy(), specification.lower, specification.upper)
    b = np.clip(high.double().numpy(), specification.lower, specification.upper)
    distance = b[:, feature] - a[:, feature]
    with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity are no witnesses
        f_a, f_b = network.value(a), network.value(b)
        scale = 1.0 + np.maximum(np.abs(f_a), np.abs(f_b))
        margin = REPLAY_MARGIN * scale + network.rounding(a) + network.rounding(b)
        excess = sign * (f_a - f_b) - specification.tolerance * distance - margin
    order = [int(i) for i in np.argsort(-excess) if excess[i] > 0 and distance[i] > 0]
    return [Witness(feature, sign, a[i], b[i], float(f_a[i]), float(f_b[i]), float(excess[i])) for i in order]
