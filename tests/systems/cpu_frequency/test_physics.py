"""Clock, heat, power and latency against numbers that are worked out otherwise."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from models.control.contract.derived_signals import NUMBERS
from models.control.simulation.queueing import p99_latency
from systems.cpu_frequency import interface as law
from systems.cpu_frequency.processors import HEAT_J_PER_K, LEVELS, PROCESSORS, Processor, power_w
from systems.cpu_frequency.simulator import CpuFrequency, heated, package_of, turbo_ghz
from tests.systems.cpu_frequency.plain_programs import ENVIRONMENT, plain, targets

EXACT = 1e-5  # of float32, over a step's dozen operations


@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda one: one.name)
def test_all_cores_at_base_clock_and_the_limit_of_temperature_take_the_tdp(processor: Processor) -> None:
    one = SimpleNamespace(**processor.numbers)
    assert power_w(one, one.base_ghz, one.cores, 1.0, one.limit_c) == pytest.approx(one.tdp_w, rel=1e-9)
    ends = 45.0 + one.resistance * one.tdp_w
    assert ends == pytest.approx(one.limit_c), "and the heat sink then just holds the limit in air of 45 degrees"


def test_power_by_hand_at_another_clock_and_temperature() -> None:
    """E5-2683 v3 at 2.6 GHz, five busy cores, half stalled, 30 degrees below the limit, where leakage is a half."""
    one = SimpleNamespace(**PROCESSORS[0].numbers)
    volts = 0.75 + 1.4 * 0.27 / 1.8
    base_volts = 0.75 + 0.8 * 0.27 / 1.8
    leaks = 30.0 * 0.5 * (0.4 + 0.6 * 5 / 14) * volts / base_volts
    switches = 66.0 * (5 / 14) * (volts / base_volts) ** 2 * (2.6 / 2.0) * 0.75
    assert power_w(one, 2.6, 5.0, 0.75, 54.5) == pytest.approx(24.0 + leaks + switches, rel=1e-9)


@pytest.mark.parametrize("seconds", [0.37, 1.0, 61.3])
def test_heat_is_that_of_an_rc_circuit_however_long_a_step_lasts(seconds: float) -> None:
    """Against ten thousand small steps of the differential equation, and against itself in two unequal parts."""
    resistance, power, air, now = 0.31, 95.0, 27.0, 50.0
    small, euler = seconds / 10_000, now
    for _ in range(10_000):
        euler += small * (air + resistance * power - euler) / (resistance * HEAT_J_PER_K)
    first, ends, of = (torch.tensor(value, dtype=torch.float64)
                       for value in (now, air + resistance * power, resistance))
    once = heated(first, ends, of, seconds)
    assert float(once) == pytest.approx(euler, abs=2e-3)
    part = heated(heated(first, ends, of, 0.3 * seconds), ends, of, 0.7 * seconds)
    assert float(part) == pytest.approx(float(once), rel=1e-12)


def test_a_request_takes_a_part_that_scales_with_the_clock_and_one_that_does_not() -> None:
    """Leading loads: 10 million instructions of 0.8 cycles and 0.2 ns are 8 / f + 2 ms."""
    state = ENVIRONMENT.reset(plain())
    for clock in (2.0, 3.0, 1.8):
        state, _ = ENVIRONMENT.step(state, targets(clock))
        seen, service_s = state.seen, 1e-3 * (8.0 / clock + 2.0)
        assert float(seen["delivered_ghz"]) == pytest.approx(clock, rel=EXACT)
        assert float(seen["usage"]) == pytest.approx(100.0 * service_s / 8, rel=EXACT)
        assert float(seen["stall_share"]) == pytest.approx(2e-3 / service_s, rel=EXACT)
        assert float(seen["ips_1e9"]) == pytest.approx(100.0 * 10e6 / 8 / 1e9, rel=EXACT), "of work that is done"


def test_instructions_a_second_of_saturated_cores_follow_the_law() -> None:
    """1 / (cpi / f + memory) on each core, and the rise is what the reward counts."""
    state = ENVIRONMENT.reset(plain(rate_rps=1e5, cores=2.0))
    before = 1.0 / (0.8 / 2.0 + 0.2)
    assert float(state.seen["ips_1e9"]) == pytest.approx(before, rel=EXACT)
    state, outcome = ENVIRONMENT.step(state, targets(3.0))
    after = 1.0 / (0.8 / 3.0 + 0.2)
    assert float(state.seen["ips_1e9"]) == pytest.approx(after, rel=EXACT)
    assert float(state.seen["ips_gain"]) == pytest.approx((after - before) / after, rel=1e-4)
    preserved = 40.0 / float(state.seen["latency_ms"])
    assert float(outcome.reward) == pytest.approx(0.5 * (after - before) / after + 0.5 * preserved, rel=1e-4)
    state, outcome = ENVIRONMENT.step(state, targets(2.0))
    assert float(state.seen["ips_gain"]) == 0.0, "where the clock did not rise nothing is gained or lost"


def test_phases_change_the_memory_time_when_they_are_due() -> None:
    """Phases of 2.5 s: by the second's number over 2.5, so that changes do not come at equal distances."""
    state, shares = ENVIRONMENT.reset(plain(phase_s=2.5, phase_factor=3.0)), []
    for _ in range(9):
        state, _ = ENVIRONMENT.step(state, targets(2.0))
        shares.append(float(state.seen["stall_share"]))
    quiet, heavy = 0.2 / 0.6, 0.6 / 1.0  # seconds 1 to 9
    assert shares == pytest.approx([quiet, quiet, heavy, heavy, quiet, quiet, quiet, heavy, heavy], rel=EXACT)


@pytest.mark.parametrize(("rho", "service_s"), [(0.3, 0.013), (0.7, 0.0071), (0.93, 0.0019)])
def test_the_wait_is_that_of_an_m_m_1(rho: float, service_s: float) -> None:
    """P(W > t) = rho exp(-(1 - rho) t / tau), exactly; without load what is left is the service."""
    one, long = torch.ones(1, dtype=torch.float64), 1e12
    service = one * service_s
    found = p99_latency(one * rho / service_s, one, service, one, one, 0 * one, long)
    idle = p99_latency(1e-9 * one, one, service, one, one, 0 * one, long)
    z99, variance = 2.3263478740408408, math.log(2.0)
    log_normal = service_s * math.exp(z99 * math.sqrt(variance) - variance / 2)
    assert float(idle) == pytest.approx(log_normal, rel=1e-6)
    wait = service_s / (1 - rho) * math.log(100 * rho)
    assert float(found) == pytest.approx(service_s + math.hypot(wait, log_normal - service_s), rel=1e-6)


def test_turbo_is_by_active_cores() -> None:
    busy = torch.tensor([0.2, 1.0, 2.0, 2.5, 3.0, 4.0, 6.0, 14.0, 18.0])
    assert turbo_ghz(torch.zeros(9, dtype=torch.int64), busy).tolist() == pytest.approx(
        [3.0, 3.0, 3.0, 2.9, 2.8, 2.7, 2.5, 2.5, 2.5])
    assert turbo_ghz(torch.full((9,), 2), busy).tolist() == pytest.approx([3.3] * 9)
    state = ENVIRONMENT.reset(plain(rate_rps=1e5, cores=6.0))
    state, _ = ENVIRONMENT.step(state, targets(3.0))
    assert float(state.seen["frequency_ghz"]) == pytest.approx(3.0), "it is set,"
    assert float(state.seen["delivered_ghz"]) == pytest.approx(2.5), "but six cores are busy"


def test_the_power_limit_cuts_turbo_and_never_the_base_clock() -> None:
    """All 14 cores without memory: over the TDP at 2.5 GHz, under it in the cool at 2.0."""
    state = ENVIRONMENT.reset(plain(rate_rps=1e5, cores=14.0, memory_ns=0.0, ambient_c=45.0))
    for _ in range(40):
        state, _ = ENVIRONMENT.step(state, targets(3.0))
        assert 2.0 < float(state.seen["delivered_ghz"]) < 2.5
        assert float(state.seen["power_share"]) <= 1.0 + EXACT
    assert float(state.seen["power_share"]) > 0.97, "the chord leaves little unused"
    state, _ = ENVIRONMENT.step(state, targets(2.0))
    assert float(state.seen["delivered_ghz"]) == pytest.approx(2.0)


def test_the_power_limit_is_hardly_exceeded_where_cores_are_idle() -> None:
    """Where the chord does not lie below the power; the page says by how much."""
    state, most = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 800, 100, 0, "bursts")), 0.0
    for _ in range(100):
        state, _ = ENVIRONMENT.step(state, targets(3.3, 800))
        turbo = state.seen["delivered_ghz"] > package_of(state.programs).base_ghz
        most = max(most, float(state.seen["power_share"][turbo].max()))
    assert most < 1.03


@pytest.mark.parametrize(("above_c", "expected"), [(-0.1, 2.0), (1.0, 1.8), (2.0, 1.6), (9.0, 1.2)])
def test_above_the_limit_of_temperature_the_processor_slows_down_by_itself(above_c: float, expected: float) -> None:
    state = ENVIRONMENT.reset(plain())
    state = state._replace(temperature_c=torch.tensor([84.5 + above_c]))
    after, _ = ENVIRONMENT.step(state, targets(2.0))
    assert float(after.seen["delivered_ghz"]) == pytest.approx(expected, rel=1e-4)
    assert float(after.seen["frequency_ghz"]) == pytest.approx(2.0)


def test_what_is_too_much_waits_and_times_out() -> None:
    """Four cores serve 4 / 6 ms = 667 a second; 900 come: 233 more wait each second, ten seconds of work at most."""
    state, capacity = ENVIRONMENT.reset(plain(rate_rps=900.0, cores=4.0)), 4 / 6e-3
    for second in range(2, 60):
        state, outcome = ENVIRONMENT.step(state, targets(2.0))
        waits = min(second * (900.0 - capacity), 10.0 * capacity)
        assert float(state.backlog) == pytest.approx(waits, rel=1e-3)
        assert float(state.seen["latency_ms"]) > 1e3 * waits / capacity and float(outcome.violated) == 1.0
        assert float(state.seen["usage"]) == pytest.approx(1.0)


def test_only_levels_of_the_processor_are_set_and_one_step_reaches_the_next() -> None:
    """AMD's four are far apart: what is between goes up, the safe side, but never out of a step's reach."""
    state = ENVIRONMENT.reset(plain(processor=2, first_ghz=3.0))
    for wanted, expected in ((2.9, 3.0), (2.51, 3.0), (2.5, 2.5), (1.0, 1.5), (2.4, 2.5), (1.0, 1.5), (9.0, 2.5),
                             (9.0, 3.3), (3.3009, 3.3)):
        state, _ = ENVIRONMENT.step(state, targets(wanted))
        assert float(state.seen["frequency_ghz"]) == pytest.approx(expected), wanted
    state = ENVIRONMENT.reset(plain(processor=0, first_ghz=1.3))
    state, _ = ENVIRONMENT.step(state, targets(3.0))
    assert float(state.seen["frequency_ghz"]) == pytest.approx(2.1), "two thirds more than 1.3 are 2.17"
    assert LEVELS[0] == 1.2 and LEVELS[-1] == 3.3 and len(LEVELS) == 22


def test_random_targets_never_leave_the_levels_or_the_signals() -> None:
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 300, 60, 3))
    generator, held = torch.Generator().manual_seed(0), set()
    for _ in range(60):
        before = state.seen["frequency_ghz"]
        state, _ = ENVIRONMENT.step(state, 0.5 + 4 * torch.rand(300, 1, generator=generator))
        ratio = state.seen["frequency_ghz"] / before
        assert bool((ratio < 1.667).all()) and bool((ratio > 0.599).all())
        clocks = [round(clock, 6) for clock in state.seen["frequency_ghz"].tolist()]
        held |= set(zip(state.programs.processor.tolist(), clocks, strict=True))
        assert all(bool(torch.isfinite(value).all()) for value in state.seen.values())
    assert held == {(number, level) for number, one in enumerate(PROCESSORS) for level in one.levels}


def test_a_gradient_says_what_a_clock_costs_and_what_it_is_good_for() -> None:
    programs = plain(count=6, rate_rps=1000.0, cores=8.0, most_latency_ms=20.0)
    clocks = torch.tensor([[1.8], [2.0], [2.2], [2.3], [2.4], [2.5]], requires_grad=True)
    state, cost, violation = ENVIRONMENT.reset(programs), torch.zeros(()), torch.zeros(())
    for _ in range(8):
        state, outcome = ENVIRONMENT.step(state, clocks)
        cost, violation = cost + outcome.cost.sum(), violation + outcome.violation.sum()
    (costs,) = torch.autograd.grad(cost, clocks, retain_graph=True)
    (misses,) = torch.autograd.grad(violation, clocks)
    assert bool((costs > 0).all()) and bool((misses < 0).all())


def test_gradients_of_all_services_are_finite() -> None:
    state = ENVIRONMENT.reset(ENVIRONMENT.draw("train", 800, 30, 1, "bursts"))
    clocks = torch.full((800, 1), 2.0, requires_grad=True)
    total = torch.zeros(())
    for _ in range(20):
        state, outcome = ENVIRONMENT.step(state, clocks)
        total = total + (outcome.cost + outcome.violation - outcome.reward).sum()
    (gradient,) = torch.autograd.grad(total, clocks)
    assert bool(torch.isfinite(gradient).all()) and int((gradient != 0).sum()) > 780


def test_the_outcome_is_the_same_of_numbers_as_of_tensors_and_by_hand() -> None:
    seen = {"latency_ms": 50.0, "most_latency_ms": 40.0, "power_share": 0.4, "ips_gain": 0.2}
    came = law.outcome(seen, NUMBERS)
    assert came == {"reward": pytest.approx(0.1 + 0.5 * 0.8), "cost": 0.4, "violation": pytest.approx(math.log(1.25)),
                    "violated": True}
    met = law.outcome(seen | {"latency_ms": 30.0}, NUMBERS)
    assert met["reward"] == pytest.approx(0.6) and met["violation"] == 0.0 and not met["violated"]


def test_a_latency_presses_only_where_there_is_room() -> None:
    assert law.pressing_latency(90.0, 3.01, NUMBERS) == 90.0
    assert law.pressing_latency(90.0, 3.0, NUMBERS) == law.LEAST_MS


def test_limits_of_a_workload_leave_its_levels() -> None:
    control = replace(law.CONTROLS[0], low=1.5, high=2.5, levels=(1.5, 2.5))
    narrow = CpuFrequency((control,))
    state = narrow.reset(plain(processor=2, first_ghz=2.5))
    for wanted, expected in ((3.3, 2.5), (1.2, 1.5), (1.6, 2.5)):
        state, _ = narrow.step(state, targets(wanted))
        assert float(state.seen["frequency_ghz"]) == pytest.approx(expected)


def test_noise_is_of_the_latency_and_the_stalls_alone() -> None:
    quiet = plain(count=2000)
    loud = replace(quiet, noise=torch.randn(quiet.noise.shape, generator=torch.Generator().manual_seed(0)))
    (one, _), (other, _) = (ENVIRONMENT.step(ENVIRONMENT.reset(of), targets(2.0, 2000)) for of in (quiet, loud))
    spread = np.std(np.log((other.seen["latency_ms"] / one.seen["latency_ms"]).numpy()))
    assert spread == pytest.approx(0.04, rel=0.1)
    changed = {name for name in one.seen if not torch.equal(one.seen[name], other.seen[name])}
    assert changed == {"latency_ms", "pressing_latency_ms", "stall_share"}
