"""Amounts in sentences that people read: rounded up, never down, with their unit."""

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

DIGITS = 3
# An amount counts as round where it is so up to this share of it: 1e-4 is no number of float64.
SAME = Fraction(1, 10**9)


def amount(value: Fraction | float, unit: str = "") -> str:
    """At least `value`, by less than a unit of its third digit, without an exponent where that is readable.

    amount(Fraction(1, 3), "ms") == "0.334 ms"; a value above a rounder one by less than 1e-9 of it is that one.
    """
    exact = Fraction(value) * (1 - SAME)
    context = Context(prec=DIGITS, rounding=ROUND_CEILING, Emin=-9_999, Emax=9_999)
    return " ".join(filter(None, (plain(context.divide(Decimal(exact.numerator), Decimal(exact.denominator))), unit)))


def plain(value: Decimal | float) -> str:
    """The number itself, with all digits that it needs, without an exponent where that is readable."""
    number = (value if isinstance(value, Decimal) else Decimal(repr(float(value)))).normalize()
    return format(number, "f" if not number or -8 < number.adjusted() < 8 else "g")
