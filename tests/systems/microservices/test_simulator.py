"""Applications against requests drawn one by one, and what must hold of them whoever acts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.simulation.rollout import acting_of
from systems.microservices.applications import KINDS, SCENARIOS, Episodes, end_to_end, known_applications
from systems.microservices.interface import ALPHA, BEHIND_MS, LEAST_CORES, SIGNALS, SUSPECT
from systems.microservices.rules import RULES
from systems.microservices.simulator import Microservices, State
from systems.microservices.traces.critical_paths import critical_paths
from systems.microservices.traces.spans import link
from systems.microservices.traces.windows import ordinary_times, suspects

ENVIRONMENT = Microservices(6)
NAMES = [signal.name for signal in SIGNALS]


def calm(count: int = 4, steps: int = 20) -> Episodes:
    """Without anomalies and noise, at a load that stays."""
    drawn = ENVIRONMENT.draw("train", count, steps, 0, "calm")
    return replace(drawn, noise=torch.zeros_like(drawn.noise), rate_rps=drawn.rate_rps[:1].expand_as(drawn.rate_rps))


def stepped(state: State, cores: Tensor, times: int = 1) -> State:
    for _ in range(times):
        state, _ = ENVIRONMENT.step(state, cores.reshape(-1, 1))
    return state


def test_a_path_of_services_has_the_latency_and_importance_of_its_requests() -> None:
    """Three services one after the other, the second called twice, log-normal and independent of each other."""
    random, sigma = np.random.default_rng(0), np.array([0.4, 0.8, 0.6])
    median, calls = np.array([4.0, 3.0, 6.0]), (1, 2, 1)
    own = [np.exp(spread * random.standard_normal((count, 200_000))).T * middle
           for spread, middle, count in zip(sigma, median, calls, strict=True)]
    times = np.stack([one.sum(axis=1) for one in own], axis=1)
    p99 = median * np.exp(2.3263 * sigma)
    paths = torch.tensor([[[[1.0, 2.0, 1.0], [1.0, 0.0, 1.0]]]])
    whole = end_to_end(torch.tensor(median)[None].float(), torch.tensor(p99)[None].float(), paths)
    assert float(whole.p99_s) == pytest.approx(np.quantile(times.sum(axis=1), 0.99), rel=0.1)
    assert whole.path[0, 0].tolist() == [1.0, 2.0, 1.0]
    importance = whole.path[0, 0].sqrt() * torch.tensor(p99 - median) / whole.spread_s[0, 0]
    true = [np.corrcoef(times[:, service], times.sum(axis=1))[0, 1] for service in range(3)]
    np.testing.assert_allclose(importance, true, atol=0.1)
    assert float(importance.square().sum()) == pytest.approx(1.0)


def test_importance_is_what_the_localizer_says_of_the_traces_of_such_requests() -> None:
    """Algorithm 3.2 over spans: a root that calls two services one after the other."""
    random, sigma = np.random.default_rng(1), np.array([0.3, 0.9, 0.5])
    median, count = np.array([4e3, 3e3, 6e3]), 4000
    own = np.exp(sigma * random.standard_normal((count, 3))) * median
    start = np.arange(count) * 1e6
    first = start + own[:, 0] / 2
    rows = [(0, "root", -1, start, own.sum(axis=1)), (1, "one", 0, first, own[:, 1]), (2, "two", 0, first + own[:, 1],
                                                                                                own[:, 2])]
    frame = pd.concat([pd.DataFrame({
        "trace": np.arange(count), "span": span, "parent": parent, "service": name, "operation": "do",
        "start_us": begins.astype(np.int64), "duration_us": took.astype(np.int64), "background": False, "error": False})
        for span, name, parent, begins, took in rows], ignore_index=True)
    spans = link(frame)
    paths = critical_paths(spans)
    found = suspects(spans, paths, ordinary_times(spans, paths), np.zeros(count, dtype=np.int64)).set_index("service")
    spread = torch.tensor(median * (np.exp(2.3263 * sigma) - 1.0))
    for name, part in zip(("root", "one", "two"), (spread / spread.square().sum().sqrt()).tolist(), strict=True):
        assert found.loc[name, "relative_importance"] == pytest.approx(part, abs=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_anomaly_makes_its_application_slower_and_its_service_suspect(kind: str) -> None:
    episodes = calm()
    place = episodes.applications.paths[:, :, 0].sum(dim=1)[:, 1:].argmax(dim=1) + 1  # a service on a critical path
    at = torch.nn.functional.one_hot(place, 6).float()
    mean_cores = (episodes.rate_rps[0][:, None] @ episodes.applications.visits)[:, 0] * episodes.applications.work_s
    changed = {"load": {"rate_rps": 1.8 * episodes.rate_rps},
               "cpu": {"stolen_cores": episodes.stolen_cores + at * 3.0 * mean_cores},
               "memory": {"stretch": episodes.stretch + 3.0 * at},
               "wait": {"delay_s": episodes.delay_s + 0.05 * at}}[kind]
    before = ENVIRONMENT.reset(episodes)
    cores = 0.5 * before.seen["cores"]
    quiet = stepped(before, cores, 4)
    hit = stepped(ENVIRONMENT.reset(replace(episodes, **changed)), cores, 4)
    slower = hit.seen["own_latency_ms"].take_along_dim(place[:, None], 1) / quiet.seen[
        "own_latency_ms"].take_along_dim(place[:, None], 1)
    assert bool((slower > 1.0).all())
    if kind == "load":
        assert bool((hit.seen["own_latency_ms"] > quiet.seen["own_latency_ms"]).all())
    else:
        others = (1 - at) * (hit.seen["own_latency_ms"] / quiet.seen["own_latency_ms"] - 1.0)
        assert float(others.abs().max()) < 1e-4, "the other services are as they were"


def test_a_core_more_helps_whoever_memory_or_something_else_holds_up() -> None:
    episodes = calm()
    episodes = replace(episodes, stretch=episodes.stretch + 2.0)
    state = ENVIRONMENT.reset(episodes)
    few, many = (stepped(state, share * state.seen["cores"], 3) for share in (0.1, 1.0))
    assert bool((few.seen["latency_ms"] > many.seen["latency_ms"]).all())


def test_what_is_stolen_is_at_most_half_and_counts_as_used() -> None:
    episodes = calm()
    episodes = replace(episodes, stolen_cores=episodes.stolen_cores + 1e3)
    state = stepped(ENVIRONMENT.reset(episodes), ENVIRONMENT.reset(episodes).seen["cores"])
    assert float(state.seen["usage"].min()) > 0.5 and float(state.seen["usage"].max()) < 1.0001


def test_who_gets_too_little_falls_behind_and_drops_also_where_nobody_waits() -> None:
    episodes = calm(8)
    off_path = episodes.applications.paths.sum(dim=(1, 2)) == 0
    assert bool(off_path.any()), "some services work in the background alone"
    state = ENVIRONMENT.reset(episodes)
    for _ in range(12):
        cores = torch.where(off_path, LEAST_CORES, state.seen["cores"])
        state, outcome = ENVIRONMENT.step(state, cores.reshape(-1, 1))
    behind = state.seen["own_latency_ms"] > BEHIND_MS
    assert bool(behind[off_path].any()) and not bool(behind[~off_path].any())
    rows = (behind & off_path).any(dim=1)
    assert bool((outcome.violated[rows] >= 1 / 6 - 1e-6).all()) and float(outcome.measures["dropped"][rows].min()) > 0
    assert float(outcome.measures["missed"][rows].max()) == 0.0, "no request waits for it"
    assert bool((state.seen["pressing_latency_ms"] >= state.seen["most_latency_ms"])[behind].all())
    assert bool((state.seen["importance"][off_path] < SUSPECT).all())


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("rule", list(RULES))
def test_whoever_acts_nobody_asks_for_more_than_the_node(rule: str, scenario: str) -> None:
    episodes = ENVIRONMENT.draw("held_out", 7, 30, 3, scenario)
    act, state = acting_of(ENVIRONMENT, RULES[rule].make({})), ENVIRONMENT.reset(episodes)
    for step in range(30):
        seen = ENVIRONMENT.observe(state)
        assert bool(torch.isfinite(seen).all())
        state, outcome = ENVIRONMENT.step(state, act(seen, float(step)))
        limits = state.seen["cores"].sum(dim=1)
        assert bool((limits <= episodes.capacity[:, 0] * 1.001 + 6 * LEAST_CORES).all())
        allotted = state.seen["allotment_cores"].sum(dim=1)
        torch.testing.assert_close(allotted, episodes.capacity[:, 0], rtol=1e-4, atol=1e-4)
        assert bool((outcome.violated * 6 == (outcome.violated * 6).round()).all()), "a share of six services"


def test_the_reward_is_the_papers_mean_over_all() -> None:
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 9, 9, 4, "many"))
    state, outcome = ENVIRONMENT.step(state, 0.5 * state.seen["cores"].reshape(-1, 1))
    kept = (state.seen["most_latency_ms"] / state.seen["latency_ms"]).clamp(max=1.0)
    assert float(kept.min()) < 1.0
    kept = torch.where(state.seen["importance"] >= SUSPECT, kept, 1.0)
    torch.testing.assert_close(outcome.reward, (ALPHA * kept + (1 - ALPHA) * state.seen["usage"]).mean(dim=1))
    torch.testing.assert_close(outcome.cost, state.seen["cores"].sum(dim=1) / state.episodes.capacity[:, 0])


def test_a_miss_that_begins_is_counted_once() -> None:
    episodes = ENVIRONMENT.draw("train", 40, 60, 1, "many")
    state, begins, missed = ENVIRONMENT.reset(episodes), [], []
    first = state.missed[:, 0].numpy()
    for _ in range(60):
        state, outcome = ENVIRONMENT.step(state, 0.8 * state.seen["cores"].reshape(-1, 1).clamp(min=0.2))
        begins.append(outcome.measures["begins"].numpy())
        missed.append(outcome.measures["missed"].numpy())
    runs = np.diff(np.stack([first, *missed]), axis=0) > 0
    np.testing.assert_array_equal(runs.astype(float), np.stack(begins))
    assert runs.sum() > 10


def test_anomalies_come_as_often_as_the_scenario_says() -> None:
    for name, a_second in (("calm", 0.0), ("", 0.05), ("many", 0.33)):
        there = ENVIRONMENT.draw("train", 100, 400, 1, name).stretch > 1.0
        begun = (there[1:] & ~there[:-1]).sum().item() / (len(there) - 1) / 100
        assert begun == pytest.approx(a_second / len(KINDS), rel=0.15), name


def test_no_application_of_training_is_held_out_and_equal_draws_are_equal() -> None:
    train, held_out = known_applications("train", 6), known_applications("held_out", 6)
    for what in (train.service_cv2, train.own):
        assert not {*what.flatten().tolist()} & {*held_out.service_cv2.flatten().tolist(),
                                                 *held_out.own.flatten().tolist()}
    one, other = (ENVIRONMENT.draw("train", 4, 12, 5) for _ in range(2))
    assert torch.equal(one.rate_rps, other.rate_rps) and torch.equal(one.stretch, other.stretch)
    whole, few = ENVIRONMENT.reset(one), ENVIRONMENT.reset(one.take(torch.tensor([2, 0])))
    torch.testing.assert_close(ENVIRONMENT.observe(few), ENVIRONMENT.observe(whole)[[*range(12, 18), *range(6)]])
    for wrong in (("test", ""), ("train", "odd")):
        with pytest.raises(InputError, match="expected"):
            ENVIRONMENT.draw(wrong[0], 1, 1, 0, wrong[1])


def test_more_cores_cost_more_and_violate_less_and_the_gradient_says_so() -> None:
    episodes = ENVIRONMENT.draw("train", 96, 12, 2, "many")
    found = []
    for factor in (0.5, 1.0):
        state = ENVIRONMENT.reset(episodes)
        targets = (factor * state.seen["cores"]).reshape(-1, 1).requires_grad_()
        _, outcome = ENVIRONMENT.step(state, targets)
        cost, violation = (torch.autograd.grad(one.sum(), targets, retain_graph=True)[0]
                           for one in (outcome.cost, outcome.violation))
        free = targets.detach() > LEAST_CORES  # a limit at its least is clipped there, where no gradient passes
        assert bool((cost > 0)[free].all()) and bool((violation <= 1e-6).all()) and violation.sum().item() < 0
        found.append((outcome.cost.mean().item(), outcome.violation.mean().item()))
    assert found[0][0] < found[1][0] and found[0][1] > found[1][1]
