"""Quantiles of a queue against single requests, one after the other; cores that many share, against a hand's count."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from models.control.simulation.queueing import (
    QUOTA_PERIOD_S,
    START_S,
    latency_quantiles,
    latency_within_quota,
    p99_latency,
)
from models.control.simulation.shared_cores import worked

P99_TOLERANCE = 0.15  # Sakasegawa's mean, an exponential tail, and the luck of the requests
MEDIAN_SHARE = 0.5  # while fewer than half of the requests wait, the median leaves their waits out


def requests(rho: float, cores: int, count: int = 60_000) -> tuple[float, float]:
    """Median and 99th percentile of times in units of the mean service, which is log-normal of a variation of 1."""
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.exponential(1.0 / (rho * cores), count))
    works = np.exp(np.sqrt(np.log(2.0)) * random.standard_normal(count) - 0.5 * np.log(2.0))
    free, took = np.zeros(cores), np.empty(count)
    for number in range(count):
        first = int(free.argmin())
        free[first] = max(free[first], arrivals[number]) + works[number]
        took[number] = free[first] - arrivals[number]
    median, p99 = np.quantile(took, [0.5, 0.99])
    return float(median), float(p99)


@pytest.mark.parametrize(("rho", "cores"), [(0.2, 1), (0.5, 1), (0.8, 1), (0.5, 4), (0.8, 4)])
def test_quantiles_are_those_of_single_requests(rho: float, cores: int) -> None:
    arguments = [torch.tensor([value]) for value in (rho * cores, float(cores), 1.0, 1.0, 1.0, 0.0)]
    median, p99 = latency_quantiles(*arguments, step_s=1e5)
    true_median, true_p99 = requests(rho, cores)
    assert float(p99) == pytest.approx(true_p99, rel=P99_TOLERANCE)
    assert MEDIAN_SHARE * true_median < float(median) < 1.02 * true_median
    assert torch.equal(p99, p99_latency(*arguments, step_s=1e5))


def within_quota(rate: float, limit: float, service_s: float, stolen: float, count: int) -> tuple[float, float]:
    """Median and 99th percentile, s, of one thread at full speed that stops where the quota of a period has run out;
    something beside it uses `stolen` cores of the quota while there is any."""
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.exponential(1.0 / rate, count))
    works = service_s * np.exp(np.sqrt(np.log(1.5)) * random.standard_normal(count) - 0.5 * np.log(1.5))
    now, period, quota, took = 0.0, 0, limit * QUOTA_PERIOD_S, np.empty(count)
    for number in range(count):
        idle = max(arrivals[number] - now, 0.0)
        now, quota, left = now + idle, quota - stolen * idle, works[number]
        while left > 0.0:
            if (current := int(now / QUOTA_PERIOD_S + 1e-9)) != period:
                period = current
                quota = limit * QUOTA_PERIOD_S - stolen * max(now - period * QUOTA_PERIOD_S, 0.0)
            runs = min(left, max(quota, 0.0) / (1.0 + stolen), (period + 1) * QUOTA_PERIOD_S - now)
            now, quota, left = now + runs, quota - (1.0 + stolen) * runs, left - runs
            if left > 0.0:
                now = (period + 1) * QUOTA_PERIOD_S
        took[number] = now - arrivals[number]
    median, p99 = np.quantile(took, [0.5, 0.99])
    return float(median), float(p99)


QUOTAS = [  # busy share of the limit, limit, seconds of a request, what else would use the quota
    (0.3, 0.125, 0.002, 0.0), (0.7, 0.125, 0.002, 0.0), (0.3, 0.25, 0.006, 0.0), (0.7, 0.5, 0.002, 0.0),
    (0.5, 0.5, 0.006, 0.0), (0.5, 0.9, 0.006, 0.0), (0.7, 0.25, 0.0005, 0.0), (0.1, 0.5, 0.002, 0.0),
    (0.1, 0.0625, 0.01, 0.0), (0.1, 0.125, 0.02, 0.0), (0.1, 0.25, 0.002, 0.1), (0.1, 0.25, 0.002, 1.0),
    (0.1, 0.5, 0.002, 0.2), (0.1, 0.5, 0.002, 1.0)]


@cache
def drawn(busy: float, limit: float, service_s: float, stolen: float) -> tuple[float, float]:
    return within_quota(busy * limit / service_s, limit, service_s, stolen, 60_000)


def by_law(busy: float, limit: float, service_s: float, stolen: float, backlog_s: float = 0.0) -> tuple[float, float]:
    one = torch.ones(1, dtype=torch.float64)
    median, p99 = latency_within_quota(
        busy * limit / service_s * one, (limit - min(stolen, limit / 2)) * one, limit * one, stolen * one,
        service_s * one, one, 0.5 * one, backlog_s * one, step_s=1e5)
    return float(median), float(p99)


@pytest.mark.parametrize(("busy", "limit", "service_s", "stolen"), QUOTAS)
def test_a_quota_gives_a_burst_a_start_and_stops_who_has_used_it(busy: float, limit: float, service_s: float,
                                                                 stolen: float) -> None:
    """The median within an eighth of a period, the percentile within a fifth of it or of itself: a start is the same
    for all, and at most half is stolen here."""
    median, p99 = drawn(busy, limit, service_s, stolen)
    found = by_law(busy, limit, service_s, stolen)
    assert found[0] == pytest.approx(median, rel=0.2, abs=QUOTA_PERIOD_S / 8)
    assert found[1] == pytest.approx(p99, rel=0.2, abs=QUOTA_PERIOD_S / 5)


def test_no_start_and_twice_the_start_are_further_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(start_s: float) -> float:
        monkeypatch.setattr("models.control.simulation.queueing.START_S", start_s)
        return float(np.mean([abs(np.log(by_law(*quota)[1] / drawn(*quota)[1])) for quota in QUOTAS if not quota[3]]))

    assert off(START_S) < 0.7 * min(off(0.0), off(2.0 * START_S))


@example(1.0, 0.02, 1e-4, 0.5, 0.041, 1.5)
@given(st.floats(0.01, 2.0), st.floats(0.02, 0.9), st.floats(1e-4, 0.04), st.floats(0.0, 2.0), st.floats(0.0, 1.0),
       st.floats(1.0, 4.0))
def test_a_higher_limit_never_makes_it_slower(limit: float, busy: float, service_s: float, stolen: float,
                                              backlog_s: float, more: float) -> None:
    """Of the same load, with the same work left over; where there is some, but for what `latency_within_quota` says."""
    for left, slower_s in ((0.0, 1e-6), (backlog_s, START_S / 6.0 + 1e-6)):
        low, high = (by_law(busy / times, times * limit, service_s, stolen, left / times) for times in (1.0, more))
        assert high[0] <= low[0] + slower_s and high[1] <= low[1] + slower_s


def test_a_whole_core_or_more_is_given_no_start() -> None:
    limits, one = torch.tensor([1.0, 2.0, 4.0, 16.0]), torch.ones(4)
    for left in (0.0, 0.3):
        found = latency_within_quota(20.0 * one, limits, limits, 0.0 * one, 2e-2 * one, one, 0.5 * one, left * one, 1.0)
        others = latency_quantiles(20.0 * one, limits, 2e-2 * one, one, 0.5 * one, left * one, 1.0)
        for mine, other in zip(found, others, strict=True):
            assert torch.allclose(mine, other)


def test_work_left_over_delays_the_median_too_and_never_above_the_percentile() -> None:
    random = torch.Generator().manual_seed(0)
    rate, cores, service, backlog = (torch.rand(500, generator=random) * most for most in (50.0, 8.0, 0.2, 3.0))
    one = torch.ones(500)
    without, with_it = (latency_quantiles(rate, cores + 0.1, service + 1e-3, one, one, left, 1.0)
                        for left in (0.0 * backlog, backlog))
    assert bool((with_it[0] <= with_it[1]).all()) and bool((with_it[0] >= without[0]).all())


def test_who_is_within_limits_and_the_whole_is_served_and_others_share() -> None:
    rate, work, limits = torch.tensor([[2.0, 8.0]]), torch.tensor([[0.5, 0.5]]), torch.tensor([[4.0, 2.0]])
    wide = worked(rate, torch.zeros(1, 2), work, limits, torch.tensor([[100.0]]), 10.0, 1.0)
    assert wide.served.tolist() == [[2.0, 4.0]] and wide.has.tolist() == limits.tolist()
    assert wide.left.tolist() == [[0.0, 4.0]], "of forty requests those that a second of two cores serves stay"
    narrow = worked(rate, torch.zeros(1, 2), work, limits, torch.tensor([[1.5]]), 10.0, 1.0)
    assert narrow.has[0].tolist() == pytest.approx([0.5, 1.0]), "a third and two thirds of what there is"
