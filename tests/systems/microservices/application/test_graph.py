"""The application's graph: everything that is called is there, nothing calls itself, all patterns occur."""

import pytest

from systems.microservices.application.graph import (
    ENTRY,
    FRONT,
    REQUESTS,
    SERVICES,
    STORES,
    calls,
    calls_per_request,
    needs,
    waited_for,
)
from systems.microservices.application.kernels import KERNELS

WORKS = {f"{name}.{operation}": work for name, service in SERVICES.items()
         for operation, work in service.operations.items()}


def depth(target: str) -> int:
    return 1 + max((depth(called) for called in calls(WORKS[target])), default=0)


def test_whatever_is_called_is_there_and_nothing_calls_itself() -> None:
    assert {called for work in WORKS.values() for called in calls(work)} <= set(WORKS)
    assert max(depth(f"{ENTRY}.{request}") for request in REQUESTS) == 5
    assert set(SERVICES[FRONT].operations) == set(SERVICES[ENTRY].operations) == set(REQUESTS)
    assert sum(REQUESTS.values()) == pytest.approx(1.0) and len(SERVICES) >= 12


def test_every_operation_is_asked_for_by_some_request() -> None:
    assert set(calls_per_request()) == set(WORKS)


def test_all_workflow_patterns_occur() -> None:
    """Sequential, parallel and background (thesis, section 3.2.2)."""
    assert any(len(work.stages) > 1 for work in WORKS.values())
    assert any(len(stage) > 1 for work in WORKS.values() for stage in work.stages)
    assert any(work.background for work in WORKS.values())


def test_calls_are_counted_along_all_paths() -> None:
    """cart.items: a cart page asks for it itself, a checkout through the service of that name."""
    assert calls_per_request()["cart.items"] == pytest.approx(REQUESTS["cart"] + REQUESTS["checkout"])
    assert calls_per_request()["analytics.visit"] == pytest.approx(1 - REQUESTS["cart"])
    assert "analytics.visit" not in calls_per_request(background=False)
    assert needs(10.0)["payment"] == (pytest.approx(10 * REQUESTS["checkout"] * 1024), 0.0)


def test_nobody_waits_for_what_only_works_in_the_background() -> None:
    assert set(SERVICES) - set(waited_for()) == {"analytics", "notification"}


def test_what_is_not_debians_has_a_kernel() -> None:
    assert {name for name, service in SERVICES.items() if not service.kernel} == {FRONT, *STORES}
    assert {service.kernel for service in SERVICES.values() if service.kernel} == set(KERNELS)
