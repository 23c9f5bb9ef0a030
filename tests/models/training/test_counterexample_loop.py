"""Algorithm 1 and its unverified twin."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from models.learners.mlp import linear_layers
from models.training import counterexample_loop as loop_module
from models.training.counterexample_loop import (
    CounterexampleLoop,
    Counterexamples,
    LoopResult,
    counterexample_accuracy,
)
from models.verification.attack.falsification import falsify
from models.verification.network.fully_connected import network_from_torch
from models.verification.search.branch_and_bound import Budget
from models.verification.verdict import Status
from models.verification.verify import verify
from tests.models.training.synthetic import data, settings, start
from tests.models.verification.networks import network_of, sampled_slopes, specification

QUERIES = [(0, 1)]
CLAIM = specification(3, QUERIES)


def run(method: str, seed: int = 0, events: list[dict[str, Any]] | None = None, **changes: Any) -> LoopResult:
    x, y = data()
    kind = "monotone" if method == "monotone" else "plain"
    report = (lambda event: None) if events is None else events.append
    return CounterexampleLoop(start(kind, QUERIES, seed), start("plain", QUERIES, seed), x, y, CLAIM,
                              settings(method=method, **changes), seed, report).run()


def weights(module: nn.Sequential) -> list[torch.Tensor]:
    return [tensor for layer in linear_layers(module) for tensor in (layer.weight, layer.bias)]


def identical(a: nn.Sequential, b: nn.Sequential) -> bool:
    return all(torch.equal(one, other) for one, other in zip(weights(a), weights(b), strict=True))


def test_the_monotone_method_ends_proved_and_stops_there() -> None:
    result = run("monotone", iterations=5)
    assert result.verdict.status is Status.PROVED
    assert len(result.rounds) == 2 and len(result.epochs) == 8  # half way, and at the end
    assert [one.epoch for one in result.rounds] == [4, 8]
    network = network_from_torch(result.network)
    assert verify(network, CLAIM, Budget(seconds=10)).status is Status.PROVED
    points = np.random.default_rng(0).random((500, 3))
    assert (sampled_slopes(network, points, QUERIES) >= 0).all()
    assert not falsify(network, CLAIM)
    assert result.epochs[-1].loss < 0.5 * result.epochs[0].loss  # it learned something on the way


def test_the_plain_method_never_verifies_and_equals_its_twin() -> None:
    result = run("plain")
    assert result.verdict.status is Status.UNKNOWN and result.verdict.tree is None
    assert len(result.epochs) == 8
    assert identical(result.network, result.twin)
    assert all(epoch.loss == epoch.twin_loss for epoch in result.epochs)
    assert all(one.status == "UNKNOWN" and one.counterexamples == 0 for one in result.rounds)


def test_the_twin_is_the_same_whatever_the_method_of_the_learner() -> None:
    # the same number of epochs for each: no further iterations
    twins = [run(method, seed=3, iterations=0) for method in ("plain", "counterexample_guided", "monotone")]
    assert identical(twins[0].twin, twins[1].twin) and identical(twins[0].twin, twins[2].twin)
    assert [epoch.twin_loss for epoch in twins[0].epochs] == [epoch.twin_loss for epoch in twins[2].epochs]
    assert not identical(twins[2].network, twins[2].twin)


def test_a_seed_gives_one_result_and_another_seed_another() -> None:
    first, second, other = run("counterexample_guided"), run("counterexample_guided"), run("counterexample_guided", 1)
    assert identical(first.network, second.network) and identical(first.twin, second.twin)
    assert [epoch.loss for epoch in first.epochs] == [epoch.loss for epoch in second.epochs]
    assert not identical(first.network, other.network)


def test_the_twin_trains_as_many_epochs_as_the_learner_and_sees_no_counterexample() -> None:
    result = run("counterexample_guided", iterations=2)
    # the same network trained without any verification for as many epochs
    x, y = data()
    epochs = len(result.epochs)
    alone = CounterexampleLoop(start("plain", QUERIES), start("plain", QUERIES), x, y, CLAIM,
                               settings(method="plain"), 0)
    alone.train(epochs)
    assert identical(alone.twin, result.twin)


def test_counterexamples_are_gathered_and_violations_become_fewer() -> None:
    plain = run("plain")
    guided = run("counterexample_guided", iterations=6, epochs_per_iteration=10, hinge_margin=0.02,
                 counterexamples_per_iteration=64)
    counts = [one.counterexamples for one in guided.rounds]
    assert counts[0] > 0 and len(guided.counterexamples.low) > 0
    assert guided.rounds[0].status == "REFUTED"

    def fall(module: nn.Sequential) -> float:
        witnesses = falsify(network_from_torch(module), CLAIM, seed=9)
        return max((witness.excess for witness in witnesses), default=0.0)

    assert fall(plain.network) > 0.01
    assert fall(guided.network) < 0.5 * fall(plain.network)
    arrays = guided.counterexamples.arrays(3)
    learner, twin = (counterexample_accuracy(network_from_torch(module), arrays, CLAIM.tolerance)
                     for module in (guided.network, guided.twin))
    assert learner > twin


def test_every_counterexample_of_the_result_is_an_ordered_pair_of_one_feature_in_the_box() -> None:
    arrays = run("counterexample_guided", iterations=1).counterexamples.arrays(3)
    assert arrays["low"].shape == arrays["high"].shape == (len(arrays["sign"]), 3) and len(arrays["sign"]) > 0
    assert set(arrays["sign"].tolist()) == {1} and set(arrays["feature"].tolist()) == {0}
    assert (arrays["low"][:, 0] < arrays["high"][:, 0]).all()
    assert (arrays["low"][:, 1:] == arrays["high"][:, 1:]).all()
    for side in ("low", "high"):
        assert (arrays[side] >= CLAIM.lower).all() and (arrays[side] <= CLAIM.upper).all()


def test_the_attacks_on_the_twin_are_in_the_set_but_not_in_the_learners_training() -> None:
    x, y = data()
    loop = CounterexampleLoop(start("monotone", QUERIES), start("plain", QUERIES), x, y, CLAIM,
                              settings(method="monotone"), 0)
    result = loop.run()
    assert not loop.found.low and loop.pairs is None  # a network that is monotone by construction has none
    assert len(result.counterexamples.low) == len(loop.attacks.low) > 0
    assert sum(one.twin_counterexamples for one in result.rounds) == len(loop.attacks.low)
    assert result.twin_verdict.status is Status.REFUTED
    # as found, so while it was still training: the last ones violate now
    arrays = Counterexamples()
    arrays.add(result.twin_verdict.witnesses)
    assert counterexample_accuracy(network_from_torch(result.twin), arrays.arrays(3), CLAIM.tolerance) == 0.0
    assert counterexample_accuracy(network_from_torch(result.network), arrays.arrays(3), CLAIM.tolerance) == 1.0


def test_the_number_of_counterexamples_of_an_iteration_is_limited() -> None:
    result = run("counterexample_guided", iterations=1, counterexamples_per_iteration=3)
    found = len(result.counterexamples.low) - sum(one.twin_counterexamples for one in result.rounds)
    assert 0 < found <= 3 * len(result.rounds)


def test_the_loop_stops_at_its_limit_of_iterations() -> None:
    x, y = data()
    # against the trend of the data, so that the loop does not get there in two iterations
    claim = specification(3, [(1, 1), (2, 1)])
    result = CounterexampleLoop(start("plain", QUERIES), start("plain", QUERIES), x, y, claim,
                                settings(method="counterexample_guided", iterations=2), 0).run()
    assert result.verdict.status is not Status.PROVED
    assert len(result.rounds) == 4 and len(result.epochs) == 8 + 2 * 2


def test_progress_is_reported_after_every_epoch_and_every_verification() -> None:
    events: list[dict[str, Any]] = []
    result = run("monotone", events=events)
    epochs = [event for event in events if event["stage"] == "finetune"]
    rounds = [event for event in events if event["stage"] == "verify"]
    assert [event["epoch"] for event in epochs] == list(range(1, 9))
    assert all(event["epochs"] == 8 for event in epochs)
    assert [event["loss"] for event in epochs] == [epoch.loss for epoch in result.epochs]
    assert [(event["epoch"], event["iteration"]) for event in rounds] == [(4, 1), (8, 2)]
    assert rounds[-1]["status"] == "PROVED" and rounds[-1]["counterexamples"] == 0


def test_seconds_are_told_apart_and_rounds_carry_the_bound() -> None:
    result = run("monotone")
    assert set(result.seconds) == {"training", "twin", "verification"}
    assert all(value > 0 for value in result.seconds.values())
    assert sum(one.seconds for one in result.rounds) == pytest.approx(result.seconds["verification"])
    assert math.isfinite(result.rounds[-1].lower_bound)


def test_a_step_of_the_monotone_method_never_leaves_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    points = np.random.default_rng(1).random((50, 3))

    def spy(layers: Any, queries: Any) -> None:
        original(layers, queries)
        seen.append(float(sampled_slopes(network_from_torch(module), points, QUERIES).min()))

    original = loop_module.project
    module = start("monotone", QUERIES)
    monkeypatch.setattr(loop_module, "project", spy)
    x, y = data()
    CounterexampleLoop(module, start("plain", QUERIES), x, y, CLAIM, settings(method="monotone", epochs=2), 0).run()
    assert len(seen) == 2 * math.ceil(len(x) / 32) and min(seen) >= 0


def test_the_learning_rate_falls_along_a_cosine_to_a_twentieth_and_stays_there() -> None:
    x, y = data(rows=32)
    loop = CounterexampleLoop(start("plain", QUERIES), start("plain", QUERIES), x, y, CLAIM,
                              settings(method="plain", epochs=4), 0)
    rates = []
    for _ in range(6):
        rates.append(loop.learning_rate())
        loop.train(1)
    assert rates[0] == pytest.approx(0.01) and rates[2] == pytest.approx(0.01 * (0.05 + 0.95 / 2))
    assert rates[4] == rates[5] == pytest.approx(0.0005)


# --- accuracy on counterexamples ---------------------------------------------------------------------------


def pairs(low: Any, high: Any, sign: Any) -> dict[str, np.ndarray]:
    return {"low": np.array(low, dtype=float), "high": np.array(high, dtype=float), "sign": np.array(sign),
            "feature": np.zeros(len(sign), dtype=int)}


def test_a_counterexample_counts_as_right_when_its_order_holds_within_the_tolerance() -> None:
    identity = network_of(([[1.0, 0.0]], [10.0]), ([[1.0]], [-10.0]))  # f = x0
    arrays = pairs([[0.0, 0.0], [0.0, 1.0], [0.2, 0.0], [0.0, 0.0]],
                   [[1.0, 0.0], [1.0, 1.0], [0.3, 0.0], [0.1, 0.0]], [1, -1, -1, 1])
    assert counterexample_accuracy(identity, arrays, 1e-4) == 0.5
    # a slope of -1 is within a tolerance of 1
    assert counterexample_accuracy(identity, arrays, 1.0) == 1.0
    assert counterexample_accuracy(identity, arrays, 0.999) == 0.5


def test_an_equal_pair_is_right_and_an_empty_set_is_all_right() -> None:
    constant = network_of(([[0.0]], [1.0]), ([[3.0]], [0.0]))
    assert counterexample_accuracy(constant, pairs([[0.0]], [[1.0]], [1]), 0.0) == 1.0
    assert counterexample_accuracy(constant, Counterexamples().arrays(1), 0.0) == 1.0


def test_the_witnesses_of_a_network_are_all_wrong_for_it() -> None:
    module = start("plain", QUERIES, seed=5)
    network = network_from_torch(module)
    found = Counterexamples()
    claim = specification(3, [(0, 1), (1, -1), (2, 1)])
    found.add(falsify(network, claim))
    assert len(found.low) > 0
    assert counterexample_accuracy(network, found.arrays(3), claim.tolerance) == 0.0
    other = Counterexamples()
    other.extend(found)
    other.extend(found)
    assert len(other.arrays(3)["low"]) == 2 * len(found.low)


@pytest.mark.parametrize("method", ["certified", "certified_guided"])
def test_certified_training_brings_the_bounds_up_to_a_proof(method: str) -> None:
    plain = run("counterexample_guided", iterations=0, epochs=60)
    result = run(method, iterations=4, epochs=60)
    assert plain.verdict.status is not Status.PROVED
    if method == "certified":  # the guided one ends where its counterexamples leave it
        assert result.verdict.status is Status.PROVED
        points = np.random.default_rng(0).random((500, 3))
        assert sampled_slopes(network_from_torch(result.network), points, QUERIES).min() >= -CLAIM.tolerance
    assert result.epochs[-1].loss < 0.5 * result.epochs[0].loss
    assert identical(result.twin, plain.twin)  # the twin is never touched by it
