"""The exponent of a cost, on costs whose exponent is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.power_law import fit_power_law

# Double precision through a logarithm and back, over at most ten orders of magnitude.
TOLERANCE = 1e-9


@given(st.floats(0.001, 1000), st.floats(-3, 3))
def test_the_exponent_of_an_exact_power_law_is_found(factor: float, exponent: float) -> None:
    sizes = [5, 20, 80]
    law = fit_power_law(sizes, [factor * size**exponent for size in sizes])
    assert law.exponent == pytest.approx(exponent, abs=TOLERANCE)
    assert law.factor == pytest.approx(factor, rel=1e-7)
    assert law.residual == pytest.approx(0, abs=TOLERANCE)
    assert law.cost(40) == pytest.approx(factor * 40**exponent, rel=1e-7)


def test_a_fixed_cost_lowers_the_exponent_of_a_linear_one() -> None:
    linear = fit_power_law([5, 20, 80], [5, 20, 80]).exponent
    assert fit_power_law([5, 20, 80], [35, 50, 110]).exponent < linear == pytest.approx(1)


def test_least_squares_on_the_logarithms() -> None:
    # by hand: x = 0, 1, 2 and y = 0, 2, 1 in units of log 10, slope 1/2, offset 1/2
    law = fit_power_law([1, 10, 100], [1, 100, 10])
    assert law.exponent == pytest.approx(0.5)
    assert law.factor == pytest.approx(10**0.5)


@pytest.mark.parametrize(("sizes", "costs"), [([5], [1]), ([5, 5], [1, 2]), ([5, 20], [0, 1]), ([5, 20], [1, -1])])
def test_what_has_no_exponent_is_refused(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="must"):
        fit_power_law(sizes, costs)
