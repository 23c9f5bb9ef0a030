"""A neuron that is off by less than its own rounding: executed, it may be on, and what follows makes much of it."""

from fractions import Fraction

import numpy as np
import pytest

from models.verification.checker.rounding import Arithmetic, execution_error

FLOAT32, MUCH = Arithmetic.of(np.dtype(np.float32)), 1e6


def neuron(seed: int, side: float) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Weights and a point of float32 numbers, a bias, and what float32 makes of their sum, whose exact value is next
    to zero on that side."""
    rng = np.random.default_rng(seed)
    weights, point = (rng.normal(size=24).astype(np.float32) for _ in range(2))
    whole = sum((Fraction(float(w)) * Fraction(float(x)) for w, x in zip(weights, point, strict=True)), Fraction(0))
    bias = -np.float32(float(whole))
    toward = np.float32(side * np.inf)
    while (whole + Fraction(float(bias))) * int(side) <= 0:
        bias = np.nextafter(bias, toward)
    executed = np.float32(0.0)
    for w, x in zip(weights, point, strict=True):
        executed += np.float32(w * x)
    return weights, point, float(bias), float(executed + bias)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_the_error_of_a_neuron_within_its_own_rounding_of_zero_is_counted(side: float) -> None:
    turned = 0
    for seed in range(60):
        weights, point, bias, executed = neuron(seed, side)
        box = point.astype(np.float64)
        error = execution_error([weights[None].astype(np.float64), np.array([[MUCH]])],
                                [np.array([bias]), np.zeros(1)], box, box, (True,), FLOAT32)
        exact = max(0.0, float(sum((Fraction(float(w)) * Fraction(float(x)) for w, x in
                                    zip(weights, point, strict=True)), Fraction(bias))))
        off = MUCH * abs(max(0.0, executed) - exact)
        assert off <= error[0]
        turned += (max(0.0, executed) > 0) != (exact > 0)
    assert turned > 10, "the runtime must switch it in some, or nothing is tried"


def test_a_neuron_that_is_off_beyond_its_rounding_adds_nothing() -> None:
    ones, error = np.ones(4), 1e-6
    found = execution_error([np.ones((1, 4)), np.array([[MUCH]])], [np.array([-4.0 - 1.0]), np.zeros(1)], ones, ones,
                            (True,), FLOAT32)
    assert found[0] < error
