"""Lines and intervals hold at the ends and at dense samples in between, whether small numbers are flushed or not.

Oracle: rational arithmetic; of curves decimals with 100 digits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.verification.bounds.relaxation import CURVE_ULPS, derivative_interval, largest, lines
from models.verification.network.graph import Affine, Layer
from models.verification.network.graph_tensors import activate
from tests.models.verification.graphs import DTYPES, exact_activation, exact_slope

LAYERS = {
    name: Layer(Affine({0: np.ones((1, 1))}, np.zeros(1)), kind, leak)
    for name, kind, leak in (("relu", "relu", 0.0), ("leaky", "leaky_relu", float(np.float32(0.01))),
                             ("leaky_half", "leaky_relu", 0.5), ("leaky_steep", "leaky_relu", 0.999),
                             ("tanh", "tanh", 0.0), ("sigmoid", "sigmoid", 0.0))}
EDGES = (0.0, 1e-30, 1e-12, 1e-7, 1.1e-6, 1e-3, 0.25, 0.5493, 1.0, 2.5, 4.0, 8.5, 9.2, 18.7, 40.0, 90.0, 1e4, 1e18)
PIECEWISE = ("relu", "leaky_relu")
CURVES = [LAYERS["tanh"], LAYERS["sigmoid"]]
of_every_kind = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())
of_every_curve = pytest.mark.parametrize("layer", CURVES, ids=["tanh", "sigmoid"])
in_both_types = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
flushed_or_not = pytest.mark.parametrize("flushed", [False, True], ids=["kept", "flushed"])


@contextmanager
def flushing(flushed: bool) -> Iterator[None]:
    """Whether numbers below the smallest normal one are taken for zero, by every operation within."""
    if flushed and not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush small numbers")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def curve(layer: Layer, z: Fraction) -> Fraction:
    """tanh or sigmoid at z, off by less than 1e-90 relative or 1e-4000."""
    if layer.kind == "tanh":
        return 2 * sigmoid(2 * z) - 1 if abs(z) > Fraction(1, 10**40) else z - z**3 / 3
    return sigmoid(z)


@cache  # the same points lie in many intervals of a grid, in both types
def sigmoid(z: Fraction) -> Fraction:
    if abs(z) > 10**4:
        return Fraction(int(z > 0))
    with localcontext() as context:
        context.prec = 150
        return Fraction(1 / (1 + (Decimal(-z.numerator) / Decimal(z.denominator)).exp()))


def value_at(layer: Layer, z: Fraction) -> Fraction:
    return exact_activation(layer, z) if layer.kind in PIECEWISE else curve(layer, z)


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


def assert_lines_hold(layer: Layer, low: torch.Tensor, high: torch.Tensor, flushed: bool = False) -> None:
    with flushing(flushed):
        found = lines(layer, low, high)
    lower_offset = torch.zeros_like(low) if found.lower_offset is None else found.lower_offset
    columns = (low, high, found.lower_slope, lower_offset, found.upper_slope, found.upper_offset, found.least,
               found.freedom)
    of_type = torch.finfo(low.dtype)
    unit = Fraction(of_type.eps) / 2
    for a, b, *numbers in zip(*(column[0].tolist() for column in columns), strict=True):
        below, under, above, over, least, freedom = (Fraction(value) for value in numbers)
        assert below >= 0 and above >= 0  # or the forward pass would turn them round
        assert all(slope == 0 or slope >= of_type.tiny for slope in (below, above))
        assert least <= below <= (least + freedom) * (1 + unit)
        for z in samples(a, b, low.dtype):
            value = value_at(layer, z)
            # a leak is one rounding off its exact value, leak + freedom two; the passes charge far more per |slope z|
            room = unit * Fraction(layer.leak) * abs(z)
            assert below * z + under <= value + room, (a, b, float(z))
            assert above * z + over >= value - room, (a, b, float(z))
            if layer.kind in PIECEWISE:
                assert (least + freedom) * z <= value + 2 * unit * abs(z), (a, b, float(z))
                assert least * z <= value + room, (a, b, float(z))


@of_every_kind
@in_both_types
def test_the_lines_hold_on_every_interval_of_a_grid(layer, dtype) -> None:
    low, high = intervals(dtype)
    assert_lines_hold(layer, low, high)


@of_every_kind
@in_both_types
@settings(max_examples=30, deadline=None)
@given(ends=st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(-1e3, 1e3, width=32)), min_size=1, max_size=8),
       scale=st.sampled_from([1e-8, 1e-3, 0.01, 1.0]))
def test_the_lines_hold_on_any_interval(layer, dtype, ends, scale) -> None:
    walls = torch.tensor(ends, dtype=dtype) * scale
    assert_lines_hold(layer, walls.amin(1)[None], walls.amax(1)[None])


@of_every_curve
@in_both_types
@settings(max_examples=20, deadline=None)
@given(middle=st.floats(-20, 20), width=st.sampled_from([1e-7, 1e-6, 1.01e-6, 1e-5, 1e-3, 0.1]))
def test_the_lines_of_a_curve_hold_on_narrow_intervals(layer, dtype, middle, width) -> None:
    low = torch.tensor([[middle]], dtype=dtype)
    assert_lines_hold(layer, low, low + width)


@st.composite
def intervals_of_any_size(draw, dtype: torch.dtype, flushed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Ends of any magnitude that the type has, neighbours and intervals around zero among them: (1, 8) each."""
    of_type = torch.finfo(dtype)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    least, most = np.log10([of_type.tiny, of_type.max / 4])
    span = draw(st.sampled_from([(-3.0, 2.0), (0.0, 7.0), (least - 5, most), (least - 5, least + 8)]))
    ends = rng.choice([-1.0, 1.0], size=(2, 8)) * 10.0 ** rng.uniform(*span, size=(2, 8))
    near = ends[0] * (1 + rng.choice([0.0, 1.0, 3.0, 1e3], size=8) * of_type.eps)
    ends[1] = np.where(rng.random(8) < 0.4, near, ends[1])
    walls = torch.as_tensor(ends).to(dtype)
    if flushed:  # bounds have more slack than an end that is taken for zero
        walls = torch.where(walls.abs() < of_type.tiny, 0.0, walls)
    return walls.amin(0)[None], walls.amax(0)[None]


@of_every_kind
@in_both_types
@flushed_or_not
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_lines_hold_on_intervals_of_any_size(layer, dtype, flushed, data) -> None:
    assert_lines_hold(layer, *data.draw(intervals_of_any_size(dtype, flushed)), flushed)


@of_every_curve
@in_both_types
def test_the_lines_of_a_curve_stay_tight_however_large_its_argument(layer, dtype) -> None:
    slack = 100 * torch.finfo(dtype).eps
    ends = torch.tensor([[100.0, 1e3, 1e6, 1e9, 1e30]], dtype=dtype)
    least, most = (0.0 if layer.kind == "sigmoid" else -1.0), 1.0
    for low, high, level in ((ends, 1.5 * ends, most), (-1.5 * ends, -ends, least)):
        found = lines(layer, low, high)
        assert found.lower_offset is not None
        for z in (low, high):
            for value in (found.lower_slope * z + found.lower_offset, found.upper_slope * z + found.upper_offset):
                assert ((value - level).abs() <= slack).all()
    for low, high in ((-ends, ends), (-0.01 * ends, 3 * ends), (-3 * ends, 0.01 * ends)):
        found = lines(layer, low, high)
        assert found.lower_offset is not None
        assert ((found.lower_slope * low + found.lower_offset - activate(layer, low)).abs() <= slack).all()
        assert ((found.upper_slope * high + found.upper_offset - activate(layer, high)).abs() <= slack).all()


@of_every_curve
@in_both_types
def test_torch_s_curves_are_as_exact_as_the_bounds_take_them_to_be(layer, dtype) -> None:
    rng, of_type = np.random.default_rng(0), torch.finfo(dtype)
    z = torch.as_tensor(rng.choice([-1.0, 1.0], 3000) * 10.0 ** rng.uniform(-6, 3, 3000)).to(dtype)
    for at, value in zip(z.tolist(), activate(layer, z).tolist(), strict=True):
        true = curve(layer, Fraction(at))
        off = abs(Fraction(value) - true) - Fraction(of_type.tiny)
        assert off <= Fraction(of_type.eps) / 2 * CURVE_ULPS / 4 * abs(true), at


@of_every_kind
@in_both_types
def test_the_derivative_and_the_largest_value_hold_on_every_interval_of_a_grid(layer, dtype) -> None:
    assert_derivatives_hold(layer, *intervals(dtype))


@of_every_kind
@in_both_types
@flushed_or_not
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_derivative_and_the_largest_value_hold_on_intervals_of_any_size(layer, dtype, flushed, data) -> None:
    assert_derivatives_hold(layer, *data.draw(intervals_of_any_size(dtype, flushed)), flushed)


def assert_derivatives_hold(layer: Layer, low: torch.Tensor, high: torch.Tensor, flushed: bool = False) -> None:
    with flushing(flushed):
        (d_low, d_high), most_of = derivative_interval(layer, low, high), largest(layer, low, high)
    assert (d_low >= 0).all() and (d_high >= d_low).all()
    # leak and 1 as sums, charged with the products
    room = Fraction(torch.finfo(low.dtype).eps) if layer.kind in PIECEWISE else Fraction(0)
    columns = (low, high, d_low, d_high, most_of)
    for a, b, least, most, size in zip(*(column[0].tolist() for column in columns), strict=True):
        for z in samples(a, b, low.dtype):
            value = value_at(layer, z)
            assert abs(value) <= Fraction(size) * (1 + room) + Fraction(torch.finfo(low.dtype).tiny), (a, b, float(z))
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
