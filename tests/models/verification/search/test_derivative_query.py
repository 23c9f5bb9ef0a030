"""What the search learns of derivatives: from which end to bound them, where either end may prove what one does not."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from models.verification.bounds.derivative_margins import DerivativeMargins, Ends
from models.verification.bounds.end_choice import BOTH, CHOICES, FIRST, GROWTH, EndChoice, Trial
from models.verification.network.graph import Graph, dense_graph
from models.verification.network.graph_tensors import GraphTensors
from models.verification.obligations.slopes import Slopes
from models.verification.search.branch_and_bound import Budget, branch_and_bound
from models.verification.search.derivative_query import DerivativeQuery
from models.verification.verdict import Status
from tests.models.verification.graphs import random_boxes, random_graph

OUTPUT, INPUT = CHOICES[1:]
# Slopes of float32 weights in float64, and bounds in float32 with their rounding charged.
ROUNDING = 1e-12


def rising_from_the_input() -> Graph:
    """Rises in x0 (slopes >= 0.5 at both neurons of layer 1), where three kinks cross in one point.

    z0 = (x0 + 1, x0 + x1 - 1), z1 = (a0 - a1 / 2, a0 + a1 / 2) - 1.3. From the output, dy/da1 may be -1/2 .. 1/2.
    """
    return dense_graph([np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[1.0, -0.5], [1.0, 0.5]]), np.ones((1, 2))],
                       [np.array([1.0, -1.0]), np.full(2, -1.3), np.zeros(1)])


def rising_from_the_output() -> Graph:
    """The other way round: z0 = (x0 - 0.3, x0 + x1 - 1), z1 = (a0 + a1 + 1, (a1 - a0) / 2), whose slope has no sign."""
    return dense_graph([np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 1.0], [-0.5, 0.5]]), np.ones((1, 2))],
                       [np.array([-0.3, -1.0]), np.array([1.0, 0.0]), np.zeros(1)])


def search(graph: Graph, ends: Ends | None, boxes: int = 2000, allowed: float = 1e-4):
    slopes = Slopes((0,), np.ones((1, 1)), np.array([allowed]))
    walls = torch.zeros(1, graph.inputs, dtype=torch.float64), torch.ones(1, graph.inputs, dtype=torch.float64)
    return branch_and_bound(DerivativeQuery(graph, slopes, ends=ends), *walls, Budget(60.0, boxes), lambda *_: False)


@pytest.mark.parametrize(("graph", "suffices", "fails"), [(rising_from_the_input(), INPUT, OUTPUT),
                                                          (rising_from_the_output(), OUTPUT, INPUT)],
                         ids=["input", "output"])
def test_what_one_end_alone_never_proves_is_proved_from_the_other(graph: Graph, suffices: Ends, fails: Ends) -> None:
    assert search(graph, fails).status is not Status.PROVED
    assert search(graph, suffices).boxes == 1
    found = search(graph, None)
    assert found.status is Status.PROVED and found.boxes == 1


def test_each_slope_counts_its_better_end() -> None:
    # two networks side by side, each with an output of its own: neither end proves both slopes
    first, second = rising_from_the_input(), rising_from_the_output()
    weights, biases = [], []
    for k in range(3):
        a, b = (graph.affines[k] for graph in (first, second))
        (wa,), (wb,) = a.matrices.values(), b.matrices.values()
        if k == 0:
            weights.append(np.vstack([wa, wb]))
        else:
            weights.append(np.block([[wa, np.zeros((len(wa), wb.shape[1]))], [np.zeros((len(wb), wa.shape[1])), wb]]))
        biases.append(np.concatenate([a.offset, b.offset]))
    graph = dense_graph(weights, biases)
    typed = DerivativeMargins(graph, Slopes((0, 0), np.eye(2), np.full(2, 1e-4)), torch.float64, "cpu")
    query = DerivativeQuery(graph, Slopes((0, 0), np.eye(2), np.full(2, 1e-4)))
    walls = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    assert query.bound(*walls, torch.zeros(1), torch.float64).proved.all()
    for end in CHOICES[1:]:
        one = DerivativeQuery(graph, Slopes((0, 0), np.eye(2), np.full(2, 1e-4)), ends=end)
        assert not one.bound(*walls, torch.zeros(1), torch.float64).proved.any()
    assert typed.cost(BOTH) > max(typed.cost(end) for end in CHOICES[1:])


def test_boxes_that_one_end_proves_are_not_bounded_from_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []
    built = DerivativeMargins.__init__

    def watched(self: DerivativeMargins, *arguments) -> None:
        built(self, *arguments)
        make = self._from

        def from_end(end):
            bounder = make(end)
            bounding = bounder.derivatives

            class Watched:
                seed_of = bounder.seed_of

                def derivatives(self, spans, refine):
                    asked.append((len(spans[0][0]), end))
                    return bounding(spans, refine)

            return Watched()

        self._from = from_end

    monkeypatch.setattr(DerivativeMargins, "__init__", watched)
    graph = rising_from_the_input()
    query = DerivativeQuery(graph, Slopes((0,), np.ones((1, 1)), np.full(1, 1e-4)))
    lower = torch.tensor([[0.0, 0.0], [0.6, 0.6]], dtype=torch.float64)  # the second has no kink in it
    found = query.bound(lower, torch.ones(2, 2, dtype=torch.float64), torch.zeros(2), torch.float64)
    assert found.proved.all() and asked == [(2, "output"), (1, "input")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whatever_is_learned_no_slope_is_below_its_margin(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    graph = random_graph(rng, 3, (12, 12, 12), 2, skips=0.3)
    rows, features = rng.normal(size=(4, 2)).astype(np.float32).astype(np.float64), (0, 1, 1, 2)
    query = DerivativeQuery(graph, Slopes(features, rows, np.zeros(4)))
    exact, taken = GraphTensors(graph), set()
    for _ in range(12):
        lower, upper = (torch.as_tensor(wall) for wall in random_boxes(rng, 100, 3, 0.2))
        found = query.bound(lower, upper, torch.zeros(100), dtype)
        taken.add(query._choice.ends)
        for share in (0.0, 0.25, 0.5, 1.0):
            at = torch.lerp(lower, upper, share)
            least = exact.slopes(at, features, torch.as_tensor(rows)).min(dim=1).values
            assert (least >= found.margin.double() - ROUNDING).all()
    assert len(query._choice.means) == len(CHOICES) and len(taken) > 1  # it has learned


def test_one_hidden_layer_is_bounded_from_one_end() -> None:
    graph = random_graph(np.random.default_rng(0), 2, (5,), 1)
    assert DerivativeQuery(graph, Slopes((0,), np.ones((1, 1)), np.zeros(1)))._choice.ends == OUTPUT


# --- the choice --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("both", "output", "input_", "chosen"), [
    ((-9.0, -8.0, 1.3), (-10.0, -9.0, 1.0), (-10.0, -9.0, 1.0), BOTH),  # a split fewer for 1.3 times the cost
    ((-9.8, -8.8, 1.3), (-10.0, -9.0, 1.0), (-10.0, -9.0, 1.0), OUTPUT),
    ((-9.8, -8.8, 1.3), (-10.0, -9.0, 1.0), (-11.0, -9.0, 1.1), INPUT),  # looser, but twice as much won by a split
    ((-9.8, -8.8, 1.3), (-10.0, -10.0, 1.0), (-11.0, -11.0, 1.0), BOTH),  # a split wins nothing at either end
])
def test_the_cheapest_tree_decides(both, output, input_, chosen) -> None:
    choice = EndChoice()
    changed = choice.learn({BOTH: Trial(*both), OUTPUT: Trial(*output), INPUT: Trial(*input_)})
    assert choice.ends == chosen and changed == (chosen != BOTH)


@pytest.mark.parametrize("nothing", [float("nan"), float("-inf")])
def test_bounds_that_say_nothing_teach_nothing(nothing: float) -> None:
    choice = EndChoice()
    assert not choice.learn({BOTH: Trial(-1.0, -0.5, 1.3), OUTPUT: Trial(nothing, nothing, 1.0),
                             INPUT: Trial(-1.0, -0.5, 1.0)})
    assert choice.ends == BOTH and not choice.means


def test_trials_are_a_small_part_of_a_search() -> None:
    choice, met, trials = EndChoice(), 0, []
    while met < 100_000:
        met += 64
        if choice.trial(64, 10):
            trials.append(met)
            choice.learn({ends: Trial(-1.0, -0.5, 1.0) for ends in CHOICES})
    assert trials[0] == FIRST and all(b >= GROWTH * a for a, b in pairwise(trials))
    assert not EndChoice(bounded=10 * FIRST).trial(64, 0)
