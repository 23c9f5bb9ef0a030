"""Obligations mean what the specification says. Oracles: the definition at sampled points, and rational arithmetic."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.verification.attack.output_falsification import OutputFalsifier
from models.verification.language.domain import narrowed
from models.verification.language.properties import (
    Condition,
    InputValue,
    Monotonicity,
    OutputOrder,
    OutputRange,
    Property,
    Robustness,
    Share,
)
from models.verification.language.specification import Specification
from models.verification.language.specification_file import PropertyFields
from models.verification.language.specification_language import parse_specification, read_specification
from models.verification.language.unsafe_set import UnsafeSet
from models.verification.network.graph import Affine, FloatArray, Graph, Layer, dense_graph
from models.verification.obligations.compile import MOST_COMBINATIONS, Obligations, obligations, roots
from models.verification.obligations.derived_graphs import pair_graph
from models.verification.search.branch_and_bound import Budget, branch_and_bound
from models.verification.search.output_query import OutputQuery
from models.verification.verdict import Status

torch.set_num_threads(1)

DOC = Path(__file__).parents[4] / "docs" / "reference" / "specification.md"
# float64 evaluation of these small networks is off by far less; a point closer to a limit is not judged
SLACK = 1e-10
ALL_KINDS = ("relu", "leaky_relu", "tanh", "sigmoid")


def random_graph(rng: np.random.Generator, inputs: int, widths: Sequence[int] = (6, 5), outputs: int = 2,
                 kinds: Sequence[Any] = ("relu",), skips: bool = True) -> Graph:
    """Each map takes the layer before it and, with skips, each earlier source by chance."""
    sizes = [inputs, *widths]

    def affine(k: int, rows: int) -> Affine:
        sources = [s for s in range(k + 1) if s == k or (skips and rng.random() < 0.6)]
        return Affine({s: rng.normal(size=(rows, sizes[s])) / sizes[s] ** 0.5 for s in sources}, rng.normal(size=rows))

    layers = []
    for k, width in enumerate(widths):
        kind = kinds[int(rng.integers(len(kinds)))]
        layers.append(Layer(affine(k, width), kind, 0.1 if kind == "leaky_relu" else 0.0))
    return Graph(inputs, tuple(layers), affine(len(widths), outputs))


def exact_values(graph: Graph, x: Sequence[float]) -> list[Fraction]:
    """y at x in rational arithmetic; ReLU and leaky ReLU only."""
    values = [[Fraction(v) for v in x]]
    for k, affine in enumerate(graph.affines):
        z = [Fraction(b) for b in affine.offset.tolist()]
        for source, matrix in affine.matrices.items():
            z = [total + sum(Fraction(w) * v for w, v in zip(row, values[source], strict=True))
                 for total, row in zip(z, matrix.tolist(), strict=True)]
        if k < len(graph.layers):
            z = [max(v, Fraction(graph.layers[k].leak) * v) for v in z]
        values.append(z)
    return values[-1]


def claim(*properties: Property, inputs: int = 4, outputs: int = 2, **fields: Any) -> Specification:
    return Specification(tuple(f"x{i}" for i in range(inputs)), np.zeros(inputs), np.full(inputs, 3.0), properties,
                         output_names=tuple(f"y{j}" for j in range(outputs)), **fields)


def admissible(specification: Specification, rng: np.random.Generator, count: int) -> FloatArray:
    """Random inputs of the box, the finite values and the one-hot groups."""
    x = rng.uniform(specification.lower, specification.upper, (count, len(specification.lower)))
    for i, values in specification.choices.items():
        x[:, i] = rng.choice(values, count)
    for group in specification.one_hot:
        x[:, group] = np.eye(len(group))[rng.integers(len(group), size=count)]
    return x


def inside(unsafe: UnsafeSet, x: FloatArray, y: FloatArray) -> bool:
    """Whether an input x (n,) with outputs y (o,) lies in the unsafe set."""
    boxes = np.flatnonzero(((unsafe.lower <= x) & (x <= unsafe.upper)).all(axis=1))
    return bool((unsafe.violation(boxes, np.repeat(y[None], len(boxes), 0)) >= 0).any()) if len(boxes) else False


def excess(graph: Graph, rule: Property, x: FloatArray, y: FloatArray) -> float:
    """By how much an input (n,) with outputs (o,) violates range, order or robust; -inf: it is not about it."""
    match rule:
        case OutputRange(output, low, high):
            return max(-math.inf if low is None else low - y[output], -math.inf if high is None else y[output] - high)
        case OutputOrder(upper, lower, margin):
            return float(y[lower] + margin - y[upper])
        case Robustness(points, radius, change, output):
            reference = graph.value(points)[:, output]
            return max([abs(y[output] - r) - change for p, r in zip(points, reference, strict=True)
                        if (np.abs(x - p) <= radius).all()], default=-math.inf)
    raise TypeError(rule)


@pytest.mark.parametrize("kind", ["range", "order", "robust", "all"])
@pytest.mark.parametrize(
    "finite",
    [{}, {"choices": {0: (0.0, 1.0, 2.5)}}, {"one_hot": ((1, 3),)}, {"choices": {2: (0.5, 2.0)}, "one_hot": ((1, 3),)}],
    ids=["box", "values", "group", "both"],
)
def test_a_point_is_unsafe_where_a_property_is_violated_there(finite: dict[str, Any], kind: str) -> None:
    rng = np.random.default_rng(11)
    graph = random_graph(rng, 4, kinds=ALL_KINDS)
    everywhere = claim(OutputRange(0, 0.0), **finite)
    x = admissible(everywhere, rng, 400)
    y = graph.value(x)
    low, high = np.quantile(y[:, 0], [0.1, 0.8])
    robust = Robustness(x[:3].copy(), np.array([1.5, 0.5, 2.0, 1.0]), float(np.std(y[:, 1])) / 4, 1)
    order = OutputOrder(1, 0, float(np.quantile(y[:, 1] - y[:, 0], 0.2)))
    rules: tuple[Property, ...] = {
        "range": (OutputRange(0, low, high), OutputRange(1, maximum=float(np.quantile(y[:, 1], 0.9)))),
        "order": (order,), "robust": (robust,), "all": (order, OutputRange(0, low), robust)}[kind]
    found = obligations(graph, replace(everywhere, properties=rules))
    assert found.unsafe is not None and not found.slopes and not found.differences
    near = np.clip(np.repeat(robust.points, 100, 0) + rng.uniform(-1, 1, (300, 4)) * robust.radius, 0, 3)
    for i in everywhere.choices:  # the finite inputs of the point stay
        near[:, i] = np.repeat(robust.points, 100, 0)[:, i]
    for group in everywhere.one_hot:
        near[:, group] = np.repeat(robust.points, 100, 0)[:, group]
    seen = {True: 0, False: 0}
    for at in np.vstack([x, near]):
        out = graph.value(at[None])[0]
        worst = max(excess(graph, rule, at, out) for rule in rules)
        if abs(worst) > SLACK:
            assert inside(found.unsafe, at, out) == (worst > 0)
            seen[worst > 0] += 1
    assert min(seen.values()) > 10


@pytest.mark.parametrize("limit", [0.0, 0.1, -0.1, 250.0, 1e-300, -5e-324, 1e300], ids=str)
def test_a_limit_may_be_reached_but_not_exceeded(limit: float) -> None:
    graph = dense_graph([np.eye(2)], [np.zeros(2)])
    found = obligations(graph, claim(OutputRange(0, limit, limit), inputs=2)).unsafe
    assert found is not None

    def unsafe(value: float) -> bool:
        return bool(found.violation(np.array([0]), np.array([[value, 7.0]]))[0] >= 0)

    assert not unsafe(limit)
    assert limit or (found.constants == -(2.0**-1022)).all()  # a subnormal number may be flushed to zero
    step = max(math.ulp(limit), 2.0**-1022)
    assert unsafe(limit + 2 * step) and unsafe(limit - 2 * step)


@pytest.mark.parametrize("margin", [0.0, 0.3, -1e-6], ids=str)
def test_equal_outputs_satisfy_an_order_with_their_margin(margin: float) -> None:
    found = obligations(dense_graph([np.eye(2)], [np.zeros(2)]), claim(OutputOrder(0, 1, margin), inputs=2)).unsafe
    assert found is not None
    y = np.array([[margin, 0.0], [margin - 1e-12, 0.0], [margin + 1e-12, 0.0]])
    assert (found.violation(np.zeros(3, dtype=int), y) >= 0).tolist() == [False, True, False]


def test_no_other_kind_leaves_no_unsafe_set_and_no_order_no_slopes() -> None:
    graph = random_graph(np.random.default_rng(0), 4)
    found = obligations(graph, claim(Monotonicity((0,), "increasing")))
    assert found.unsafe is None and found.slopes and found.shares == ()
    share = Share(OutputRange(0, 0.0), 0.5)
    found = obligations(graph, claim(share))
    assert found.unsafe is None and found.slopes == () == found.differences and found.relation is None
    assert [one.share for one in found.shares] == [share]


def test_slopes_are_one_a_feature_output_and_direction() -> None:
    rules = (Monotonicity((2, 0), "increasing", 1), Monotonicity((0,), "increasing", 1),
             Monotonicity((0,), "decreasing", 0), Monotonicity((3,), "decreasing", 0))
    found = obligations(random_graph(np.random.default_rng(0), 4), claim(*rules, tolerance=0.25, choices={3: (1.0,)}))
    (part,) = found.slopes
    assert part.slopes.features == (2, 0, 0) and part.slopes.rows.tolist() == [[0, 1], [0, 1], [-1, 0]]
    assert part.slopes.allowed.tolist() == [0.25, 0.25, 0.25]
    assert found.differences == ()  # a single value leaves nothing to compare
    assert part.lower[:, 3].tolist() == [1.0] == part.upper[:, 3].tolist()


@pytest.mark.parametrize(
    ("choices", "one_hot"),
    [({}, ()), ({1: (0.5, 2.0, 3.0)}, ()), ({}, ((0, 2, 3),)), ({1: (0.0, 1.5), 4: (2.0, 2.5, 3.0)}, ((0, 5), (2, 3)))],
    ids=["box", "values", "group", "both"],
)
def test_the_roots_are_the_box_with_every_combination_of_the_finite_inputs(
    choices: dict[int, tuple[float, ...]], one_hot: tuple[tuple[int, ...], ...],
) -> None:
    specification = claim(OutputRange(0, 0.0), inputs=6, choices=choices, one_hot=one_hot)
    lower, upper = roots(narrowed(specification), choices)
    fixed = sorted([*choices, *(i for group in one_hot for i in group)])
    expected = {tuple(x[i] for i in fixed) for x in product(*[choices.get(i, (0.0, 1.0)) for i in range(6)])
                if all(sum(x[i] for i in group) == 1 for group in one_hot)}
    assert len(lower) == len(expected) and {tuple(row) for row in lower[:, fixed].tolist()} == expected
    assert np.array_equal(lower[:, fixed], upper[:, fixed])
    free = [i for i in range(6) if i not in fixed]
    assert (lower[:, free] == 0).all() and (upper[:, free] == 3).all()


def test_too_many_combinations_are_refused() -> None:
    values = tuple(np.linspace(0, 3, 10).tolist())
    graph = random_graph(np.random.default_rng(0), 6)
    specification = claim(OutputRange(0, 0.0), inputs=6, choices=dict.fromkeys(range(5), values))
    assert len(roots(narrowed(specification), specification.choices)[0]) == MOST_COMBINATIONS
    specification = replace(specification, choices=specification.choices | {5: (0.0, 1.0)})
    with pytest.raises(InputError, match=r"have at most 100,000 combinations, got 200,000 \(x0, x1, x2, x3, x4, x5\)"):
        obligations(graph, specification)


@pytest.mark.parametrize("seed", range(16))
def test_a_pair_graph_is_the_difference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = [[], [7], [6, 5], [4, 5, 3]][seed % 4]
    graph = random_graph(rng, 3, widths, kinds=ALL_KINDS, skips=seed % 8 > 3)
    low, high = sorted(rng.normal(size=2).tolist())
    output, feature = seed % 2, seed % 3
    found = pair_graph(graph, output, feature, low, high)
    assert found.widths == tuple(2 * width for width in graph.widths) and found.inputs == 3 and found.outputs == 1
    x = rng.normal(size=(200, 3))
    at_low, at_high = x.copy(), x.copy()
    at_low[:, feature], at_high[:, feature] = low, high
    expected = (graph.value(at_high) - graph.value(at_low))[:, output]
    np.testing.assert_allclose(found.value(x)[:, 0], expected, rtol=0, atol=1e-12)
    assert np.array_equal(found.value(x), found.value(at_low))  # the feature itself does not matter


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 1e6]))
def test_the_exact_difference_is_within_the_stated_rounding_of_the_pair_graph(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 2, [3, 3], kinds=("relu", "leaky_relu"))
    low, high = sorted((rng.normal(size=2) * scale).tolist())
    found = pair_graph(graph, 1, 0, low, high)
    x = (rng.normal(size=2) * scale).tolist()
    exact = exact_values(graph, [high, x[1]])[1] - exact_values(graph, [low, x[1]])[1]
    point = np.array([x])
    assert abs(exact - Fraction(float(found.value(point)[0, 0]))) <= Fraction(float(found.rounding(point)[0, 0]))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_errors_of_the_network_are_carried_along(seed: int, exact_offset: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 2, [3, 3])

    def uncertain(affine: Affine) -> Affine:
        error = {s: rng.random(m.shape) * 1e-6 for s, m in affine.matrices.items()}
        return Affine(affine.matrices, affine.offset, error, None if exact_offset else rng.random(affine.rows) * 1e-6)

    graph = Graph(2, tuple(Layer(uncertain(layer.affine)) for layer in graph.layers), uncertain(graph.output))
    low, high = sorted(rng.normal(size=2).tolist())
    found = pair_graph(graph, 1, 0, low, high)
    sign = rng.choice([-1.0, 1.0])
    for old, new in zip(graph.affines[:-1], found.affines[:-1], strict=True):
        rows = old.rows
        for source, error in old.error.items():
            carried = new.error[source]
            kept = error.copy()
            if source == 0:
                kept[:, 0] = 0
                assert np.array_equal(carried, np.vstack([kept, kept]))
            else:
                size = error.shape[1]
                assert np.array_equal(carried[:rows, :size], kept) and np.array_equal(carried[rows:, size:], kept)
                assert not carried[:rows, size:].any() and not carried[rows:, :size].any()
        for copy, value in enumerate((low, high)):
            for j in range(rows):
                true = Fraction(float(old.offset[j]))
                if old.offset_error is not None:
                    true += Fraction(sign * float(old.offset_error[j]))
                if 0 in old.matrices:
                    worst = math.copysign(float(old.error[0][j, 0]), sign * value)
                    true += (Fraction(float(old.matrices[0][j, 0])) + Fraction(worst)) * Fraction(value)
                stored = Fraction(float(new.offset[copy * rows + j]))
                off = 0.0 if new.offset_error is None else float(new.offset_error[copy * rows + j])
                assert abs(true - stored) <= Fraction(off) <= Fraction(1, 10**5)
    old, new = graph.output, found.output
    for source, error in old.error.items():
        if source > 0:
            assert np.array_equal(new.error[source], np.hstack([error[1:2], error[1:2]]))
    assert 0 not in new.error
    if 0 in old.matrices:
        true = (Fraction(float(old.matrices[0][1, 0])) + Fraction(float(old.error[0][1, 0]))) * (
            Fraction(high) - Fraction(low))
        assert new.offset_error is not None
        assert abs(true - Fraction(float(new.offset[0]))) <= Fraction(float(new.offset_error[0])) <= Fraction(1, 10**5)


def test_what_float64_has_is_stored_without_error() -> None:
    graph = dense_graph([np.array([[0.5, 3.0], [1.0, -2.0]]), np.array([[1.0, 1.0]])], [np.ones(2), np.ones(1)])
    found = pair_graph(graph, 0, 0, 1.0, 4.0)
    assert found.layers[0].affine.offset.tolist() == [1.5, 2.0, 3.0, 5.0]
    assert all(affine.offset_error is None and not any(e.any() for e in affine.error.values())
               for affine in found.affines)
    assert found.layers[0].affine.matrices[0].tolist() == [[0, 3], [0, -2], [0, 3], [0, -2]]


@pytest.mark.parametrize("direction", ["increasing", "decreasing"])
def test_a_finite_feature_is_compared_value_by_value(direction: Any) -> None:
    rng = np.random.default_rng(7)
    rule = Monotonicity((1, 0), direction, 1)
    specification = claim(rule, rule, choices={1: (0.0, 1.0, 2.5), 2: (0.0, 2.0)}, tolerance=0.1)
    seen = set()
    for graph in [random_graph(rng, 4) for _ in range(8)]:
        found = obligations(graph, specification)
        assert found.slopes[0].slopes.features == (0,) and len(found.slopes[0].lower) == 6
        assert [(pair.feature, pair.output, pair.low, pair.high) for pair in found.differences] == [
            (1, 1, 0.0, 1.0), (1, 1, 1.0, 2.5)]
        for pair in found.differences:
            assert np.array_equal(pair.unsafe.lower[:, 1], pair.unsafe.upper[:, 1])
            assert sorted(pair.unsafe.lower[:, 2].tolist()) == [0.0, 2.0]
            for x in admissible(specification, rng, 30):
                ends = np.stack([x, x])
                ends[:, 1] = pair.low, pair.high
                y = graph.value(ends)[:, 1]
                missing = float(-rule.sign * (y[1] - y[0]) - 0.1 * (pair.high - pair.low))
                x[1] = pair.unsafe.lower[0, 1]
                if abs(missing) > SLACK:
                    assert inside(pair.unsafe, x, pair.graph.value(x[None])[0]) == (missing > 0)
                    seen.add(missing > 0)
    assert seen == {True, False}


@pytest.mark.parametrize(("tolerance", "step"), [(0.0, 1.0), (0.5, 2.0), (1e-4, 1.0), (1e-4, 0.3), (0.1, 1 / 3)])
def test_the_difference_allowed_is_rounded_toward_the_larger_unsafe_set(tolerance: float, step: float) -> None:
    graph = random_graph(np.random.default_rng(0), 4)
    specification = claim(Monotonicity((0,), "increasing"), choices={0: (1.0, 1.0 + step)}, tolerance=tolerance)
    (pair,) = obligations(graph, specification).differences
    exact = -Fraction(tolerance) * (Fraction(1.0 + step) - 1)
    constant = float(pair.unsafe.constants[0, 0, 0])
    if Fraction(float(exact)) == exact:  # float64 has it: equality is allowed
        assert constant < exact and abs(exact - Fraction(constant)) <= max(math.ulp(constant), 2.0**-1022)
    else:
        assert exact < constant <= exact + Fraction(math.ulp(constant))


def decided(found: Obligations) -> list[Status]:
    """The engine's verdict on each difference."""
    verdicts = []
    for pair in found.differences:
        unsafe, falsifier = pair.unsafe, OutputFalsifier(pair.graph, pair.unsafe)
        if falsifier.search() is not None:
            verdicts.append(Status.REFUTED)
            continue
        verdicts.append(branch_and_bound(
            OutputQuery(pair.graph, unsafe), torch.as_tensor(unsafe.lower), torch.as_tensor(unsafe.upper), Budget(20),
            lambda suspects, root, falsifier=falsifier: falsifier.confirm(suspects, root) is not None).status)
    return verdicts


def test_the_engine_decides_differences() -> None:
    rng = np.random.default_rng(3)
    weights = [np.abs(rng.normal(size=(8, 3))), np.abs(rng.normal(size=(1, 8)))]
    graph = dense_graph(weights, [rng.normal(size=8), np.zeros(1)], "tanh")
    fields: dict[str, Any] = {"inputs": 3, "outputs": 1, "choices": {0: (0.0, 1.0, 2.0)}, "one_hot": ((1, 2),)}
    assert decided(obligations(graph, claim(Monotonicity((0,), "increasing"), **fields))) == [Status.PROVED] * 2
    assert decided(obligations(graph, claim(Monotonicity((0,), "decreasing"), **fields))) == [Status.REFUTED] * 2


def test_points_see_only_the_values_within_their_radius() -> None:
    graph = random_graph(np.random.default_rng(0), 3)
    rule = Robustness(np.array([[1.0, 0.5, 2.9]]), np.array([1.0, 0.25, 0.5]), 0.5)
    found = obligations(graph, claim(rule, inputs=3, choices={0: (0.0, 1.0, 2.0, 3.0)}, one_hot=())).unsafe
    assert found is not None and sorted(found.lower[:, 0].tolist()) == [0.0, 1.0, 2.0]
    assert (found.lower[:, 1] == 0.25).all() and (found.upper[:, 1] == 0.75).all()  # exact sums stay exact
    assert (found.lower[:, 2] <= 2.4).all() and (found.upper[:, 2] == 3).all()  # cut with the box


@settings(max_examples=50, deadline=None)
@given(st.floats(-2, 2), st.floats(1e-9, 1))
def test_the_surroundings_of_a_point_are_rounded_outward(point: float, radius: float) -> None:
    rule = Robustness(np.array([[point]]), np.array([radius]), 0.5)
    specification = replace(claim(rule, inputs=1), lower=np.array([-9.0]), upper=np.array([9.0]))
    found = obligations(dense_graph([np.ones((2, 1))], [np.zeros(2)]), specification).unsafe
    assert found is not None
    low, high = Fraction(float(found.lower[0, 0])), Fraction(float(found.upper[0, 0]))
    first, last = Fraction(point) - Fraction(radius), Fraction(point) + Fraction(radius)
    assert first - Fraction(1, 2**50) <= low <= first and last <= high <= last + Fraction(1, 2**50)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_unsafe_set_of_a_point_holds_every_true_violation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 2, [3, 3], outputs=1)
    point, change = rng.random(2), float(rng.random()) + 0.1
    rule = Robustness(point[None], np.full(2, 0.5), change)
    found = obligations(graph, claim(rule, inputs=2, outputs=1)).unsafe
    assert found is not None
    (reference,) = exact_values(graph, point.tolist())
    for k, sign in enumerate((-1, 1)):
        assert found.coefficients[0, k, 0].tolist() == [sign]
        # sign * (y - reference) > change implies sign * y + constant >= 0
        assert Fraction(float(found.constants[0, k, 0])) >= -sign * reference - Fraction(change)
        assert found.constants[0, k, 0] <= float(-sign * reference) - change + 1e-12


@pytest.mark.parametrize(
    ("graph", "specification", "message"),
    [
        (dense_graph([np.ones((2, 3))], [np.zeros(2)]), claim(OutputRange(0, 0.0)),
         "specification must describe the network's 3 inputs, got 4"),
        (dense_graph([np.ones((1, 4))], [np.zeros(1)]), claim(OutputRange(0, 0.0)),
         "specification must describe the network's 1 outputs, got 2"),
        (dense_graph([np.ones((2, 4))], [np.zeros(2)]), claim(Robustness(np.full((2, 4), -0.5), np.full(4, 0.4), 1.0)),
         r"point must have inputs of the box within its radius, got none \(point 0: -0.5, -0.5, -0.5, -0.5\)"),
        (dense_graph([np.ones((2, 4))], [np.zeros(2)]),
         claim(Robustness(np.full((1, 4), 1.5), np.full(4, 0.4), 1.0), choices={2: (1.0, 2.0)}),
         r"point must have inputs of the box within its radius, got none \(point 0: 1.5, 1.5, 1.5, 1.5\)"),
        (dense_graph([np.full((2, 4), 1e9)], [np.zeros(2)]),
         claim(Robustness(np.ones((1, 4)), np.full(4, 0.4), 1e-8)),
         r"change must exceed the rounding of the output, \S+e-0\d, got 1e-08 \(point 0\)"),
        (dense_graph([np.full((2, 4), 1e308)], [np.zeros(2)]),
         claim(Robustness(np.ones((1, 4)), np.full(4, 0.4), 1.0)), "change must exceed the rounding .*, inf, got 1"),
        (dense_graph([np.full((2, 4), 1e308), np.zeros((2, 2))], [np.zeros(2), np.zeros(2)]),
         claim(Robustness(np.ones((1, 4)), np.full(4, 0.4), 1.0)), "change must exceed the rounding .*, nan, got 1"),
        (dense_graph([np.full((2, 4), 1e308)], [np.zeros(2)]),
         claim(Monotonicity((0,), "increasing"), choices={0: (0.0, 3.0)}),
         "weights times values must fit float64, got a number beyond 1.8e308"),
    ],
    ids=["inputs", "outputs", "far", "between values", "small change", "infinite output",
         "nan output", "infinite offset"],
)
def test_what_does_not_fit_is_named(graph: Graph, specification: Specification, message: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(InputError, match=message):
        obligations(graph, specification)


# --- conditions ----------------------------------------------------------------------------------------------------


FREE = (Condition(0, 0.5, 1.0), Condition(1, 2.0, 2.0))


def test_a_condition_narrows_the_boxes_of_its_property_alone() -> None:
    graph = random_graph(np.random.default_rng(0), 4)
    rules = (OutputRange(0, 0.0, when=FREE), OutputRange(0, maximum=9.0),
             Monotonicity((0, 1, 2), "increasing", when=FREE), Monotonicity((3,), "increasing"))
    found = obligations(graph, claim(*rules))
    assert found.unsafe is not None
    assert sorted(zip(found.unsafe.lower.tolist(), found.unsafe.upper.tolist(), strict=True)) == [
        ([0.0, 0.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0]), ([0.5, 2.0, 0.0, 0.0], [1.0, 2.0, 3.0, 3.0])]
    narrow, whole = found.slopes
    assert narrow.slopes.features == (0, 2)  # x1 is held
    assert (narrow.lower.tolist(), narrow.upper.tolist()) == ([[0.5, 2, 0, 0]], [[1, 2, 3, 3]])
    assert whole.slopes.features == (3,) and whole.lower.tolist() == [[0, 0, 0, 0]]


def test_a_condition_leaves_of_finite_inputs_the_values_inside_of_it() -> None:
    graph = random_graph(np.random.default_rng(0), 4)
    rule = Monotonicity((0,), "increasing", when=(Condition(0, 1.0, 2.5), Condition(1, 1.0, 1.0)))
    found = obligations(graph, claim(rule, choices={0: (0.0, 1.0, 2.0, 3.0)}, one_hot=((1, 2),)))
    (pair,) = found.differences
    assert (pair.low, pair.high) == (1.0, 2.0)
    assert pair.unsafe.lower[:, 1:3].tolist() == [[1.0, 0.0]] == pair.unsafe.upper[:, 1:3].tolist()


@pytest.mark.parametrize(("when", "message"), [
    ((Condition(0, 4.0, 5.0),), r"when must meet the box \[0, 3\], got \[4, 5\] \(feature 'x0'\)"),
    ((Condition(3, 0.1, 0.9),), r"when must leave a value of 0, 1, got \[0.1, 0.9\] \(feature 'x3'\)"),
    ((Condition(1, 1.0, 1.0), Condition(2, 1.0, 1.0)), r"when must leave one input of a one-hot group .*\(x1, x2\)"),
], ids=["box", "values", "group"])
def test_a_condition_that_no_input_meets_is_an_error(when: tuple[Condition, ...], message: str) -> None:
    graph = random_graph(np.random.default_rng(0), 4)
    with pytest.raises(InputError, match=message):
        obligations(graph, claim(OutputRange(0, 0.0, when=when), choices={3: (0.0, 1.0)}, one_hot=((1, 2),)))


@pytest.mark.parametrize("rule", [
    OutputOrder(1, InputValue(2), 0.25), OutputOrder(InputValue(0), 1), OutputRange(1, -1.0, 0.5, minus=0),
    OutputRange(0, -2.0, minus=InputValue(3)), OutputOrder(0, InputValue(1), -0.5, when=(Condition(2, 0.0, 1.0),)),
    OutputOrder(0, InputValue(1), -0.25, factor=0.75), OutputOrder(InputValue(1), 0, factor=2.5),
    OutputOrder(1, 0, 0.125, factor=0.5),
], ids=str)
def test_a_point_is_unsafe_where_a_relation_to_an_input_or_another_output_is_violated(rule: Any) -> None:
    rng = np.random.default_rng(5)
    graph = random_graph(rng, 4, kinds=ALL_KINDS)
    found = obligations(graph, claim(rule))
    unsafe = found.relation.unsafe if found.relation else found.unsafe
    assert unsafe is not None and (found.relation is None) != (found.unsafe is None)
    seen = set()
    for x in admissible(claim(rule), rng, 500):
        y = graph.value(x[None])[0]

        def of(side: Any, x: FloatArray = x, y: FloatArray = y) -> float:
            return 0.0 if side is None else float(x[side.feature] if isinstance(side, InputValue) else y[side])

        if isinstance(rule, OutputOrder):
            worst = rule.factor * of(rule.lower) + rule.margin - of(rule.upper)
        else:
            value = of(rule.output) - of(rule.minus)
            worst = max(-math.inf if rule.minimum is None else rule.minimum - value,
                        -math.inf if rule.maximum is None else value - rule.maximum)
        met = all(one.lower <= x[one.feature] <= one.upper for one in rule.when)
        values = found.relation.graph.value(x[None])[0] if found.relation else y
        if abs(worst) > SLACK:
            assert inside(unsafe, x, values) == (worst > 0 and met)
            seen.add(worst > 0 and met)
    assert seen == {True, False}


EXAMPLES = re.findall(r"```yaml\n(.*?)```", DOC.read_text(), re.DOTALL)
TASK_NAMES = ("psi_cpu_some", "psi_io_full", "connections")


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example {k}" for k in range(len(EXAMPLES))])
def test_every_example_of_the_reference_compiles(example: str, tmp_path: Path) -> None:
    data = yaml.safe_load(example)
    if "features" in data:
        graph = random_graph(np.random.default_rng(0), len(data["features"]), outputs=len(data.get("outputs", "1")))
        (tmp_path / "SPEC.yaml").write_text(example)
        specification = read_specification(tmp_path / "SPEC.yaml", graph)
    else:
        graph = random_graph(np.random.default_rng(0), len(TASK_NAMES), outputs=1)
        specification = parse_specification(data, TASK_NAMES, dict.fromkeys(TASK_NAMES, (0.0, 1.0)), "example")
    found = obligations(graph, specification)
    assert found.slopes or found.unsafe or found.relation or found.differences or found.shares
    assert specification.statement.endswith(".")


def test_the_reference_has_an_example_of_every_kind_and_of_the_finite_inputs() -> None:
    parsed = [yaml.safe_load(example) for example in EXAMPLES]
    kinds = {kind for data in parsed for entry in data["properties"] for kind in entry}
    assert kinds == set(PropertyFields.model_fields)
    assert any("inputs" in data for data in parsed) and any("one_hot" in data for data in parsed)
    both = next(data for data in parsed if "one_hot" in data)
    specification = parse_specification({k: v for k, v in both.items() if k not in ("features", "outputs")},
                                        both["features"], {}, "example", both["outputs"])
    assert len(roots(narrowed(specification), specification.choices)[0]) == 12  # as the text says
