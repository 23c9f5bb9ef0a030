"""Amounts in sentences that people read: rounded up, never down, with their unit; and the sentence of what is open."""

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

DIGITS = 3
# An amount counts as round where float64 may not tell it from that: 1e-4 is no number of float64, a sum is off by more.
SAME = Fraction(1, 2**50)


def amount(value: Fraction | float, unit: str = "") -> str:
    """At least `value`, by less than a unit of its third digit, without an exponent where that is readable.

    amount(Fraction(1, 3), "ms") == "0.334 ms"; a value above a rounder one by less than 1e-15 of it is that one.
    """
    exact = Fraction(value) * (1 - SAME)
    context = Context(prec=DIGITS, rounding=ROUND_CEILING, Emin=-9_999, Emax=9_999)
    return " ".join(filter(None, (plain(context.divide(Decimal(exact.numerator), Decimal(exact.denominator))), unit)))


def asked(statement: str) -> str:
    """The sentence of a proof, as it is said of what is not proved."""
    return statement.replace("It is proved for the", "It is asked of the")


def plain(value: Decimal | float) -> str:
    """The number itself, with all digits that it needs, without an exponent where that is readable."""
    number = (value if isinstance(value, Decimal) else Decimal(repr(float(value)))).normalize()
    size = number.adjusted()
    readable = -8 < size < 8 or (8 <= size < 17 and size - len(number.as_tuple().digits) < 3)  # few zeros at its end
    return format(number, "f" if not number or readable else "g")
