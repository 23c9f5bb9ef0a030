"""Shares are counted right and their interval is exact. Oracles: SciPy's binomial test, and shares known by hand."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from feature_store.errors import InputError
from models.verification.language.properties import Monotonicity, OutputOrder, OutputRange, Share
from models.verification.language.specification import Specification
from models.verification.network.graph import FloatArray, Graph, dense_graph
from models.verification.obligations import share as module
from models.verification.obligations.share import check_share, clopper_pearson

torch.set_num_threads(1)

IDENTITY = dense_graph([np.eye(2)], [np.zeros(2)])  # y = x
LOW = OutputRange(0, maximum=0.7)


def unit(share: Share, inputs: int = 2, outputs: int = 2, **fields: Any) -> Specification:
    return Specification(tuple(f"x{i}" for i in range(inputs)), np.zeros(inputs), np.ones(inputs), (share,),
                         output_names=tuple(f"y{j}" for j in range(outputs)), **fields)


def check(graph: Graph, share: Share, data: FloatArray | None = None, **fields: Any) -> module.ShareResult:
    return check_share(graph, share, unit(share, graph.inputs, graph.outputs, **fields), data, seed=0)


@pytest.mark.parametrize("samples", [1, 7, 300, 20_000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999, 1 - 1e-9])
def test_the_interval_is_the_exact_one(samples: int, confidence: float) -> None:
    for satisfied in sorted({0, 1, samples // 3, samples - 1, samples}):
        expected = binomtest(satisfied, samples).proportion_ci(confidence, method="exact")
        found = clopper_pearson(satisfied, samples, confidence)
        assert found == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)


def test_a_known_share_of_the_box_is_in_its_interval() -> None:
    found = check(IDENTITY, Share(LOW, 0.65))
    assert found.lower < 0.7 < found.upper < found.lower + 0.03
    assert found.holds and found.samples == 20_000 and found.satisfied == pytest.approx(14_000, abs=300)
    assert not check(IDENTITY, Share(LOW, 0.7)).holds  # true or not, it is not shown


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (OutputRange(0, 0.25, 0.5), 0.25),
        (OutputRange(1, minimum=0.9), 0.1),
        (OutputOrder(1, 0), 0.5),
        (OutputOrder(1, 0, -0.5), 0.875),
        (Monotonicity((0,), "increasing", 0), 1.0),
        (Monotonicity((0,), "decreasing", 0), 0.0),
        (Monotonicity((0, 1), "decreasing", 0), 0.5),  # a pair that differs in x1 alone has equal outputs
    ],
    ids=["range", "minimum", "order", "margin", "increasing", "decreasing", "both"],
)
def test_every_kind_is_counted(rule: Any, expected: float) -> None:
    found = check(IDENTITY, Share(rule, 0.5))
    assert found.lower <= expected <= found.upper


def test_the_tolerance_of_a_pair_is_by_distance() -> None:
    falling = dense_graph([-0.01 * np.eye(2)], [np.zeros(2)])
    share = Share(Monotonicity((0,), "increasing"), 0.5)
    assert check(falling, share, tolerance=0.0101).satisfied == 20_000
    assert check(falling, share, tolerance=0.0099).satisfied == 0


def test_pairs_of_a_finite_feature_are_of_two_of_its_values() -> None:
    values = (0.0, 0.125, 0.5, 1.0)
    valley = dense_graph([np.array([[1.0], [-1.0]]), np.array([[1.0, 1.0]])], [np.array([-0.4, 0.4]), np.zeros(1)])
    level = {value: float(valley.value(np.array([[value]]))[0, 0]) for value in values}  # |x - 0.4|
    share = Share(Monotonicity((0,), "increasing"), 0.2)
    pairs = [(a, b) for a, b in permutations(values, 2) if a < b]
    expected = sum(level[b] >= level[a] for a, b in pairs) / len(pairs)
    assert 0 < expected < 1
    found = check(valley, share, choices={0: values})
    assert found.lower <= expected <= found.upper


def test_one_hot_inputs_are_drawn_as_such() -> None:
    three = dense_graph([np.eye(3)], [np.zeros(3)])
    found = check(three, Share(OutputRange(1, minimum=1.0), 0.2), one_hot=((0, 1, 2),))
    assert found.lower <= 1 / 3 <= found.upper
    total = dense_graph([np.ones((1, 3))], [np.zeros(1)])
    assert check(total, Share(OutputRange(0, 1.0, 1.0), 0.2), one_hot=((0, 1, 2),)).satisfied == 20_000


def test_given_data_count_where_the_specification_admits_them() -> None:
    data = np.array([[0.5, 0.0], [0.9, 1.0], [0.1, 0.5], [1.5, 0.0], [0.2, np.nan]])
    found = check(IDENTITY, Share(LOW, 0.1), data)
    assert (found.satisfied, found.samples) == (2, 3)
    found = check(IDENTITY, Share(LOW, 0.1), data, choices={1: (0.0, 1.0)})
    assert (found.satisfied, found.samples) == (1, 2)
    data = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    found = check(IDENTITY, Share(LOW, 0.1), data, one_hot=((0, 1),))
    assert (found.satisfied, found.samples) == (1, 2)


def test_pairs_of_data_move_the_given_rows() -> None:
    step = dense_graph([np.eye(2)], [np.zeros(2)])
    data = np.tile([[0.25, 0.5]], (5000, 1))
    found = check(step, Share(Monotonicity((1,), "increasing", 1), 0.1), data)
    assert found.satisfied == found.samples == 5000


def test_the_seed_and_not_the_batch_decides_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    share = Share(LOW, 0.5, samples=1000)
    counts = [check_share(IDENTITY, share, unit(share), seed=seed).satisfied for seed in (0, 0, 1)]
    assert counts[0] == counts[1] != counts[2]
    monkeypatch.setattr(module, "BATCH_ELEMENTS", 7)
    assert check_share(IDENTITY, share, unit(share), seed=0).satisfied == counts[0]


def test_an_output_that_is_no_number_does_not_satisfy() -> None:
    broken = dense_graph([np.full((1, 2), 1e308), np.array([[1.0]])], [np.zeros(1), np.zeros(1)])
    output = replace(broken.output, matrices={0: np.array([[-1e308, -1e308]]), 1: np.ones((1, 1))})
    lost = replace(broken, output=output)  # infinity minus infinity
    data = np.tile([[1.0, 1.0]], (3, 1))
    for rule in (OutputRange(0, maximum=1.0), Monotonicity((0,), "increasing")):
        assert check(lost, Share(rule, 0.1), data).satisfied == 0


@pytest.mark.parametrize(
    ("graph", "data", "message"),
    [
        (dense_graph([np.ones((2, 3))], [np.zeros(2)]), None, "describe the network's 3 inputs, got 2"),
        (IDENTITY, np.zeros((4, 3)), r"data must be of shape \(m, 2\), got \(4, 3\)"),
        (IDENTITY, np.zeros(2), r"data must be of shape \(m, 2\), got \(2,\)"),
        (IDENTITY, np.full((4, 2), 2.0), "data must have a row that the specification admits, got none of 4 inside"),
        (IDENTITY, np.zeros((0, 2)), "data must have a row that the specification admits, got none of 0 inside"),
    ],
    ids=["network", "width", "vector", "outside", "empty"],
)
def test_what_cannot_be_counted_is_named(graph: Graph, data: FloatArray | None, message: str) -> None:
    share = Share(LOW, 0.5)
    with pytest.raises(InputError, match=message):
        check_share(graph, share, unit(share), data, seed=0)


@pytest.mark.parametrize("held", [{"upper": np.array([1.0, 0.0])}, {"choices": {1: (0.5,)}}], ids=["a side", "a value"])
def test_a_feature_that_stands_still_makes_no_pair(held: dict[str, Any]) -> None:
    """y = -x0: no pair that differs is in order. Pairs that differ in nothing counted as such once."""
    falling = dense_graph([np.array([[-1.0, 0.0]])], [np.zeros(1)])
    share = Share(Monotonicity((0, 1), "increasing"), 0.45)
    found = check_share(falling, share, replace(unit(share, 2, 1), **held), seed=0)
    assert (found.holds, found.satisfied) == (False, 0)
    still = Share(Monotonicity((1,), "increasing"), 0.45)
    with pytest.raises(InputError, match="must be of a feature that can differ"):
        check_share(falling, still, replace(unit(still, 2, 1), **held), seed=0)
