import math

import pytest

from models.reporting.formatting import GAP, count, duration, number, percent, points


@pytest.mark.parametrize(("value", "shown"), [
    (None, "missing"), (float("nan"), "missing"), (math.inf, "infinite"), (0, "0"), (1.0, "1"), (12345, "12,345"),
    (0.00274, "0.00274"), (3.14159, "3.142"), (4321.7, "4,322"), (3.1e-7, "3.1e-07"), (2.5e12, "2.5e+12"),
    ("PROVED", "PROVED"), ("", "missing"), (True, "yes"), ([], "missing"), (10**400, "missing"),
])
def test_a_number_has_four_digits_and_a_hole_says_so(value, shown):
    assert number(value) == shown


def test_a_unit_stands_on_the_line_of_its_number():
    assert number(21.4, "ms") == f"21.4{GAP}ms"
    assert number(None, "ms") == "missing"


@pytest.mark.parametrize(("share", "shown"), [
    (1.0, "100"), (0.0, "0"), (0.86421, "86.4"), (0.9996, "99.96"), (0.99999, "99.999"), (0.0004, "0.04"),
    (0.9999999, "> 99.999"), (1e-7, "< 0.001"),
])
def test_a_share_that_is_not_all_is_not_rounded_to_all(share, shown):
    assert percent(share) == f"{shown}{GAP}%"


def test_what_is_no_share_is_shown_as_it_is():
    assert (percent(41.0), percent(-0.2), points(41.0, 0.5)) == ("41", "-0.2", "missing")


def test_shares_that_are_not_there_are_missing():
    assert percent(math.nan) == percent(None) == points(0.5, None) == points(math.nan, 0.5) == "missing"
    assert points(0.8642, 0.8571) == f"+0.7{GAP}points"


@pytest.mark.parametrize(("seconds", "shown"), [
    (0.0421, "0.0421 s"), (12.34, "12.3 s"), (412.7, "6 min 53 s"), (9000, "2 h 30 min"), (None, "missing"),
])
def test_a_duration_is_in_the_units_that_people_use(seconds, shown):
    assert duration(seconds).replace(GAP, " ") == shown


def test_a_count_agrees_with_its_noun():
    assert (count(1, "row"), count(2000, "row")) == ("1 row", "2,000 rows")
    assert count(2, "witness", "witnesses") == "2 witnesses"
