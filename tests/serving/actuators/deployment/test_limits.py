"""Quantities: held against a plain calculation, and against each other."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.limits import amount, exact_quantity, limit_quantity, request_quantity, same
from tests.serving.actuators.kubernetes_server import number

BYTES = {"cpu": 1, "memory": 2**20}


@pytest.mark.parametrize(("quantity", "resource", "expected"), [
    ("2", "cpu", 2.0), ("1500m", "cpu", 1.5), ("0.3", "cpu", 0.3), ("100000000n", "cpu", 0.1),
    ("256Mi", "memory", 256.0), ("1Gi", "memory", 1024.0), ("134217728", "memory", 128.0),
    ("1G", "memory", 1e9 / 2**20), ("128974848000m", "memory", 123.0),
])
def test_quantities_are_read_in_the_units_of_the_controls(quantity: str, resource: str, expected: float) -> None:
    assert amount(quantity, resource) == pytest.approx(expected, rel=1e-12)


def test_no_quantity_is_no_amount_and_nonsense_is_an_error() -> None:
    assert amount(None, "cpu") is None
    with pytest.raises(ActuatorError, match="expected a quantity of cpu"):
        amount("lots", "cpu")


@given(st.sampled_from(["cpu", "memory"]), st.floats(1e-6, 1e5))
def test_a_limit_is_the_nearest_step_and_reads_back_as_itself(resource: str, value: float) -> None:
    quantity = limit_quantity(value, resource)
    read = amount(quantity, resource)
    step = {"cpu": 0.001, "memory": 1.0}[resource]
    assert read is not None and read >= step * 0.999 and abs(read - max(value, step)) <= step / 2 * 1.001
    assert limit_quantity(read, resource) == quantity and same(read, amount(quantity, resource))


@given(st.sampled_from([("cpu", "m"), ("memory", "Mi"), ("memory", "M"), ("memory", "Ki"), ("memory", "")]),
       st.integers(1, 10**6))
def test_what_kubernetes_can_hold_is_written_exactly(unit: tuple[str, str], count: int) -> None:
    resource, suffix = unit
    value = amount(f"{count}{suffix}", resource)
    assert value is not None and same(amount(exact_quantity(value, resource), resource), value)


@given(st.sampled_from(["cpu", "memory"]), st.integers(2, 10**5), st.data())
def test_a_request_is_below_its_limit_where_it_was_and_never_above_its_share(
    resource: str, old_limit: int, data: st.DataObject
) -> None:
    old_request = data.draw(st.integers(1, old_limit - 1))
    suffix = {"cpu": "m", "memory": "Mi"}[resource]
    found = {"limits": {resource: f"{old_limit}{suffix}"}, "requests": {resource: f"{old_request}{suffix}"}}
    limit = f"{data.draw(st.integers(2, 10**6))}{suffix}"
    request = request_quantity(limit, found, resource)
    assert request is not None and number(request) < number(limit)
    share = Decimal(number(request)) * old_limit / Decimal(number(limit))
    smallest = number(request) <= number({"cpu": "1m", "memory": "1Ki"}[resource])
    assert smallest or share <= Decimal(old_request) * Decimal("1.000000001")


@pytest.mark.parametrize(("found", "expected"), [
    ({"limits": {"cpu": "1"}, "requests": {"cpu": "1000m"}}, "3"),
    ({"limits": {"cpu": "1"}, "requests": {"cpu": "0"}}, "0m"),
    ({"limits": {"cpu": "1"}, "requests": {}}, None),
    ({"limits": {}, "requests": {"cpu": "1"}}, None),
])
def test_equal_stays_equal_none_stays_none_and_nothing_stays_nothing(found: dict, expected: str | None) -> None:
    assert request_quantity("3", found, "cpu") == expected
