"""The environment of autoscaling: what its contract promises, and physics that a reviewer would check by hand."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.environment import Outcome
from systems.autoscaling.interface import SIGNALS
from systems.autoscaling.simulator.applications import Applications, generate, numbers_of
from systems.autoscaling.simulator.arrivals import made_traces, pattern, read_traces, split_traces, windows
from systems.autoscaling.simulator.episodes import SCENARIOS, Episodes
from systems.autoscaling.simulator.simulator import Autoscaling, Physics, State

ENVIRONMENT = Autoscaling()
COLUMN = {signal.name: position for position, signal in enumerate(SIGNALS)}


def proportional(observation: Tensor, target: float = 0.4) -> Tensor:
    """Replicas in proportion to CPU utilisation, memory for its peak."""
    limit, memory, replicas = observation[:, :3].unbind(1)
    use, memory_use = observation[:, COLUMN["cpu_utilization"]], observation[:, COLUMN["memory_utilization"]]
    return torch.stack([limit, torch.maximum(memory * memory_use / 0.6, 0.995 * memory), replicas * use / target], 1)


def run(environment: Autoscaling, episodes: Episodes, steps: int) -> tuple[State, list[Outcome]]:
    state, outcomes = environment.reset(episodes), []
    for _ in range(steps):
        state, outcome = environment.step(state, proportional(environment.observe(state)))
        outcomes.append(outcome)
    return state, outcomes


def steady(**changes: float) -> Episodes:
    """One application with known parameters at a steady load, without noise or neighbours."""
    values = {"cpu_s": 0.01, "service_cv2": 1.0, "arrival_cv2": 1.0, "fixed_s": 0.002, "workers": 8.0,
              "contention": 0.0, "burst_s": 0.0, "memory_mib": 100.0, "request_mib": 1.0, "io": 1e-4, "network": 1e-4,
              "startup_s": 45.0, "speed": 1.0, "stolen": 0.0, "stolen_spread": 0.0, "slo_s": 0.2, "load_cores": 2.0}
    unknown = set(changes) - set(values) - {"rate"}
    assert not unknown
    rate = changes.pop("rate", 200.0)
    values.update(changes)
    application = Applications(
        **{field.name: torch.tensor([values[field.name]]) for field in fields(Applications) if field.name in values},
        payload_share=torch.full((1, 6), 1 / 6), payload_elasticity=torch.ones(1, 6))
    series = torch.ones(60, 1)
    return Episodes(application, torch.zeros(1, dtype=torch.long), rate * series, application.cpu_s * series,
                    application.stolen * series, torch.zeros(60, 3, 1), torch.full((1,), 2.0))


def hold(environment: Autoscaling, episodes: Episodes, limit: float, memory: float, replicas: float, steps: int = 30
         ) -> list[Outcome]:
    state, outcomes = environment.reset(episodes), []
    for _ in range(steps):
        state, outcome = environment.step(state, torch.tensor([[limit, memory, replicas]]))
        outcomes.append(outcome)
    return outcomes


class TestContract:
    def test_equal_draws_give_equal_episodes_to_the_bit_and_other_seeds_do_not(self) -> None:
        first, second = (run(ENVIRONMENT, ENVIRONMENT.draw("train", 32, 40, seed=3), 40)[1] for _ in range(2))
        other = run(ENVIRONMENT, ENVIRONMENT.draw("train", 32, 40, seed=4), 40)[1]
        assert all(torch.equal(a.reward, b.reward) for a, b in zip(first, second, strict=True))
        assert not torch.equal(first[-1].reward, other[-1].reward)

    def test_applications_do_not_know_of_each_other(self) -> None:
        episodes = ENVIRONMENT.draw("held_out", 16, 40, seed=5)
        _, together = run(ENVIRONMENT, episodes, 40)
        _, alone = run(ENVIRONMENT, episodes.take(torch.tensor([7])), 40)
        assert torch.allclose(together[-1].reward[7], alone[-1].reward[0], rtol=1e-4)

    @pytest.mark.parametrize("scenario", ["", *SCENARIOS])
    def test_everything_stays_finite_and_inside_of_the_signals_ranges(self, scenario: str) -> None:
        episodes = ENVIRONMENT.draw("train", 256, 60, seed=1, scenario=scenario)
        state = ENVIRONMENT.reset(episodes)
        random = torch.Generator().manual_seed(0)
        for _ in range(60):
            targets = torch.exp(torch.randn(256, 3, generator=random) * 3)
            state, outcome = ENVIRONMENT.step(state, targets)
            observed = ENVIRONMENT.observe(state)
            for column, signal in enumerate(SIGNALS):
                assert signal.low <= float(observed[:, column].min()) <= float(observed[:, column].max()) <= signal.high
            figures = (outcome.reward, outcome.cost, outcome.violation, *outcome.measures.values())
            assert all(torch.isfinite(figure).all() for figure in figures)
            assert ((outcome.reward >= 0) & (outcome.reward <= 2)).all()
            assert set(outcome.measures) == set(ENVIRONMENT.measures)

    def test_a_step_is_differentiable_where_replicas_are_not_whole(self) -> None:
        environment = ENVIRONMENT.differentiable
        state = environment.reset(environment.draw("train", 64, 60, seed=1))
        gain = torch.zeros(3, requires_grad=True)
        total = torch.zeros(())
        for _ in range(50):
            state, outcome = environment.step(state, environment.observe(state)[:, :3] * gain.exp())
            total = total + (outcome.cost + outcome.violation).mean()
        total.backward()
        assert gain.grad is not None and torch.isfinite(gain.grad).all() and (gain.grad.abs() > 1e-3).all()

    def test_a_step_leaves_the_old_state_as_it_was(self) -> None:
        state = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 8, 20, seed=1))
        before = ENVIRONMENT.observe(state).clone()
        ENVIRONMENT.step(state, torch.full((8, 3), 5.0))
        assert torch.equal(ENVIRONMENT.observe(state), before)

    def test_no_application_and_no_trace_is_in_both_splits(self) -> None:
        train, held_out = (ENVIRONMENT.draw(split, 1000, 20, seed=1).numbers for split in ("train", "held_out"))
        assert set(train.tolist()) == set(range(800)) and set(held_out.tolist()) == set(range(800, 1000))
        shapes = made_traces(20, seed=1)
        parts = [{row.tobytes() for row in split_traces(shapes, split)} for split in ("train", "held_out")]
        assert not parts[0] & parts[1] and len(parts[0]) + len(parts[1]) == 20

    def test_a_series_that_is_there_again_is_not_in_the_other_split(self) -> None:
        shapes = made_traces(30, seed=1)
        repeated = np.concatenate([shapes, shapes[::2], shapes[:10]])
        parts = [{row.tobytes() for row in split_traces(repeated, split)} for split in ("train", "held_out")]
        assert not parts[0] & parts[1] and len(parts[0]) + len(parts[1]) == 30
        for split in ("train", "held_out"):
            assert (split_traces(repeated, split) == split_traces(shapes, split)).all()

    def test_an_unknown_split_scenario_or_application_is_refused(self) -> None:
        with pytest.raises(InputError, match="train or held_out, got 'test'"):
            ENVIRONMENT.draw("test", 1, 20, seed=1)
        with pytest.raises(InputError, match="scenario: expected one of payload_file"):
            ENVIRONMENT.draw("train", 1, 20, seed=1, scenario="earthquake")
        with pytest.raises(InputError, match="expected 1 numbers within 0 to 799, got 1 within 900"):
            ENVIRONMENT.draw("train", 1, 20, seed=1, applications=[900])


class TestPhysics:
    quiet = Autoscaling(physics=Physics(noisy_metrics=False, neighbours=False))

    def test_utilisation_is_load_over_capacity(self) -> None:
        outcomes = hold(self.quiet, steady(), limit=1.0, memory=512, replicas=4)
        assert outcomes[-1].measures["cpu_utilization"].item() == pytest.approx(200 * 0.01 / 4, rel=1e-3)
        assert outcomes[-1].measures["cores"].item() == pytest.approx(4.0)

    def test_the_wait_is_that_of_an_m_m_s_queue(self) -> None:
        # Erlang C for S = 4, rho = 0.5: 4 servers of 100 requests a second, 200 come
        rho, servers = 0.5, 4
        term = [2.0**k / np.prod(np.arange(1, k + 1)) for k in range(servers)]
        last = 2.0**servers / 24 / (1 - rho)
        waiting = last / (sum(term) + last)
        tail = np.log(100 * waiting) * 0.01 / (servers * (1 - rho))
        body = 0.01 * (np.exp(2.3263 * np.log(2) ** 0.5 - 0.5 * np.log(2)) - 1)  # a log-normal service of cv2 = 1
        expected = 2.0 + 1e3 * (0.01 + np.hypot(tail, body))
        found = hold(self.quiet, steady(), limit=1.0, memory=512, replicas=4)[-1].measures["p99_ms"].item()
        assert found == pytest.approx(expected, rel=0.05)

    def test_half_a_core_doubles_the_service_time(self) -> None:
        idle = [hold(self.quiet, steady(rate=0.5), limit=limit, memory=512, replicas=2)[-1].measures["p99_ms"].item()
                for limit in (1.0, 0.5)]
        assert (idle[1] - 2.0) / (idle[0] - 2.0) == pytest.approx(2.0, rel=0.02)

    def test_overload_builds_a_backlog_until_requests_time_out(self) -> None:
        outcomes = hold(self.quiet, steady(rate=250.0), limit=1.0, memory=8192, replicas=2, steps=40)
        backlog = [outcome.measures["backlog"].item() for outcome in outcomes]
        first = next(step for step, waiting in enumerate(backlog) if waiting > 0)
        assert backlog[first] < backlog[first + 1] < backlog[first + 2]
        assert backlog[-1] == pytest.approx(10.0 * 200, rel=1e-3)  # ten seconds of capacity
        assert outcomes[-1].violated.item() == 1.0

    def test_new_replicas_serve_after_their_start_up(self) -> None:
        episodes = steady(startup_s=45.0, rate=100.0)
        state = self.quiet.reset(episodes)
        before, asked = state.ready.item(), state.replicas.item()
        ready = []
        for _ in range(6):
            state, _ = self.quiet.step(state, torch.tensor([[2.0, 512.0, 2 * asked]]))
            ready.append(state.ready.item())
        assert ready[:3] == [before] * 3 and ready[3:] == [2 * asked] * 3

    def test_replicas_that_start_are_stopped_first(self) -> None:
        state = self.quiet.reset(steady(rate=400.0, load_cores=4.0))
        serving, limit = state.ready.item(), state.limit.item()
        state, _ = self.quiet.step(state, torch.tensor([[limit, 512.0, serving + 1]]))
        state, outcome = self.quiet.step(state, torch.tensor([[limit, 512.0, serving]]))
        assert (state.ready.item(), state.starting.sum().item()) == (serving, 0.0)
        assert outcome.measures["stops"].item() == 1.0

    def test_memory_above_the_limit_kills_and_pressure_slows_down(self) -> None:
        roomy, tight, burst = (hold(self.quiet, steady(memory_mib=100.0, request_mib=0.1), 1.0, memory, 4)
                               for memory in (512.0, 105.0, 80.0))
        assert roomy[-1].measures["killed"].item() == tight[-1].measures["killed"].item() == 0.0
        assert tight[-1].measures["p99_ms"].item() > 1.5 * roomy[-1].measures["p99_ms"].item()
        assert sum(outcome.measures["killed"].item() for outcome in burst) > 1.0

    def test_neighbours_hide_in_low_utilisation(self) -> None:
        crowded = replace(steady(), stolen=torch.full((60, 1), 0.4))
        environment = Autoscaling(physics=Physics(noisy_metrics=False))
        alone, beside = (hold(environment, episodes, 1.0, 512.0, 4)[-1].measures for episodes in (steady(), crowded))
        assert beside["cpu_utilization"].item() == pytest.approx(alone["cpu_utilization"].item(), rel=1e-3)
        assert beside["p99_ms"].item() > 1.5 * alone["p99_ms"].item()

    def test_metrics_are_an_interval_late(self) -> None:
        jump = steady()
        jump = replace(jump, rate=torch.cat([jump.rate[:10], 3 * jump.rate[10:]]))
        shown = {}
        for late in (False, True):
            environment = Autoscaling(physics=Physics(noisy_metrics=False, neighbours=False, late_metrics=late))
            state, rates = environment.reset(jump), []
            for _ in range(20):
                state, _ = environment.step(state, torch.tensor([[2.0, 512.0, 4.0]]))
                rates.append(environment.observe(state)[0, COLUMN["rate_rps"]].item())
            shown[late] = [rate > 300 for rate in rates].index(True)
        assert shown[True] == shown[False] + 1

    def test_targets_are_limited_in_value_and_in_change(self) -> None:
        state = self.quiet.reset(steady())
        limit, replicas = state.limit.item(), state.replicas.item()
        lower, _ = self.quiet.step(state, torch.tensor([[0.0, 0.0, 0.0]]))
        higher, _ = self.quiet.step(state, torch.tensor([[1e9, 1e9, 1e9]]))
        assert lower.limit.item() == pytest.approx(0.75 * limit) and lower.replicas.item() == replicas - 1
        assert higher.limit.item() == pytest.approx(2 * limit) and higher.replicas.item() == 2 * replicas

    def test_the_reward_is_the_papers(self) -> None:
        outcome = hold(self.quiet, steady(), 1.0, 512.0, 4)[-1]
        use = outcome.measures["cpu_utilization"].item() + outcome.measures["memory_utilization"].item()
        preservation = min(1.0, 1.0 / outcome.measures["p99_over_slo"].item())
        assert outcome.reward.item() == pytest.approx(0.5 * preservation * 2 + 0.5 * use, rel=1e-5)


class TestArrivals:
    def test_a_trace_is_interpolated_between_the_middles_of_minutes(self) -> None:
        traces = torch.tensor([[1.0, 3.0, 5.0]])
        found = windows(traces, torch.zeros(1, dtype=torch.long), torch.zeros(1), 9, 15.0)
        assert found.tolist() == [[1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0]]

    @pytest.mark.parametrize(("content", "message"), [
        ("1_minute,2_minute\n1,\n",
         "expected a number of 0 or more in every minute, got 'nan'; fill or drop.*line 2, column 2_minute"),
        ("1_minute,2_minute\n1,2\n3,-4\n",
         "expected a number of 0 or more in every minute, got '-4'.*line 3, column 2_minute"),
        ("1_minute\n5\n", "a column for each minute .*at least two, got 1"),
        ("1_minute,2_minute\n0,0\n", "a series of at least 1 requests a minute, got at most 0"),
        ("1_minute,2_minute\n1,many\n", "expected a number of 0 or more in every minute, got 'many'"),
        ("", "expected a CSV file"),
    ])
    def test_bad_traces_are_refused_with_their_place(self, tmp_path, content: str, message: str) -> None:
        path = tmp_path / "traces.csv"
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            read_traces(path)

    def test_patterns_have_a_mean_of_about_one(self) -> None:
        for name in ("diurnal", "bursts", "steps", "drift"):
            assert pattern(name, 600).mean() == pytest.approx(1.0, abs=0.05)
        assert pattern("flash_crowd", 600).max() > 3
        with pytest.raises(InputError, match="expected one of diurnal"):
            pattern("flat", 10)


def test_the_pool_splits_800_to_200_and_mixes_segments() -> None:
    pool = generate()
    assert len(pool) == 1000 and len(numbers_of("train")) == 800 and len(numbers_of("held_out")) == 200
    assert torch.allclose(pool.payload_share.sum(1), torch.ones(1000), atol=1e-5)
    segments = (pool.payload_share > 0).sum(1)
    assert set(segments.tolist()) >= {1, 2, 3, 4}


def test_recorded_servers_are_varied_in_half_of_the_pool() -> None:
    server = {"payload": "file", "cpu_ms": 0.123, "cv2": 0.5, "fixed_ms": 0.2, "memory_mib": 30, "request_mib": 0.1,
              "io": 0.0, "network": 0.1, "elasticity": 0.5}
    pool = generate(200, recorded=[server])
    varied = pool.cpu_s[1::2] * 1e3
    assert ((varied > 0.02) & (varied < 0.6)).all() and varied.std() > 0.01


def test_gradients_stay_finite_where_the_probability_of_a_wait_underflows() -> None:
    environment = ENVIRONMENT.differentiable
    state = environment.reset(environment.draw("train", 64, 40, seed=1))
    gain = torch.ones(3, requires_grad=True)  # allocations that grow to a hundred times the load
    for _ in range(30):
        state, outcome = environment.step(state, environment.observe(state)[:, :3] * gain.exp())
    (outcome.cost + outcome.measures["log_latency"]).mean().backward()
    assert gain.grad is not None and torch.isfinite(gain.grad).all()


def test_what_was_used_is_told_as_an_amount_and_as_a_share_of_the_limits_that_stood_then():
    environment = Autoscaling(physics=Physics(noisy_metrics=False, whole_replicas=False, start_up=False))
    state = environment.reset(environment.draw("train", 64, 20, 3))
    before = environment.observe(state)
    for step in range(6):
        factor = 1.0 + 0.2 * (-1) ** step
        state, _ = environment.step(state, before[:, :3] * torch.tensor([factor, 1.1, factor]))  # none is killed
        now = environment.observe(state)
        limit, serving, memory = (before[:, COLUMN[name]] for name in
                                  ("cpu_limit_cores", "ready_replicas", "memory_limit_mib"))
        inside = (now[:, COLUMN["cpu_utilization"]] > 0.02) & (now[:, COLUMN["cpu_used_cores"]] > 0.02)
        torch.testing.assert_close(now[:, COLUMN["cpu_used_cores"]][inside],
                                   (now[:, COLUMN["cpu_utilization"]] * limit * serving)[inside], rtol=1e-4, atol=0.0)
        torch.testing.assert_close(now[:, COLUMN["memory_used_mib"]],
                                   now[:, COLUMN["memory_utilization"]] * memory, rtol=1e-4, atol=1e-3)
        before = now


def test_a_limit_is_not_felt_until_the_saved_quota_is_used_up():
    environment = Autoscaling(physics=Physics(late_metrics=False, noisy_metrics=False, whole_replicas=False))

    def p99_ms(burst_s: float, limit: float, rate: float) -> float:
        episodes = steady(burst_s=burst_s, rate=rate, workers=1.0, service_cv2=0.1)
        return hold(environment, episodes, limit, 4096.0, 4.0)[-1].measures["p99_ms"].item()

    light = 40.0  # 4 replicas, 10 ms a request: a tenth of their cores
    slowed, free, saved = p99_ms(0.0, 0.25, light), p99_ms(0.0, 1.0, light), p99_ms(0.08, 0.25, light)
    assert slowed > 2.0 * free
    assert saved == pytest.approx(max(free, slowed - 80.0), rel=1e-3) and saved < slowed
    assert p99_ms(0.1, 0.25, 5.0) == pytest.approx(p99_ms(0.0, 1.0, 5.0), rel=1e-3)  # hardly any load: never felt
    busy = 200.0  # twice what a quarter of four cores can do: it waits for its time-out, whatever was saved
    assert p99_ms(0.1, 0.25, busy) > 0.9 * p99_ms(0.0, 0.25, busy) > 5_000.0


def test_it_is_told_how_long_ago_more_replicas_were_asked_for():
    state = ENVIRONMENT.reset(steady())
    seen = []
    for replicas in (4.0, 6.0, 6.0, 5.0, 7.0, 7.0):
        targets = ENVIRONMENT.observe(state)[:, :3].clone()
        targets[:, 2] = replicas
        state, _ = ENVIRONMENT.step(state, targets)
        seen.append(ENVIRONMENT.observe(state)[0, COLUMN["raised_s_ago"]].item())
    assert seen[0] == 960.0 or seen[0] == 15.0
    assert seen[1:] == [15.0, 30.0, 45.0, 15.0, 30.0]
