"""A service on some cores of a processor: clock, heat and power, and requests that queue for the cores.

A second: the level is set; the processor delivers what turbo, its power limit and its temperature allow
(processors.py); requests take work (cpi / f + memory) of a core (programs.py) and queue for the cores, what is too much
is left over or times out; power heats the package, an RC circuit to the air, T' = (T_air + R P - T) / (R C), exactly.

Symbols: N services; tensors (N,) float32 unless stated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from models.control.contract.environment import Outcome
from models.control.contract.signals import Anchor, Control
from models.control.simulation.queueing import p99_latency
from models.control.simulation.scaling import Scaling
from models.control.simulation.settable import settable
from models.control.simulation.tensors import TENSORS, at_step
from systems.cpu_frequency import interface as law
from systems.cpu_frequency import processors as made
from systems.cpu_frequency.interface import ANCHORS, CONTROLS, FEATURES, SIGNALS, STEP_SECONDS
from systems.cpu_frequency.processors import PROCESSORS, power_w
from systems.cpu_frequency.programs import SCENARIOS, Programs, draw_programs

TIMEOUT_S = 10.0  # work that is left over beyond is given up
LATENCY_NOISE, STALL_NOISE = 0.04, 0.01  # assumed: of the logarithm of a percentile, of a share
FUTURE = 4  # seconds that the clairvoyant sees
_NAMES = tuple(signal.name for signal in SIGNALS)
_SCALING = Scaling(SIGNALS)
_TURBO = torch.tensor([[one.turbo[min(active, len(one.turbo)) - 1] for active in range(1, 20)] for one in PROCESSORS])
_TABLE = {name: torch.tensor([one.numbers[name] for one in PROCESSORS]) for name in PROCESSORS[0].numbers}


class State(NamedTuple):
    """step: number of the next; temperature_c: of the package; backlog: requests left over; seen: signal -> (N,)."""

    programs: Programs
    step: int
    temperature_c: Tensor
    backlog: Tensor
    seen: Mapping[str, Tensor]


class CpuFrequency:
    """Implements `Environment`."""

    signals, features = SIGNALS, FEATURES
    hidden = ("stalled share", "instructions a request", "cycles an instruction", "cores", "variation", "cooling")
    anchors: Mapping[str, Anchor] = ANCHORS
    measures: Mapping[str, str] = {"power_w": "W", "temperature_c": "degC", "clock_ghz": "GHz", "usage": "share",
                                   "latency_over_objective": "1"}
    cost_unit, step_seconds, steps = "power over the package's limit", STEP_SECONDS, 100
    scenarios: tuple[str, ...] = SCENARIOS

    def __init__(self, controls: tuple[Control, ...] = CONTROLS) -> None:
        (control,) = self.controls = controls
        inside = [tuple(level for level in one.levels if control.low <= level <= control.high) for one in PROCESSORS]
        # a processor without a choice inside of a workload's limits is not the workload's
        self._own = [replace(control, levels=levels, low=levels[0], high=levels[-1]) if len(levels) > 1 else control
                     for levels in inside]

    @property
    def differentiable(self) -> "CpuFrequency":
        """Itself: gradients pass through the levels as if there were none."""
        return self

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Programs:
        """See programs.py."""
        return draw_programs(split, count, steps + 1 + FUTURE, seed, scenario, applications)

    def reset(self, episodes: Programs) -> State:
        """After a second at the first clock, in the heat of half the power."""
        package, zero = package_of(episodes), torch.zeros_like(episodes.cores)
        warm = episodes.ambient_c + 0.5 * package.resistance * package.tdp_w
        first = self._level(episodes, episodes.first_ghz, episodes.first_ghz)
        seen = {"frequency_ghz": first, "ips_1e9": zero, "mean_rate_rps": episodes.rate_rps[0]}
        return _after(State(episodes, 0, warm, zero, seen), first)

    def observe(self, state: State) -> Tensor:
        """See `Environment`."""
        return _SCALING.clip(torch.stack([state.seen[name] for name in _NAMES], dim=1))

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        """See `Environment`."""
        after = _after(state, self._level(state.programs, targets[:, 0], state.seen["frequency_ghz"]))
        seen, came = after.seen, law.outcome(after.seen, TENSORS)
        return after, Outcome(came["reward"], came["cost"], came["violation"], came["violated"].to(targets.dtype), {
            "power_w": seen["power_share"] * package_of(state.programs).tdp_w, "temperature_c": after.temperature_c,
            "clock_ghz": seen["delivered_ghz"], "usage": seen["usage"],
            "latency_over_objective": seen["latency_ms"] / seen["most_latency_ms"]})

    def hidden_parameters(self, state: State) -> Tensor:
        """See `Environment`."""
        programs, memory_ns = state.programs, _memory_ns(state.programs, state.step)
        base_ns = programs.cpi / package_of(programs).base_ghz
        logs = (programs.work / 8.0, programs.cpi / 0.8, programs.cores / 8.0)
        return torch.stack([2.0 * memory_ns / (base_ns + memory_ns) - 1.0, *(one.log() for one in logs),
                            programs.service_cv2 - 0.8, 2.0 * (programs.cooling / 1.4).log()], dim=1)

    def coming_load(self, state: State) -> Tensor:
        """See `Environment`."""
        coming = [at_step(state.programs.rate_rps, state.step + second) for second in range(FUTURE)]
        return (torch.stack(coming, dim=1) / state.seen["rate_rps"][:, None]).log()

    def _level(self, programs: Programs, target: Tensor, present: Tensor) -> Tensor:
        """(N,) the level that is set: of the service's processor, and in reach of the present one."""
        found = target
        for number, control in enumerate(self._own):
            most = ((1 + control.most_up) * present)[:, None]
            reach = settable(most, [replace(control, safe_side="less")])[:, 0].detach()
            inside = target.maximum((1 - control.most_down) * present).minimum(reach).clamp(control.low, control.high)
            found = torch.where(programs.processor == number, settable(inside[:, None], [control])[:, 0], found)
        return found


def package_of(programs: Programs) -> Any:
    """`Processor.numbers` of each service, (N,) each, the resistance with its own cooling."""
    found = {name: values[programs.processor] for name, values in _TABLE.items()}
    return SimpleNamespace(**found | {"resistance": found["resistance"] * programs.cooling})


def heated(temperature_c: Tensor, ends_c: Tensor, resistance: Tensor, seconds: float) -> Tensor:
    """The temperature after so many seconds of a power that ends at `ends_c`, air + R P."""
    return ends_c + (temperature_c - ends_c) * torch.exp(-seconds / (resistance * made.HEAT_J_PER_K))


def _after(state: State, clock: Tensor) -> State:
    """One second at a clock that is set."""
    programs, before, package = state.programs, state.seen, package_of(state.programs)
    rate, memory_ns = at_step(programs.rate_rps, state.step), _memory_ns(programs, state.step)
    offered = rate + state.backlog / STEP_SECONDS

    def busy_at(ghz: Tensor) -> Tensor:
        return (offered * programs.service_s(ghz, memory_ns)).minimum(programs.cores)

    def stalled_at(ghz: Tensor) -> Tensor:
        return memory_ns / (programs.cpi / ghz + memory_ns)

    def power_at(ghz: Tensor) -> Tensor:
        activity: Tensor = 1.0 - (1.0 - made.STALLED_ACTIVITY) * stalled_at(ghz)
        power: Tensor = power_w(package, ghz, busy_at(ghz), activity, state.temperature_c)
        return power

    delivered = clock.minimum(turbo_ghz(programs.processor, busy_at(clock).detach()))
    delivered = _within_power(delivered, package, power_at)
    hot = ((state.temperature_c - package.limit_c) / made.THROTTLES_C).clamp(0.0, 1.0)
    delivered = delivered - (delivered - package.least_ghz) * hot
    service_s, power = programs.service_s(delivered, memory_ns), power_at(delivered)
    temperature = heated(state.temperature_c, programs.ambient_c + package.resistance * power, package.resistance,
                         STEP_SECONDS)
    capacity = programs.cores / service_s
    served = offered.minimum(capacity)
    backlog = ((offered - served) * STEP_SECONDS).minimum(TIMEOUT_S * capacity)
    latency_s = programs.fixed_s + p99_latency(
        rate, programs.cores, service_s, programs.arrival_cv2, programs.service_cv2,
        torch.maximum(backlog, state.backlog) / capacity, STEP_SECONDS)
    noise = at_step(programs.noise, state.step)
    # clipped as they are observed, so that what follows from them is the same live
    latency_ms = (1e3 * latency_s * (LATENCY_NOISE * noise[0]).exp()).clamp(law.LEAST_MS, 2.0**16)
    ips = (1e-3 * served * programs.work / programs.cores).clamp(2.0**-8, 8.0)
    room = (package.limit_c - temperature).clamp(0.25, 64.0)
    return State(programs, state.step + 1, temperature, backlog, {
        "frequency_ghz": clock, "delivered_ghz": delivered, "ips_1e9": ips,
        "ips_gain": law.ips_gain(ips, before["ips_1e9"], clock > before["frequency_ghz"], TENSORS),
        "usage": served * service_s / programs.cores,
        "stall_share": (stalled_at(delivered) + STALL_NOISE * noise[1]).clamp(0.0, 1.0), "rate_rps": rate,
        "mean_rate_rps": torch.lerp(before["mean_rate_rps"], rate, law.MEAN_WEIGHT), "latency_ms": latency_ms,
        "pressing_latency_ms": law.pressing_latency(latency_ms, room, TENSORS), "room_c": room,
        "power_share": power / package.tdp_w, "most_latency_ms": programs.most_latency_ms})


def turbo_ghz(processor: Tensor, busy: Tensor) -> Tensor:
    """The most that the processor runs so many busy cores at; between two whole numbers of them in proportion."""
    place = (busy - 1.0).clamp(0.0, _TURBO.shape[1] - 1.001)
    below = place.floor().long()
    return torch.lerp(_TURBO[processor, below], _TURBO[processor, below + 1], place - below)


def _within_power(clock: Tensor, package: Any, power_at: Callable[[Tensor], Tensor]) -> Tensor:
    """What the power limit (RAPL's PL1, here the TDP) leaves of a clock above base; a base clock is never cut.

    On the chord between base and the clock. Where power is convex there, as of cores that are all busy, the limit is
    kept; where less load leaves cores idle, it may be exceeded: by 2.7 % at most in 606,000 seconds of drawn services
    at their highest clock, of which 233 were cut.
    """
    wanted, base = power_at(clock).detach(), power_at(package.base_ghz).detach()
    share = ((package.tdp_w - base) / (wanted - base).clamp(min=1e-3)).clamp(0.0, 1.0)
    cut = (clock > package.base_ghz) & (wanted > package.tdp_w)
    return torch.where(cut, package.base_ghz + (clock - package.base_ghz) * share, clock)


def _memory_ns(programs: Programs, step: int) -> Tensor:
    """Memory time of an instruction in the phase of a step."""
    phase = (step * STEP_SECONDS / programs.phase_s).floor() % 2
    return programs.memory_ns * torch.where(phase > 0, programs.phase_factor, 1.0)
