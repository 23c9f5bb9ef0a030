"""Quantiles of a queue against single requests, one after the other; cores that many share, against a hand's count."""

import numpy as np
import pytest
import torch

from models.control.simulation.queueing import QUOTA_PERIOD_S, latency_quantiles, latency_within_quota, p99_latency
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


def within_quota(rate: float, limit: float, service_s: float, count: int = 60_000) -> tuple[float, float]:
    """Median and 99th percentile, s, of one thread at full speed that stops where the quota of a period has run out."""
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.exponential(1.0 / rate, count))
    works = service_s * np.exp(np.sqrt(np.log(1.5)) * random.standard_normal(count) - 0.5 * np.log(1.5))
    now, period, quota, took = 0.0, -1, 0.0, np.empty(count)
    for number in range(count):
        now, left = max(now, arrivals[number]), works[number]
        while left > 0.0:
            if (current := int(now / QUOTA_PERIOD_S + 1e-9)) != period:
                period, quota = current, limit * QUOTA_PERIOD_S
            runs = min(left, quota, (period + 1) * QUOTA_PERIOD_S - now)
            now, quota, left = now + runs, quota - runs, left - runs
            if left > 0.0:
                now = (period + 1) * QUOTA_PERIOD_S
        took[number] = now - arrivals[number]
    median, p99 = np.quantile(took, [0.5, 0.99])
    return float(median), float(p99)


@pytest.mark.parametrize(("busy", "limit", "service_s"), [
    (0.3, 0.125, 0.002), (0.7, 0.125, 0.002), (0.3, 0.25, 0.006), (0.7, 0.5, 0.002), (0.5, 0.5, 0.006),
    (0.5, 0.9, 0.006), (0.7, 0.25, 0.0005), (0.1, 0.5, 0.002)])
def test_a_quota_gives_a_burst_a_start(busy: float, limit: float, service_s: float) -> None:
    """Within a sixth of a period and a fifth of it, where a core as slow as the limit is up to half a period off."""
    rate = busy * limit / service_s
    arguments = [torch.tensor([value]) for value in (rate, limit, service_s, 1.0, 0.5, 0.0)]
    median, p99 = latency_within_quota(*arguments, step_s=1e5)
    true_median, true_p99 = within_quota(rate, limit, service_s)
    assert float(p99) == pytest.approx(true_p99, rel=0.2, abs=QUOTA_PERIOD_S / 6)
    assert float(median) == pytest.approx(true_median, rel=0.2, abs=QUOTA_PERIOD_S / 25)


def test_who_has_a_whole_core_waits_for_it_alone_while_nothing_is_left_over() -> None:
    arguments = [torch.tensor([value]).expand(4) for value in (40.0, 1.0, 2e-2, 1.0, 0.5, 0.0)]
    arguments[1] = torch.tensor([1.0, 2.0, 4.0, 16.0])
    for one, other in zip(latency_within_quota(*arguments, step_s=1.0), latency_quantiles(*arguments, step_s=1.0),
                          strict=True):
        assert torch.equal(one, other)


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
