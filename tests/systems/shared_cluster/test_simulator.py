"""The cluster against single requests, and what must hold of it whoever acts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.simulation.rollout import acting_of
from systems.shared_cluster.functions import FUNCTIONS, SCENARIOS, Clusters, known_functions
from systems.shared_cluster.interface import ALPHA, LEAST_CORES, SIGNALS
from systems.shared_cluster.rules import RULES, UNLIMITED
from systems.shared_cluster.simulator import COLD_START_S, SharedCluster, State

ENVIRONMENT = SharedCluster(5)
NAMES = [signal.name for signal in SIGNALS]


def plain(rate_rps: list[float], work_s: float, memory: float, capacity: float, bandwidth: float,
          steps: int = 4) -> Clusters:
    """One cluster of functions that are alike but for their load, which stays, without noise or waits."""
    count = len(rate_rps)
    drawn = SharedCluster(count).draw("train", 1, steps, 0, "steady")
    known = {"work_s": work_s, "memory_share": memory, "waits_s": 0.0, "arrival_cv2": 1.0, "service_cv2": 1.0}
    full = {name: torch.full_like(getattr(drawn.known, name), value) for name, value in known.items()}
    return replace(drawn, known=replace(drawn.known, **full), noise=torch.zeros_like(drawn.noise),
                   rate_rps=torch.tensor(rate_rps).expand_as(drawn.rate_rps), capacity=torch.tensor([capacity]),
                   bandwidth=torch.tensor([bandwidth]))


def set_to(environment: SharedCluster, state: State, cores: list[float], times: int = 1) -> State:
    for _ in range(times):
        state, _ = environment.step(state, torch.tensor(cores)[:, None])
    return state


def requests_p99(rate: float, work_s: float, servers: int, count: int = 400_000) -> float:
    """Of single requests, one after the other, on servers that each take one at a time; s."""
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.exponential(1.0 / rate, count))
    sigma = np.sqrt(np.log(2.0))  # of log-normal service with a squared coefficient of variation of 1
    works = work_s * np.exp(sigma * random.standard_normal(count) - 0.5 * sigma**2)
    free, done = np.zeros(servers), np.empty(count)
    for number in range(count):
        first = int(free.argmin())
        free[first] = max(free[first], arrivals[number]) + works[number]
        done[number] = free[first] - arrivals[number]
    return float(np.quantile(done, 0.99))


@pytest.mark.parametrize(("rate", "cores"), [(20.0, 4), (30.0, 4), (55.0, 8)])
def test_a_function_alone_has_the_latency_of_its_requests(rate: float, cores: int) -> None:
    """p99 within a fifth: a finite interval never fills up as a queue that goes on for ever does."""
    alone = SharedCluster(1)
    state = set_to(alone, alone.reset(plain([rate], 0.1, 0.0, float(cores), 1e3)), [float(cores)], 3)
    assert 1e-3 * float(state.seen["latency_ms"]) == pytest.approx(requests_p99(rate, 0.1, cores), rel=0.2)


def test_less_than_a_core_stretches_a_request() -> None:
    alone = SharedCluster(1)
    quarter, half = (set_to(alone, alone.reset(plain([0.01], 0.1, 0.0, 4.0, 1e3)), [cores], 4) for cores in (0.25, 0.5))
    assert float(quarter.seen["latency_ms"] / half.seen["latency_ms"]) == pytest.approx(2.0, rel=0.02)


def test_memory_beyond_the_bandwidth_stretches_its_part_of_all_in_the_next_interval() -> None:
    """Two functions of 2 busy cores, half of it memory: 2 cores move where 1 may, so these halves are stretched."""
    pair = SharedCluster(2)
    state = set_to(pair, pair.reset(plain([20.0, 20.0], 0.1, 0.5, 64.0, 1.0)), [16.0, 16.0])
    assert state.stretch.tolist() == pytest.approx([3.0])  # after reset's interval 2, of 3 busy ones each 3
    assert state.seen["demand_cores"].tolist() == pytest.approx([3.0, 3.0])
    free = set_to(pair, pair.reset(plain([20.0, 20.0], 0.1, 0.5, 64.0, 2.0)), [16.0, 16.0])
    assert free.stretch.tolist() == pytest.approx([1.0])


def test_what_grew_serves_after_a_cold_start() -> None:
    alone = SharedCluster(1)
    first = set_to(alone, alone.reset(plain([1e3], 0.1, 0.0, 2.0, 1e3)), [2.0])
    grown = set_to(alone, first, [3.0])
    used = float(grown.seen["usage"] * grown.seen["cores"])
    assert used == pytest.approx(2.0, rel=1e-5), "of a cluster of two cores nobody has three"
    wide = set_to(alone, alone.reset(plain([1e3], 0.1, 0.0, 64.0, 1e3)), [16.0])
    assert float(wide.seen["cores"]) == 32.0, "half of it a step"
    shrunk = set_to(alone, wide, [16.0], 1)
    grown = set_to(alone, shrunk, [24.0])
    assert float(grown.seen["usage"] * 24.0) == pytest.approx(16.0 + 8.0 * (1.0 - COLD_START_S / 10.0))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("rule", list(RULES))
def test_whoever_acts_nobody_uses_more_than_there_is(rule: str, scenario: str) -> None:
    episodes = ENVIRONMENT.draw("held_out", 7, 30, 3, scenario)
    act, state = acting_of(ENVIRONMENT, RULES[rule].make({})), ENVIRONMENT.reset(episodes)
    for step in range(30):
        seen = ENVIRONMENT.observe(state)
        assert bool(torch.isfinite(seen).all())
        state, outcome = ENVIRONMENT.step(state, act(seen, 10.0 * step))
        used = (state.seen["usage"] * state.seen["cores"]).reshape(7, 5).sum(dim=1)
        assert bool((used <= episodes.capacity * 1.0001).all()) and bool((state.seen["usage"] <= 1.0001).all())
        assert bool((outcome.violated * 5 == (outcome.violated * 5).round()).all()), "a share of five functions"
        allotted = state.seen["allotment_cores"].reshape(7, 5).sum(dim=1)
        torch.testing.assert_close(allotted, episodes.capacity, rtol=1e-4, atol=1e-4)
        if rule != UNLIMITED:
            limits = state.seen["cores"].reshape(7, 5).sum(dim=1)
            assert bool((limits <= episodes.capacity * 1.001 + 5 * LEAST_CORES).all())


def test_what_one_is_told_of_the_others_leaves_itself_out() -> None:
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 3, 9, 1))
    usage = state.seen["usage"].reshape(3, 5).numpy()
    for number in range(5):
        others = np.delete(usage, number, axis=1)
        told = {name: state.seen[name].reshape(3, 5)[:, number].numpy() for name in ("others_usage",
                                                                                     "others_usage_spread")}
        np.testing.assert_allclose(told["others_usage"], others.mean(axis=1), rtol=1e-5)
        np.testing.assert_allclose(told["others_usage_spread"], others.std(axis=1), atol=1e-3)
    before = state
    state, _ = ENVIRONMENT.step(state, before.seen["cores"][:, None] * torch.tensor([1.5, 1, 1, 1, 0.8] * 3)[:, None])
    change = ((state.seen["cores"] - before.seen["cores"]) / 1.0).reshape(3, 5)
    told_change = state.seen["cluster_change"].reshape(3, 5) * state.clusters.capacity[:, None]
    torch.testing.assert_close(told_change, change.sum(dim=1, keepdim=True) - change, rtol=1e-4, atol=1e-5)


def test_the_reward_is_the_papers_mean_over_all() -> None:
    episodes = ENVIRONMENT.draw("train", 2, 9, 4)
    state = ENVIRONMENT.reset(episodes)
    up, down = state.seen["cores"] * 1.3, state.seen["cores"] * 0.9
    state, _ = ENVIRONMENT.step(state, up[:, None])
    state, outcome = ENVIRONMENT.step(state, down[:, None])
    kept = (state.seen["most_latency_ms"] / state.seen["latency_ms"]).clamp(max=1.0)
    expected = (ALPHA * kept + (1 - ALPHA) * state.seen["usage"]).reshape(2, 5).mean(dim=1) - 1.0
    torch.testing.assert_close(outcome.reward, expected)  # each turned round, which is undesired
    torch.testing.assert_close(outcome.measures["undesired"], torch.ones(2))
    torch.testing.assert_close(outcome.cost, state.seen["cores"].reshape(2, 5).sum(dim=1) / episodes.capacity)


def test_functions_come_and_go_and_none_of_training_is_held_out() -> None:
    calm, lively = (ENVIRONMENT.draw("train", 20, 60, 1, name).function for name in ("steady", "churn"))
    assert bool((calm == calm[0]).all())
    assert 0.5 < float((lively[1:] != lively[:-1]).float().mean()) / 0.02 < 1.5
    train, held_out = known_functions("train"), known_functions("held_out")
    assert (len(train.work_s), len(held_out.work_s)) == (FUNCTIONS["train"], FUNCTIONS["held_out"])
    assert not set(train.work_s.tolist()) & set(held_out.work_s.tolist())


def test_a_function_that_comes_brings_no_queue_and_no_memory() -> None:
    episodes = plain([50.0, 10.0], 0.1, 0.0, 4.0, 1e3)
    pair = SharedCluster(2)
    number = episodes.function.clone()
    number[3:, 0] = (number[3:, 0] + 1) % FUNCTIONS["train"]
    episodes = replace(episodes, function=number)
    state = set_to(pair, pair.reset(episodes), [2.0, 2.0], 2)
    assert float(state.backlog[0]) > 100
    state = set_to(pair, replace_rate(state, 3, 0, 5.0), [2.0, 2.0])
    assert float(state.backlog[0]) == 0 and float(state.seen["mean_demand_cores"][0]) == pytest.approx(0.5)


def replace_rate(state: State, step: int, place: int, rate: float) -> State:
    rates: Tensor = state.clusters.rate_rps.clone()
    rates[step:, place] = rate
    return state._replace(clusters=replace(state.clusters, rate_rps=rates))


def test_equal_draws_are_equal_and_parts_of_them_too() -> None:
    one, other = (ENVIRONMENT.draw("train", 4, 12, 5) for _ in range(2))
    assert torch.equal(one.rate_rps, other.rate_rps) and torch.equal(one.function, other.function)
    part = one.take(torch.tensor([2, 0]))
    whole, few = ENVIRONMENT.reset(one), ENVIRONMENT.reset(part)
    rows = [*range(10, 15), *range(5)]
    torch.testing.assert_close(ENVIRONMENT.observe(few), ENVIRONMENT.observe(whole)[rows])
    with pytest.raises(InputError, match="split and scenario"):
        ENVIRONMENT.draw("test", 1, 1, 0)


def test_more_cores_cost_more_and_violate_less_and_the_gradient_says_so() -> None:
    episodes = ENVIRONMENT.draw("train", 6, 12, 2, "scarce")
    found = []
    for factor in (0.7, 1.0):
        state = ENVIRONMENT.reset(episodes)
        targets = (factor * state.seen["cores"])[:, None].requires_grad_()
        _, outcome = ENVIRONMENT.step(state, targets)
        cost, violation = (torch.autograd.grad(one.sum(), targets, retain_graph=True)[0]
                           for one in (outcome.cost, outcome.violation))
        assert bool((cost > 0).all()) and bool((violation <= 1e-6).all()) and violation.sum().item() < 0
        found.append((outcome.cost.mean().item(), outcome.violation.mean().item()))
    assert found[0][0] < found[1][0] and found[0][1] > found[1][1]


def test_a_thousand_agents_are_one_operation() -> None:
    many = SharedCluster(1000)
    episodes = many.draw("held_out", 2, 5, 0)
    state = many.reset(episodes)
    state, outcome = many.step(state, state.seen["cores"][:, None])
    assert outcome.cost.tolist() == pytest.approx([1.0, 1.0], rel=1e-4)
    assert many.observe(state).shape == (2000, len(NAMES))
