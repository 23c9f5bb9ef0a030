"""Time that passes inside of a request: both sides of a lease count so that never two have it."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.api import ApiError
from serving.actuators.deployment.lease import Lease

DURATION_S = 10
SLOW_S = 4.0  # of a request, before and again after the server handles it


class Time:
    """One clock for all: how far apart two processes' clocks are is no part of what is tested here."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class SlowApi:
    """One object on a server; `slow` names the requests that take long, before and after they are handled."""

    namespace = "default"

    def __init__(self, objects: dict[str, Any], clock: Time) -> None:
        self.objects, self.clock = objects, clock
        self.slow: tuple[str, ...] = ()
        self.between: Callable[[], object] = lambda: None  # what others do before it is handled

    def call(self, verb: str, resource: Any, name: str = "", body: Any = None) -> Any:
        waits = SLOW_S if verb in self.slow else 0.0
        self.clock.now += waits
        if waits:
            self.between()
        if verb == "get":
            if "lease" not in self.objects:
                raise ApiError("gone", "no lease")
            found = deepcopy(self.objects["lease"])
        else:
            self.objects["lease"], found = deepcopy(body), None
        self.clock.now += waits
        return found


def leases(count: int) -> tuple[Time, list[tuple[Lease, SlowApi]]]:
    clock, objects = Time(), dict[str, Any]()
    apis = [SlowApi(objects, clock) for _ in range(count)]
    return clock, [(Lease(api, "assay-web", DURATION_S, clock), api) for api in apis]  # type: ignore[arg-type]


@pytest.mark.parametrize("slow", [("create",), ("get",), ("get", "create")])
def test_what_is_taken_is_valid_from_before_the_request_on(slow: tuple[str, ...]) -> None:
    clock, [(lease, api)] = leases(1)
    api.slow, asked = slow, clock.now
    assert lease.acquire("a") == ""
    clock.now = asked + DURATION_S - 0.1
    if len(slow) == 1:
        lease.require()
    clock.now = asked + DURATION_S
    with pytest.raises(ActuatorError, match="ran out"):
        lease.require()


@pytest.mark.parametrize("renew", [lambda lease: lease.acquire("a"), lambda lease: lease.annotate("key", "value")])
@pytest.mark.parametrize("slow", ["get", "update"])
def test_a_renewal_is_valid_from_before_the_request_on(slow: str, renew: Callable[[Lease], object]) -> None:
    clock, [(lease, api)] = leases(1)
    lease.acquire("a")
    clock.now += 5.0
    api.slow, asked = (slow,), clock.now
    renew(lease)
    clock.now = asked + DURATION_S - 0.1
    lease.require()
    clock.now = asked + DURATION_S
    with pytest.raises(ActuatorError, match="ran out"):
        lease.require()


def test_a_watcher_counts_from_when_it_had_the_answer() -> None:
    """The holder renews while the watcher's look is under way: what the watcher sees is younger than its question."""
    clock, [(held, _), (watching, api)] = leases(2)
    held.acquire("a")
    clock.now += 5.0
    api.slow, api.between = ("get",), lambda: held.acquire("a")
    assert watching.acquire("b") == "a"
    api.slow = ()
    until = 100.0 + 5.0 + SLOW_S + DURATION_S  # the holder's, of its renewal
    clock.now = until - 0.1
    held.require()
    assert watching.acquire("b") == "a", "both would have it"
    clock.now = until + SLOW_S
    assert watching.acquire("b") == ""
    with pytest.raises(ActuatorError, match="ran out"):
        held.require()
