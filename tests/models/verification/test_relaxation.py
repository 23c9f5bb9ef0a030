"""Lines and intervals hold at the ends and at dense samples in between. Oracle: rational arithmetic (graphs.py).

An absolute slack of 1e-30 (1e-290 in float64) stands for what bounds charge for underflow.
"""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.verification.graph import Affine, Layer
from models.verification.relaxation import derivative_interval, largest, lines
from tests.models.verification.graphs import DTYPES, exact_activation, exact_slope

LAYERS = {
    name: Layer(Affine({0: np.ones((1, 1))}, np.zeros(1)), kind, leak)
    for name, kind, leak in (("relu", "relu", 0.0), ("leaky", "leaky_relu", float(np.float32(0.01))),
                             ("leaky_half", "leaky_relu", 0.5), ("leaky_steep", "leaky_relu", 0.999),
                             ("tanh", "tanh", 0.0), ("sigmoid", "sigmoid", 0.0))}
EDGES = (0.0, 1e-30, 1e-12, 1e-7, 1.1e-6, 1e-3, 0.25, 0.5493, 1.0, 2.5, 4.0, 8.5, 9.2, 18.7, 40.0, 90.0, 1e4, 1e18)
UNDERFLOW = {torch.float32: Fraction(1, 10**30), torch.float64: Fraction(1, 10**290)}
PIECEWISE = ("relu", "leaky_relu")
of_every_kind = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())
in_both_types = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())


def intervals(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of edges, positive and negative, and each edge with its neighbours in the type: (1, w) each."""
    values = torch.tensor(sorted({sign * edge for edge in EDGES for sign in (-1.0, 1.0)}), dtype=dtype)
    infinity = torch.full_like(values, torch.inf)
    low, high = torch.meshgrid(values, values, indexing="ij")
    chosen = low <= high
    low = torch.cat([low[chosen], values, torch.nextafter(values, -infinity)])
    high = torch.cat([high[chosen], torch.nextafter(values, infinity), torch.nextafter(values, infinity)])
    return low[None], high[None]


def samples(low: float, high: float, dtype: torch.dtype, count: int = 9) -> list[Fraction]:
    """The ends, and points in between: evenly spaced, near the ends and around zero, all inside exactly."""
    share = np.concatenate([np.linspace(0, 1, count), [1e-9, 1 - 1e-9]])
    near = [low, high, *(low + share * (high - low)), *(v for v in (0.0, 1e-20, -1e-20, 1e-4, -1e-4) if low < v < high)]
    return [Fraction(v) for v in np.clip(near, low, high).tolist()]


def assert_lines_hold(layer: Layer, low: torch.Tensor, high: torch.Tensor) -> None:
    found, dtype = lines(layer, low, high), low.dtype
    unit = Fraction(torch.finfo(dtype).eps) / 2
    lower_offset = torch.zeros_like(low) if found.lower_offset is None else found.lower_offset
    columns = (low, high, found.lower_slope, lower_offset, found.upper_slope, found.upper_offset, found.least,
               found.freedom)
    for a, b, *numbers in zip(*(column[0].tolist() for column in columns), strict=True):
        below, under, above, over, least, freedom = (Fraction(value) for value in numbers)
        assert below >= 0 and above >= 0  # or the forward pass would turn them round
        assert least <= below <= (least + freedom) * (1 + unit)
        for z in samples(a, b, dtype):
            value = exact_activation(layer, z)
            # a slope is one rounding off its exact value; the passes charge far more per |z|
            room = 2 * unit * abs(z) + UNDERFLOW[dtype]
            assert below * z + under <= value + room, (a, b, float(z))
            assert above * z + over >= value - room, (a, b, float(z))
            if layer.kind in PIECEWISE:
                assert (least + freedom) * z <= value + room and least * z <= value + room, (a, b, float(z))


@of_every_kind
@in_both_types
def test_the_lines_hold_on_every_interval_of_a_grid(layer, dtype) -> None:
    low, high = intervals(dtype)
    if layer.kind not in PIECEWISE:
        low, high = low[:, ::3], high[:, ::3]  # exact exponentials take their time
    assert_lines_hold(layer, low, high)


@of_every_kind
@in_both_types
@settings(max_examples=30, deadline=None)
@given(ends=st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(-1e3, 1e3, width=32)), min_size=1, max_size=8),
       scale=st.sampled_from([1e-8, 1e-3, 0.01, 1.0]))
def test_the_lines_hold_on_any_interval(layer, dtype, ends, scale) -> None:
    walls = torch.tensor(ends, dtype=dtype) * scale
    assert_lines_hold(layer, walls.amin(1)[None], walls.amax(1)[None])


@pytest.mark.parametrize("layer", [LAYERS["tanh"], LAYERS["sigmoid"]], ids=["tanh", "sigmoid"])
@in_both_types
@settings(max_examples=20, deadline=None)
@given(middle=st.floats(-20, 20), width=st.sampled_from([1e-7, 1e-6, 1.01e-6, 1e-5, 1e-3, 0.1]))
def test_the_lines_of_a_curve_hold_on_narrow_intervals(layer, dtype, middle, width) -> None:
    low = torch.tensor([[middle]], dtype=dtype)
    assert_lines_hold(layer, low, low + width)


@of_every_kind
@in_both_types
def test_the_derivative_and_the_largest_value_hold_on_every_interval_of_a_grid(layer, dtype) -> None:
    low, high = intervals(dtype)
    if layer.kind not in PIECEWISE:
        low, high = low[:, ::3], high[:, ::3]
    d_low, d_high = derivative_interval(layer, low, high)
    assert (d_low >= 0).all() and (d_high >= d_low).all()
    room = Fraction(torch.finfo(dtype).eps)  # leak and 1 as sums; charged with the products
    columns = (low, high, d_low, d_high, largest(layer, low, high))
    for a, b, least, most, size in zip(*(column[0].tolist() for column in columns), strict=True):
        for z in samples(a, b, dtype):
            value = exact_activation(layer, z)
            assert abs(value) <= Fraction(size) * (1 + room) + UNDERFLOW[dtype], (a, b, float(z))
            if layer.kind in PIECEWISE and z == 0:
                continue  # the kink
            assert Fraction(least) - room <= exact_slope(layer, z, value) <= Fraction(most) + room, (a, b, float(z))


@of_every_kind
@in_both_types
def test_lines_are_tight_where_the_activation_is_linear_and_at_the_ends(layer, dtype) -> None:
    low, high = torch.tensor([[-2.0, 0.5, -2.0]], dtype=dtype), torch.tensor([[-0.5, 2.0, 2.0]], dtype=dtype)
    found = lines(layer, low, high)
    under = torch.zeros_like(low) if found.lower_offset is None else found.lower_offset
    gap = [(found.upper_slope - found.lower_slope) * z + found.upper_offset - under for z in (low, high)]
    slack = 1e3 * torch.finfo(dtype).eps
    if layer.kind in PIECEWISE:
        assert gap[0][0, :2].abs().max() < slack and gap[1][0, :2].abs().max() < slack
        # the chord touches both ends
        for z in (low, high):
            exact = torch.where(z >= 0, z, layer.leak * z)
            assert ((found.upper_slope * z + found.upper_offset - exact)[0, 2]).abs() < slack
    else:
        assert max(g.max() for g in gap) < 2 and min(g.min() for g in gap) > 0
        assert gap[0][0, 0] < 0.5 and gap[1][0, 1] < 0.5


@of_every_kind
def test_nothing_is_said_of_an_interval_without_ends(layer) -> None:
    # overflow upstream: lines may be NaN or infinite, never finite and wrong
    infinity = torch.tensor([[torch.inf]])
    found = lines(layer, -infinity, infinity)
    assert not (found.upper_slope * 1e30 + found.upper_offset < 1).any()
    if found.lower_offset is not None:
        assert not (found.lower_slope * 1e30 + found.lower_offset > 1).any()
    d_low, d_high = derivative_interval(layer, -infinity, infinity)
    assert d_low.item() <= (layer.leak if layer.kind in PIECEWISE else 0) + 1e-6
    assert d_high.item() >= (0.25 if layer.kind == "sigmoid" else 1.0)
    assert largest(layer, -infinity, infinity).item() >= 1
