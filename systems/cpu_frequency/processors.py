"""The thesis's three processors (appendix A.4) by their data sheets, and the power that follows.

Sources. [T] the thesis, appendix A.4: names, base and largest clocks. [K] ARK, Intel's product pages, and Intel's
specification updates 330785 (E5 v3) and 333811 (E5 v4), from memory: no page of Intel's could be opened where this was
written. [L] lscpu of an E5-2683 v3: 1200 to 3000 MHz, 14 cores. [R] AMD's list of parts: 7302P, 16 cores, 3.3 GHz,
155 W. [P] P-states of another Rome, a 7V12 (github.com/irusanov/ZenStates-Core, issue 7): 1.5 GHz at 0.9 V, 2.0 at
1.0 V, 2.45 at 1.1 V. [H] HWiNFO of a Broadwell-EP, an E5-2630 v4: 1.03 V at 3.1 GHz. [A] assumed, in no data sheet.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

UNCORE_SHARE = 0.2  # [A] of the TDP: caches, memory controllers, links; never idle
LEAKAGE_SHARE = 0.25  # [A] of the TDP at the limit of temperature
DOUBLES_C = 30.0  # [A] degrees over which leakage doubles
UNGATED = 0.4  # [A] share of the cores' leakage that stays where all of them idle (C6 gates a core's power)
STALLED_ACTIVITY = 0.5  # [A] of a core that waits for memory, of one that computes
THROTTLES_C = 4.0  # [A] degrees above the limit over which the processor goes down to its least clock (PROCHOT)
AIR_C = 45.0  # [A] local ambient that a heat sink is laid out for: T_case = PSI_CA P + T_LA, Intel's thermal profile
MOST_CAP_W = 400.0  # above what any of them takes
HEAT_J_PER_K = 250.0  # [A] of a heat sink: some 0.6 kg of copper at 0.39 J/(g K)


@dataclass(frozen=True)
class Processor:
    """One package."""

    name: str
    cores: int
    tdp_w: float
    base_ghz: float
    levels: tuple[float, ...]  # that the clock may be set to, GHz, ascending
    turbo: tuple[float, ...]  # most GHz with 1, 2, ... active cores; beyond the last, the last
    volts: tuple[float, float]  # at the least and at the largest level; between them in proportion
    limit_c: float  # of its temperature, at which hardware throttles

    @cached_property
    def numbers(self) -> dict[str, float]:
        """What `power_w` takes, and the resistance to the air, K/W, that just holds the limit at TDP."""
        slope = (self.volts[1] - self.volts[0]) / (self.levels[-1] - self.levels[0])
        base_volts = self.volts[0] + slope * (self.base_ghz - self.levels[0])
        dynamic_w = (1.0 - UNCORE_SHARE - LEAKAGE_SHARE) * self.tdp_w
        return {"cores": float(self.cores), "tdp_w": self.tdp_w, "base_ghz": self.base_ghz, "limit_c": self.limit_c,
                "least_ghz": self.levels[0], "volts_slope": slope, "base_volts": base_volts,
                "capacity": dynamic_w / (self.cores * base_volts**2 * self.base_ghz),
                "resistance": (self.limit_c - AIR_C) / self.tdp_w}


def power_w(of: Any, clock_ghz: Any, busy: Any, activity: Any, temperature_c: Any) -> Any:
    """Mean power of a second: uncore + leakage(T, V) + C V^2 f (busy cores) (activity).

    C and the leakage are such that all cores at base clock, fully active at the limit of temperature, take the TDP.

    Args:
        of: `Processor.numbers` as attributes, numbers or tensors.
        busy: cores, mean over the second; activity: of a busy one, 1 where it never waits.
    """
    volts = of.base_volts + of.volts_slope * (clock_ghz - of.base_ghz)
    hot = 2.0 ** ((temperature_c - of.limit_c) / DOUBLES_C)
    gated = UNGATED + (1.0 - UNGATED) * busy / of.cores
    static = of.tdp_w * (UNCORE_SHARE + LEAKAGE_SHARE * hot * gated * volts / of.base_volts)
    return static + of.capacity * volts**2 * clock_ghz * busy * activity


def _hundreds(low: int, high: int) -> tuple[float, ...]:
    """Multiples of the 100 MHz bus clock, GHz."""
    return tuple(tenths / 10.0 for tenths in range(low, high + 1))


PROCESSORS = (
    # 2.0 GHz base, 3.0 GHz most [T, L]; 120 W, 14 cores [K, L]; turbo by active cores, limit of the case 84.5 C [K];
    # volts [A], of [H] at 3.0 GHz
    Processor("E5-2683 v3", 14, 120.0, 2.0, _hundreds(12, 30), (3.0, 3.0, 2.8, 2.7, 2.6, 2.5), (0.75, 1.02), 84.5),
    # 2.1 GHz base [T]; 3.3 GHz most [K], where the thesis says 3.1; 120 W, 18 cores, turbo, limit of the case 84 C [K];
    # volts [A], of [H] at 3.1 GHz
    Processor("E5-2695 v4", 18, 120.0, 2.1, _hundreds(12, 33), (3.3, 3.3, 3.1, 3.0, 2.9, 2.8, 2.7, 2.6), (0.75, 1.06),
              84.0),
    # 3.0 GHz base, 3.3 GHz most [T]; 16 cores, 155 W [R]; boost of all cores is 3.3 GHz too [AMD's product page, from
    # memory]; P-states: the least as in [P], the middle one [A], its boost as a level of its own [A]; volts by [P]'s
    # at the least, [A] at 3.3 GHz; AMD publishes no limit of the case: 90 C [A]
    Processor("EPYC 7302P", 16, 155.0, 3.0, (1.5, 2.5, 3.0, 3.3), (3.3,), (0.9, 1.15), 90.0),
)
LEVELS = tuple(sorted({level for one in PROCESSORS for level in one.levels}))
