"""The simulation against what is known exactly; standard errors are those of the replications."""

from math import factorial

import numpy as np
import pytest

from systems.autoscaling.benchmarks.discrete_event import DISTRIBUTIONS, Queues, simulate

REPLICATIONS = 400
STANDARD_ERRORS = 4.5


def queues(load, servers, arrival=("gamma", 1.0), service=("gamma", 1.0), backlog=0):
    """Service takes one second in the mean."""
    ones = np.ones(REPLICATIONS)
    return Queues(load * servers * ones, np.full(REPLICATIONS, servers), ones, np.full(REPLICATIONS, arrival[0]),
                  arrival[1] * ones, np.full(REPLICATIONS, service[0]), service[1] * ones,
                  np.full(REPLICATIONS, backlog))


def is_mean_of(values, expected):
    means = values.mean(axis=1)
    return abs(means.mean() - expected) < STANDARD_ERRORS * means.std() / REPLICATIONS**0.5


def erlang_c(load, servers):
    offered = load * servers
    full = offered**servers / factorial(servers) / (1 - load)
    return full / (sum(offered**count / factorial(count) for count in range(servers)) + full)


@pytest.mark.parametrize("load, servers", [(0.5, 1), (0.8, 4), (0.9, 16)])
def test_wait_and_its_probability_and_tail_are_those_of_erlang(load, servers):
    found = simulate(queues(load, servers), 2000, seed=1, skipped=1500)
    waits = erlang_c(load, servers)
    assert is_mean_of(found.wait_s, waits / (servers * (1 - load)))
    assert is_mean_of(found.wait_s > 0, waits)
    assert is_mean_of(found.wait_s > 0.5, waits * np.exp(-servers * (1 - load) * 0.5))


@pytest.mark.parametrize("service", [("gamma", 0.2), ("lognormal", 1.5), ("hyperexponential", 3.0)])
def test_wait_is_that_of_pollaczek_and_khinchine(service):
    found = simulate(queues(0.6, 1, service=service), 2000, seed=2, skipped=500)
    assert is_mean_of(found.wait_s, 0.6 * (1 + service[1]) / 2 / 0.4)


def test_batches_wait_for_each_other():
    """Geometric batches of mean m, exponential service, one server: the batch's queue, and the places before it."""
    size, load = 3.0, 0.5
    found = simulate(queues(load, 1, arrival=("batches", 2 * size - 1)), 2000, seed=3, skipped=500)
    # a batch is served in an exponential time of mean m; within it, m - 1 requests are before a request in the mean
    assert is_mean_of(found.wait_s, load * size / (1 - load) + (size - 1))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_have_mean_one_and_their_variation(name):
    cv2 = np.array([1.5, 3.0])
    drawn = DISTRIBUTIONS[name](cv2, (300_000, 2), np.random.default_rng(4))
    assert drawn.mean(axis=0) == pytest.approx([1, 1], abs=0.02)
    assert drawn.var(axis=0) == pytest.approx(cv2, rel=0.05)


def test_a_backlog_waits_before_what_arrives_and_time_outs_leave():
    found = simulate(queues(2.0, 4, service=("gamma", 1e-6), backlog=40), 60, seed=5, timeout_s=12.0)
    first = found.arrival_s[:, 0]
    # 40 requests of one second on 4 servers are done after 10 s
    assert found.wait_s[:, 0] == pytest.approx(10.0 - first, abs=0.05)
    assert found.lost[:, 0].sum() == 0 and found.lost[:, -1].mean() > 0.4
    assert found.wait_s.max() == pytest.approx(12.0) and (found.latency_s[found.lost] == 12.0).all()


def test_equal_seeds_give_equal_requests():
    one, other = (simulate(queues(0.9, 2), 50, seed) for seed in (6, 6))
    assert all((getattr(one, name) == getattr(other, name)).all() for name in vars(one))
