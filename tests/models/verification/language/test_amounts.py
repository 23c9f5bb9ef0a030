"""Amounts that people read: never less than the number, round where it is, without exponents where that is readable."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.verification.language.amounts import SAME, amount, plain


@pytest.mark.parametrize(("value", "unit", "text"), [
    (1e-4, "ms", "0.0001 ms"), (Fraction(1, 3), "", "0.334"), (0.00005, "ms", "0.00005 ms"), (0.0, "s", "0 s"),
    (3 * 1e-4, "", "0.0003"), (0.1 + 0.2, "", "0.3"), (123456.0, "B", "124000 B"), (1.001, "", "1.01"),
    (9.995, "", "10"), (2.5e9, "", "2.5e+9"), (4.99e-12, "s", "4.99e-12 s"), (5e-324, "", "4.95e-324"),
    (1.7e308, "", "1.7e+308"), (Fraction(10) ** 400, "", "1e+400")])
def test_an_amount_is_rounded_up_to_three_digits(value: Fraction | float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_an_amount_is_never_less_than_what_it_stands_for_nor_more_than_a_hundredth_above(value: float) -> None:
    stated = Fraction(Decimal(amount(value)))
    assert Fraction(value) * (1 - SAME) <= stated <= Fraction(value) * Fraction(102, 100)


@pytest.mark.parametrize(("value", "text"), [
    (1e-4, "0.0001"), (0.000123456789, "0.000123456789"), (1e-9, "1e-9"), (30.0, "30"), (1e22, "1e+22"),
    (2.0**44, "17592186044416"), (17592186044431.5, "17592186044431.5"), (1.5e9, "1.5e+9"), (0.0, "0")])
def test_a_plain_number_has_all_its_digits(value: float, text: str) -> None:
    assert plain(value) == text and float(text) == value
