"""No value of the exact network ever leaves the bounds. Oracle: rational arithmetic (tests/models/verification/graphs.py)."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.verification import linear_bounds
from models.verification.graph import Affine, Graph, Layer, dense_graph
from models.verification.linear_bounds import BackwardPass, Bounder, Boxes, LayerBounds, Rows
from tests.models.verification.graphs import (
    DTYPES,
    box_points,
    exact,
    exact_weights,
    graphs_and_boxes,
    random_boxes,
    random_graph,
)

attack = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
POINTS = 8
in_both_types = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())


def boxes_of(bounder: Bounder, lower, upper) -> Boxes:
    return bounder.boxes(torch.as_tensor(np.atleast_2d(lower)).double(), torch.as_tensor(np.atleast_2d(upper)).double())


def rows_of(coefficients: torch.Tensor, constant: torch.Tensor) -> Rows:
    return Rows(coefficients, constant, coefficients.abs(), constant.abs())


def output_bounds(graph: Graph, lower, upper, dtype: torch.dtype, refine: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of every output over every box: (R, o) each."""
    bounder = Bounder(graph, dtype)
    boxes = boxes_of(bounder, lower, upper)
    unit = torch.eye(graph.outputs, dtype=dtype).expand(len(boxes.centre), -1, -1)
    both = torch.cat([unit, -unit], 1)
    found = bounder.lower_bound(bounder.layers(boxes, refine), boxes, rows_of(both, torch.zeros_like(both[..., 0]))).lower
    return found[:, : graph.outputs].double().numpy(), -found[:, graph.outputs :].double().numpy()


def random_slopes(found: list[LayerBounds], queries: int) -> dict[int, torch.Tensor]:
    """Lower slopes anywhere in what an activation allows."""
    generator = torch.Generator().manual_seed(0)
    chosen = {}
    for k, bound in enumerate(found):
        share = torch.rand(len(bound.z_low), queries, bound.z_low.shape[1], generator=generator).to(bound.z_low.dtype)
        chosen[k] = bound.lines.least[:, None] + share.round(decimals=1) * bound.lines.freedom[:, None]
    return chosen


def assert_sound(case, dtype: torch.dtype, refine: bool) -> None:
    graph, lower, upper, rng = case
    bounder = Bounder(graph, dtype)
    boxes = boxes_of(bounder, lower, upper)
    found = bounder.layers(boxes, refine)
    coefficients = torch.as_tensor(rng.normal(size=(len(lower), 4, graph.outputs)), dtype=dtype)
    coefficients[:, 0], coefficients[:, 1] = 1, -1
    constant = torch.as_tensor(rng.normal(size=(len(lower), 4)), dtype=dtype)
    rows = rows_of(coefficients, constant)
    passes: list[BackwardPass] = [bounder.lower_bound(found, boxes, rows),
                                  bounder.lower_bound(found, boxes, rows, random_slopes(found, 4))]
    for r in range(len(lower)):
        for x in box_points(rng, lower[r], upper[r], POINTS):
            at = exact(graph, exact_weights(graph, rng), x)
            for k, bound in enumerate(found):
                for z, low, high in zip(at.z[k], bound.z_low[r].tolist(), bound.z_high[r].tolist(), strict=True):
                    assert not low > z and not high < z, (k, float(z), low, high)
            for q in range(4):
                value = Fraction(constant[r, q].item()) + sum(
                    Fraction(c) * y for c, y in zip(coefficients[r, q].tolist(), at.y, strict=True))
                for found_pass in passes:
                    bound = found_pass.lower[r, q].item()
                    assert not bound > value, (q, float(value), bound, float(Fraction(bound) - value))


@pytest.mark.parametrize("refine", [False, True], ids=["forward", "refined"])
@in_both_types
@attack
@given(case=graphs_and_boxes())
def test_no_exact_value_leaves_the_bounds(dtype, refine, case) -> None:
    assert_sound(case, dtype, refine)
