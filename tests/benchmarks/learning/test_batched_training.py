"""Networks trained side by side are what each alone would be, stay monotone, and are counted right."""

import numpy as np
import torch

from benchmarks.learning.batched_training import Curves, Networks, fresh, steps_to_converge, steps_to_reach, train
from models.learners.mlp import build_mlp

QUERIES = [(0, 1)]


def _rows(seed: int, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).random((count, 2))
    return x, x[:, 0] * 0.7 + np.sin(3 * x[:, 1]) * 0.3


def test_a_batch_answers_as_its_networks() -> None:
    modules = [build_mlp(2, (5, 4), torch.Generator().manual_seed(seed)) for seed in range(3)]
    x = torch.rand(3, 7, 2)
    with torch.no_grad():
        wanted = torch.stack([module(own)[:, 0] for module, own in zip(modules, x, strict=True)])
    torch.testing.assert_close(Networks.of(modules)(x), wanted)


def test_training_lowers_every_error_and_keeps_the_direction() -> None:
    (x, y), (x2, y2) = _rows(0), _rows(1, 30)
    networks = fresh(2, 2, (16, 16), QUERIES, 0)
    curves = train(networks, [x, x2], [y, y2 + 1], [x, x2], [y, y2 + 1], QUERIES, 300, 50, 5e-3, 0)
    assert curves.steps.tolist() == [0, 50, 100, 150, 200, 250, 300]
    assert (curves.errors[:, -1] < 0.2 * curves.errors[:, 0]).all()
    low = torch.rand(2, 200, 2)
    high = low + torch.tensor([0.3, 0.0])
    assert (networks(high) - networks(low) >= -1e-6).all()


def test_a_network_does_not_hear_of_the_other() -> None:
    (x, y), (x2, y2) = _rows(0), _rows(1)
    both = fresh(2, 2, (8, 8), QUERIES, 0)
    alone = both.pick([0])
    train(both, [x, x2], [y, y2], [x, x2], [y, y2], QUERIES, 20, 20, 1e-2, 0)
    train(alone, [x], [y], [x], [y], QUERIES, 20, 20, 1e-2, 0)
    # other minibatches, the same loss: the second network's rows must not matter
    again = fresh(2, 2, (8, 8), QUERIES, 0)
    train(again, [x, x2 * 100], [y, y2 * 100], [x, x2], [y, y2], QUERIES, 20, 20, 1e-2, 0)
    torch.testing.assert_close(both.weights[0][0], again.weights[0][0])


def test_steps_are_counted_to_the_first_test_that_is_near_the_converged_error() -> None:
    curves = Curves(np.array([0, 10, 20, 30]), np.array([[4.0, 1.01, 1.0, 1.0], [9.0, 5.0, 3.0, 1.0]]), 0.0)
    steps, converged = steps_to_converge(curves, last=1)
    assert steps.tolist() == [10, 30] and converged.tolist() == [1.0, 1.0]
    assert steps_to_reach(curves, np.array([4.5, 0.5])).tolist() == [0.0, np.inf]
