"""The default tolerance of SPEC.yaml: the same share of what the output does, whatever the units."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.verification.language.amounts import amount
from models.verification.language.properties import Monotonicity, OutputRange, Property, Share
from models.verification.language.specification import Specification
from models.verification.language.tolerance import output_range, points_of, with_relative_tolerance
from models.verification.network.graph import FloatArray, Graph, dense_graph
from tests.models.verification.graphs import random_graph

RISING = (Monotonicity((0,), "increasing"),)


def box(lower: list[float], upper: list[float], *rules: Property, outputs: int = 1, **more: Any) -> Specification:
    walls = np.array([lower, upper], dtype=np.float64)
    return Specification(tuple(f"x{i}" for i in range(len(lower))), *walls, rules or RISING,
                         output_names=tuple(f"y{i}" for i in range(outputs)), **more)


def linear(slopes: list[list[float]], offsets: list[float], size: float = 1e6) -> Graph:
    """y = slopes @ x + offsets within +-size, made of two ReLUs an input."""
    matrix = np.array(slopes)
    eye = np.eye(matrix.shape[1])
    first = np.concatenate([eye, -eye])
    return dense_graph([first, np.concatenate([matrix, -matrix], axis=1)], [np.zeros(len(first)), np.array(offsets)])


def test_over_the_box_it_comes_to_the_same_share_of_the_range_for_every_feature() -> None:
    graph, asked = linear([[3.0, -0.5]], [7.0]), box([0, 10], [1000, 10.5], Monotonicity((0, 1), "increasing"))
    found = with_relative_tolerance(graph, asked)
    assert output_range(graph, asked).tolist() == [3000.25]
    assert found.slope(0, 0) * 1000 == pytest.approx(0.3) and found.slope(1, 0) * 0.5 == pytest.approx(0.3)
    assert found.statement.startswith(
        "The output is increasing in x0, x1, for every input in the box, with the other inputs equal: a pair may "
        "violate the order by at most 0.6 over the box (0.3 for each feature). ")
    with_units = replace(found, units={"y0": "ms", "x0": "1/s"})
    assert "by at most 0.6 ms over the box (0.3 ms for each feature). " in with_units.statement


def test_an_explicit_tolerance_is_a_slope_and_the_sentence_says_what_it_comes_to() -> None:
    asked = box([0, 0], [10_000, 2], Monotonicity((0, 1), "increasing"), tolerance=1e-4, units={"y0": "ms"})
    assert "by at most 1.01 ms over the box (0.0001 ms per unit of a feature)." in asked.statement  # 1 + 0.0002, up
    assert (asked.slope(0, 0), asked.slope(1, 0)) == (1e-4, 1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), unit=st.sampled_from([1e-9, 1e-3, 1e4, 1e12]),
       scale=st.sampled_from([1e-12, 1e-3, 1e5, 1e9]))
def test_other_units_change_the_slopes_and_nothing_else(seed: int, unit: float, scale: float) -> None:
    """x in other units and y in others: allowed slopes change by scale / unit, but for the third digit."""
    rng = np.random.default_rng(seed)
    weights, biases = [rng.normal(size=s) for s in ((8, 2), (1, 8))], [rng.normal(size=s) for s in (8, 1)]
    plain = box([0, -1], [1, 3], Monotonicity((0, 1), "increasing"))
    other = replace(plain, lower=plain.lower * unit, upper=plain.upper * unit)
    here = with_relative_tolerance(dense_graph(weights, biases), plain)
    rescaled = dense_graph([weights[0] / unit, weights[1] * scale], [biases[0], biases[1] * scale])
    there = with_relative_tolerance(rescaled, other)
    for feature in range(2):
        assert there.slope(feature, 0) == pytest.approx(here.slope(feature, 0) * scale / unit, rel=0.011)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_fall_at_the_allowed_slope_is_never_more_than_the_sentence_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 3, [6, 5], outputs=2)
    lower = rng.normal(size=3) * 10.0 ** rng.integers(-6, 6, 3)
    asked = box(lower.tolist(), (lower + 10.0 ** rng.uniform(-6, 6, 3)).tolist(),
                Monotonicity((0, 2), "increasing", 0), Monotonicity((1,), "decreasing", 1), outputs=2)
    found = with_relative_tolerance(graph, asked)
    wide = [Fraction(high) - Fraction(low) for low, high in zip(found.lower, found.upper, strict=True)]
    totals = [sum(Fraction(found.slope(f, 0)) * wide[f] for f in (0, 2)), Fraction(found.slope(1, 1)) * wide[1]]
    for name, total, reach in zip(("y0", "y1"), totals, output_range(graph, found).tolist(), strict=True):
        assert f"of {name} by at most {amount(total)} over the box" in found.statement
        assert 0 < total <= 2 * Fraction(reach) * Fraction(100001, 10**9)


def test_a_constant_output_has_what_float32_tells_apart() -> None:
    graph, asked = linear([[0.0]], [-1000.0]), box([0], [4])
    assert output_range(graph, asked) == 1000 * 2.0**-23
    assert with_relative_tolerance(graph, asked).slope(0, 0) == pytest.approx(1e-4 * 1000 * 2.0**-23 / 4, rel=0.01)
    assert 0 < with_relative_tolerance(linear([[0.0]], [0.0]), asked).slope(0, 0) < 1e-40


def test_each_output_has_its_own_range_and_a_share_of_pairs_counts_as_an_order() -> None:
    rules = (Monotonicity((0,), "increasing", 0), Share(Monotonicity((0,), "decreasing", 1), 0.9))
    found = with_relative_tolerance(linear([[1.0], [-500.0]], [0, 0]), box([0], [2], *rules, outputs=2))
    assert (found.slope(0, 0), found.slope(0, 1)) == pytest.approx((1e-4, 0.05))
    assert found.statement.endswith(" A pair may violate the order of y0 by at most 0.0002 over the box; a pair may "
                                    "violate the order of y1 by at most 0.1 over the box.")


def test_a_fixed_input_and_an_output_beyond_float64_are_no_obstacle() -> None:
    graph = linear([[1.0, 1.0]], [0.0])
    found = with_relative_tolerance(graph, box([0, 3], [2, 3], Monotonicity((0, 1), "increasing")))
    assert found.slope(0, 0) == pytest.approx(1e-4) and found.slope(1, 0) == 0.0
    huge = dense_graph([np.array([[1e200]]), np.array([[1e200]])], [np.zeros(1), np.zeros(1)])
    assert np.isfinite(with_relative_tolerance(huge, box([-1], [1])).slope(0, 0))


def inside(asked: Specification, x: FloatArray) -> bool:
    return bool(((asked.lower <= x) & (x <= asked.upper)).all())


def test_the_points_are_admitted_the_same_every_time_and_hold_all_corners_of_a_small_box() -> None:
    asked = box([-1, 2, 0, 0, 5], [3, 2.5, 1, 1, 9], choices={4: (5.0, 6.0, 9.0)}, one_hot=((2, 3),))
    x = points_of(asked)
    assert inside(asked, x) and (x[:, 2] + x[:, 3] == 1).all() and set(x[:, 4]) == {5.0, 6.0, 9.0}
    assert (x == points_of(asked)).all()
    assert {tuple(row) for row in x[:, [0, 1]]} >= {(-1.0, 2.0), (-1.0, 2.5), (3.0, 2.0), (3.0, 2.5), (1.0, 2.25)}
    # the stream of random bits is part of what a proof says: another one would refuse the proofs of today
    assert points_of(box([0], [1], OutputRange(0, 0.0)))[3:6, 0].tolist() == [
        0.6369616873214543, 0.2697867137638703, 0.04097352393619469]


def test_of_many_features_both_ends_are_among_the_points() -> None:
    """A random corner of 40 monotone features is never the lowest one."""
    asked = box([0] * 40, [1] * 40, Monotonicity(tuple(range(40)), "increasing"))
    assert output_range(linear([[1.0] * 40], [0.0]), asked) == pytest.approx(40.0)
    falling = box([0] * 40, [1] * 40, Monotonicity(tuple(range(20)), "increasing"),
                  Monotonicity(tuple(range(20, 40)), "decreasing"))
    assert output_range(linear([[1.0] * 20 + [-1.0] * 20], [0.0]), falling) == pytest.approx(40.0)
