"""Many loops trained as one stack, held against the same loops one by one."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.learners.mlp import build_mlp, linear_layers
from models.training import counterexample_loop as loop_module
from models.training import stacked_training as stacked_module
from models.training.counterexample_loop import CounterexampleLoop, LoopResult
from models.training.evaluation import mean_squared_error
from models.training.sign_pattern import initialise
from models.training.stacked_training import train_stacked, train_together
from models.verification.language.specification import FloatArray, Specification
from models.verification.network.fully_connected import ReluNetwork, network_from_torch
from models.verification.search.branch_and_bound import Budget
from models.verification.verdict import Status, Verdict
from models.verification.verify import verify
from tests.models.training.synthetic import data, settings
from tests.models.verification.networks import Queries, sampled_slopes, specification

# With Intel's MKL all differences are 0. Elsewhere a product may be rounded otherwise in a stack: one step of Adam then
# differs by some 1e-7 of a weight of size 1, and training does not damp it.
FEW_EPOCHS_TOLERANCE = 1e-4
TEST_ERROR_TOLERANCE = 0.02  # of the mean squared error
INPUTS = 4


def directions(number: int) -> Queries:
    """They differ from workload to workload."""
    return [(0, 1 if number % 3 else -1), *([(2, 1)] if number % 2 else [])]


def start(kind: str, number: int, hidden: Sequence[int]) -> nn.Sequential:
    module = build_mlp(INPUTS, hidden, torch.Generator().manual_seed(number))
    if kind == "monotone":
        initialise(linear_layers(module), directions(number))
    return module


def loop(number: int, method: str = "monotone", hidden: Sequence[int] = (12, 10), rows: int | None = None,
         events: list[dict[str, Any]] | None = None, **changes: Any) -> CounterexampleLoop:
    """One workload's: rows, directions, start and seed follow from its number."""
    count = 40 + 37 * (number % 5) if rows is None else rows
    x, y = data(count, INPUTS, number)
    report = (lambda event: None) if events is None else events.append
    return CounterexampleLoop(start("monotone" if method == "monotone" else "plain", number, hidden),
                              start("plain", number, hidden), x, y, specification(INPUTS, directions(number)),
                              settings(method=method, **changes), number, report)


def weights(module: nn.Sequential) -> Tensor:
    return torch.cat([part.detach().reshape(-1) for layer in linear_layers(module)
                      for part in (layer.weight, layer.bias)])


def difference(a: CounterexampleLoop, b: CounterexampleLoop) -> float:
    """Largest of all weights and biases, learner and twin."""
    return max(float((weights(one) - weights(other)).abs().max())
               for one, other in ((a.network, b.network), (a.twin, b.twin)))


def moments(one: CounterexampleLoop) -> list[Tensor]:
    return [value for optimiser in one.optimisers for values in (optimiser.means, optimiser.squares, optimiser.steps)
            for value in values]


def together(loops: Sequence[CounterexampleLoop]) -> list[LoopResult | Exception]:
    results = dict(train_together(loops))
    assert sorted(results) == list(range(len(loops)))
    return [results[index] for index in range(len(loops))]


def completed(result: LoopResult | Exception) -> LoopResult:
    assert isinstance(result, LoopResult), result
    return result


# --- against the oracle: each loop alone ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["monotone", "plain"])
@pytest.mark.parametrize("count", [2, 5, 17])
def test_a_stack_trains_as_each_loop_does_alone(method: str, count: int) -> None:
    stacked, alone = ([loop(number, method) for number in range(count)] for _ in range(2))
    for _ in range(2):  # the second time moments and numbers of steps go on
        train_stacked(stacked, 3)
        for one in alone:
            one.train(3)
    for one, other in zip(stacked, alone, strict=True):
        assert difference(one, other) <= FEW_EPOCHS_TOLERANCE
        assert [epoch.epoch for epoch in one.epochs] == [1, 2, 3, 4, 5, 6]
        np.testing.assert_allclose([(epoch.loss, epoch.twin_loss) for epoch in one.epochs],
                                   [(epoch.loss, epoch.twin_loss) for epoch in other.epochs],
                                   rtol=FEW_EPOCHS_TOLERANCE)
        for moment, expected in zip(moments(one), moments(other), strict=True):
            torch.testing.assert_close(moment, expected, rtol=FEW_EPOCHS_TOLERANCE, atol=FEW_EPOCHS_TOLERANCE)
    assert difference(alone[0], alone[1]) > 0.1  # the workloads do differ


@pytest.mark.parametrize("hidden", [(7,), (16, 16), (9, 33, 5)])
@pytest.mark.parametrize("batch_size", [1, 13, 64, 500])
def test_it_does_so_for_every_shape_and_size_of_batches(hidden: tuple[int, ...], batch_size: int) -> None:
    rows = (3, 64, 65, 100, 14)
    stacked, alone = ([loop(number, hidden=hidden, rows=count, batch_size=batch_size)
                       for number, count in enumerate(rows)] for _ in range(2))
    for places in {min(batch_size, -(-count // 64) * 64) for count in rows}:
        members = [one for one in stacked if min(batch_size, -(-len(one.x) // 64) * 64) == places]
        train_stacked(members, 2)
    for one, other in zip(stacked, alone, strict=True):
        other.train(2)
        assert difference(one, other) <= FEW_EPOCHS_TOLERANCE


def test_a_loop_can_go_on_alone_after_a_stack_and_in_a_stack_after_it_was_alone() -> None:
    mixed, alone = ([loop(number) for number in range(3)] for _ in range(2))
    train_stacked(mixed, 2)
    mixed[1].train(1)
    train_stacked([mixed[2], mixed[0]], 1)
    train_stacked(mixed, 2)
    for one, other in zip(mixed, alone, strict=True):
        other.train(5)
        assert difference(one, other) <= FEW_EPOCHS_TOLERANCE


def test_a_whole_run_ends_as_alone_with_the_same_test_error() -> None:
    stacked = [completed(result) for result in together([loop(number, epochs=30) for number in range(6)])]
    alone = [loop(number, epochs=30).run() for number in range(6)]
    for number, (one, other) in enumerate(zip(stacked, alone, strict=True)):
        x, y = data(300, INPUTS, 100 + number)
        for part in ("network", "twin"):
            errors = [mean_squared_error(network_from_torch(getattr(result, part)).value(x), y)
                      for result in (one, other)]
            assert errors[0] == pytest.approx(errors[1], rel=TEST_ERROR_TOLERANCE)
        assert one.verdict.status is other.verdict.status is Status.PROVED
        rounds = [[(each.epoch, each.status) for each in result.rounds] for result in (one, other)]
        assert rounds[0] == rounds[1]
        assert one.epochs[-1].loss < one.epochs[0].loss
        slopes = sampled_slopes(network_from_torch(one.network), np.random.default_rng(0).random((300, INPUTS)),
                                directions(number))
        assert (slopes >= 0).all()


# --- who shares the stack ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 5, 17])
def test_a_result_does_not_depend_on_who_shares_the_stack_nor_on_the_order(count: int) -> None:
    few = [completed(result) for result in together([loop(number) for number in range(2)])]
    order = list(range(count))
    random.Random(count).shuffle(order)
    loops = [loop(number) for number in order]
    many = [completed(result) for result in together(loops)]
    for number in range(2):
        result = many[order.index(number)]
        for part in ("network", "twin"):
            gap = weights(getattr(result, part)) - weights(getattr(few[number], part))
            assert float(gap.abs().max()) <= FEW_EPOCHS_TOLERANCE


def test_loops_of_different_shapes_and_settings_are_trained_in_one_call() -> None:
    def made() -> list[CounterexampleLoop]:
        return [loop(0), loop(1, hidden=(8, 8)), loop(2, "plain"), loop(3), loop(4, epochs=4), loop(5, hidden=(8, 8)),
                loop(6, "plain"), loop(7, "counterexample_guided", iterations=1),
                loop(8, "counterexample_guided", iterations=1)]

    results = [completed(result) for result in together(made())]
    for result, one in zip(results, made(), strict=True):
        expected = one.run()
        assert [epoch.epoch for epoch in result.epochs] == [epoch.epoch for epoch in expected.epochs]
        assert result.verdict.status is expected.verdict.status
        assert float((weights(result.network) - weights(expected.network)).abs().max()) <= FEW_EPOCHS_TOLERANCE


def test_a_workload_with_a_counterexample_is_trained_with_its_hinge_and_the_others_are_not() -> None:
    loops = [loop(number, "counterexample_guided", iterations=3, hinge_margin=0.02) for number in range(3)]
    results = [completed(result) for result in together(loops)]
    alone = [loop(number, "counterexample_guided", iterations=3, hinge_margin=0.02).run() for number in range(3)]
    assert any(one.pairs is not None for one in loops)
    for result, expected in zip(results, alone, strict=True):
        assert len(result.counterexamples.low) == len(expected.counterexamples.low)
        assert float((weights(result.network) - weights(expected.network)).abs().max()) <= FEW_EPOCHS_TOLERANCE


def test_a_workload_that_is_proved_leaves_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    original = train_stacked

    def counted(loops: Sequence[CounterexampleLoop], epochs: int) -> None:
        sizes.append((len(loops), epochs))
        original(loops, epochs)

    monkeypatch.setattr(stacked_module, "train_stacked", counted)
    loops = [loop(number, iterations=2) for number in range(4)]

    def too_slow_for_two(network: ReluNetwork, claim: Specification, budget: Budget, points: FloatArray,
                         seed: int) -> Verdict:
        if any(points is one.points for one in loops[:2]):
            return Verdict(Status.TIMEOUT, "time is up")
        return verify(network, claim, budget, points, seed)

    monkeypatch.setattr(loop_module, "verify", too_slow_for_two)
    results = [completed(result) for result in together(loops)]
    assert sizes == [(4, 4), (4, 4), (2, 2), (2, 2)]
    assert [len(result.epochs) for result in results] == [12, 12, 8, 8]
    assert [result.verdict.status is Status.PROVED for result in results] == [False, False, True, True]


# --- what goes wrong --------------------------------------------------------------------------------------


def test_a_loss_that_becomes_nan_touches_no_other_workload() -> None:
    broken, whole = ([loop(number) for number in range(4)] for _ in range(2))
    broken[1].y[3] = float("nan")
    results, expected = together(broken), together(whole)
    assert isinstance(results[1], Exception) and "finite" in str(results[1])
    for index in (0, 2, 3):
        assert torch.equal(weights(completed(results[index]).network), weights(completed(expected[index]).network))
        assert torch.equal(weights(completed(results[index]).twin), weights(completed(expected[index]).twin))


def test_a_loop_that_raises_ends_with_its_error_and_the_others_with_their_results() -> None:
    def fail(event: dict[str, Any]) -> None:
        if event["stage"] == "verify":
            raise ValueError("no space left")

    loops = [loop(number) for number in range(3)]
    loops[1].on_progress = fail
    results = together(loops)
    assert isinstance(results[1], ValueError) and str(results[1]) == "no space left"
    assert all(completed(results[index]).verdict.status is Status.PROVED for index in (0, 2))


# --- what is reported -------------------------------------------------------------------------------------


def test_every_workload_reports_its_epochs_and_the_shares_of_the_time_add_up() -> None:
    events: list[list[dict[str, Any]]] = [[] for _ in range(3)]
    loops = [loop(number, rows=40 + 60 * number, events=events[number]) for number in range(3)]
    results = [completed(result) for result in together(loops)]
    for own, result in zip(events, results, strict=True):
        trained = [event for event in own if event["stage"] == "finetune"]
        assert [event["epoch"] for event in trained] == list(range(1, 9))
        assert [event["loss"] for event in trained] == [epoch.loss for epoch in result.epochs]
        assert result.seconds["training"] > 0 and result.seconds["verification"] > 0
        assert result.seconds["training"] == pytest.approx(result.seconds["twin"])
    seconds = [result.seconds["training"] for result in results]
    assert seconds[2] / seconds[0] == pytest.approx(160 / 40)


def test_a_single_loop_is_trained_as_ever() -> None:
    (result,) = together([loop(3)])
    expected = loop(3).run()
    assert float((weights(completed(result).network) - weights(expected.network)).abs().max()) <= FEW_EPOCHS_TOLERANCE
    assert [epoch.epoch for epoch in completed(result).epochs] == [epoch.epoch for epoch in expected.epochs]


def test_no_loop_gives_no_result() -> None:
    assert together([]) == []
