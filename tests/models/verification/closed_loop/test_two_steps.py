"""Never up and then down: proved where it holds, refuted with two real steps where it does not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_store.errors import InputError
from models.verification.checker.chain import Chain
from models.verification.closed_loop.chain_builder import chain_values
from models.verification.closed_loop.two_steps import TwoSteps, affine_law, behind
from models.verification.verdict import Status
from tests.models.verification.closed_loop.policies import policy

UP, DOWN, TARGET = 0.7, 0.2877, -0.5
LOW, HIGH = np.array([-3.0, 0.0]), np.array([0.0, 4.6])  # logarithms of utilisation and of replicas
# at constant load log u' = log u + log r - log r', and what was wanted runs
LAW = affine_law(np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[-1.0], [1.0]]), np.zeros((2, 0)), offset=np.zeros(2))


def proportional(gain: float) -> Chain:
    """log r' = log r + gain (log u - target), the change clipped to -DOWN..UP, at most the largest."""
    weights = [np.array([[gain, 0.0], [0.0, 1.0]]), np.array([[-1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, -1.0]]),
               np.array([[-1.0]])]
    return policy(weights, [np.array([DOWN - gain * TARGET, 0.0]), np.array([UP + DOWN, 0.0]),
                            np.array([HIGH[1] - UP]), HIGH[1:]])


def question(chain: Chain, margin: float = 0.05, law: Chain = LAW, **more: Any) -> TwoSteps:
    free = np.array(more.pop("free", np.zeros((0, 2))), dtype=np.float64).reshape(-1, 2)
    return TwoSteps(chain, law, LOW, HIGH, 0, np.array([0.0, 1.0]), 0.0, margin, free[:, 0], free[:, 1])


def flaps(asked: TwoSteps, count: int = 20_000) -> float:
    """The largest fall after a rise by more than the margin, of random states with the policy in its own type."""
    x = LOW + np.random.default_rng(0).random((count, 2)) * (HIGH - LOW)
    y = chain_values(asked.policy, x)
    after = np.clip(chain_values(asked.law, np.hstack([x, y])), LOW, HIGH)
    fall = (y - chain_values(asked.policy, after))[:, 0]
    return float(fall[y[:, 0] - x[:, 1] > asked.margin].max())


@pytest.mark.parametrize("gain", [0.5, 1.0])
def test_a_policy_that_does_not_overshoot_never_flaps_and_that_is_certified(gain: float, tmp_path: Path) -> None:
    asked = question(proportional(gain))
    found = asked.prove(tmp_path)
    assert found.status is Status.PROVED and flaps(asked) <= asked.margin
    again = tmp_path / "again"
    again.mkdir()
    assert asked.check(tmp_path / "two_steps.npz", again).accepted


def test_a_policy_that_overshoots_is_refuted_by_two_steps(tmp_path: Path) -> None:
    asked = question(proportional(1.8))
    found = asked.prove(tmp_path)
    assert found.status is Status.REFUTED and flaps(asked) > asked.margin
    steps = asked.steps_of(found)
    assert steps is not None
    x, y, after, last = steps
    assert y[0] - x[1] > asked.margin - 1e-4 and y[0] - last[0] > asked.margin - 1e-4
    np.testing.assert_allclose(after, np.clip([x[0] + x[1] - y[0], y[0]], LOW, HIGH), atol=1e-6)


def test_a_proof_is_of_its_own_policy_margin_and_law(tmp_path: Path) -> None:
    question(proportional(1.0)).prove(tmp_path)
    other_law = affine_law(np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[-1.1], [1.0]]), np.zeros((2, 0)),
                           offset=np.zeros(2))
    for k, other in enumerate((question(proportional(1.1)), question(proportional(1.0), margin=0.04),
                               question(proportional(1.0), law=other_law))):
        (tmp_path / str(k)).mkdir()
        assert not other.check(tmp_path / "two_steps.npz", tmp_path / str(k)).accepted


def test_what_is_free_in_the_law_may_be_anything(tmp_path: Path) -> None:
    free_law = affine_law(np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[-1.0], [1.0]]), np.array([[1.0], [0.0]]),
                          offset=np.zeros(2))
    chain = proportional(1.0)
    assert question(chain, 0.3, free_law, free=[[-0.1, 0.0]]).prove(tmp_path / "some").status is Status.PROVED
    assert question(chain, 0.05, free_law, free=[[-0.1, 0.0]]).prove(tmp_path / "more").status is Status.REFUTED


def test_the_layers_before_the_logarithms_are_taken_off() -> None:
    chain = proportional(0.5)
    x = np.random.default_rng(0).normal(size=(10, 2))
    hidden = np.maximum(x @ chain.weights[0].T + chain.biases[0], 0)
    np.testing.assert_allclose(chain_values(behind(chain, 1), hidden), chain_values(chain, x), atol=1e-5)
    with pytest.raises(InputError, match="layers must be less than the policy's 4, got 4"):
        behind(chain, 4)


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(InputError, match="law must take 3 values"):
        question(proportional(1.0), law=affine_law(np.eye(2), offset=np.zeros(2)))
    with pytest.raises(InputError, match="margin > 0"):
        question(proportional(1.0), margin=0.0)
