"""Draws the combinations of a campaign from its seed. Pure: the same settings give the same plan."""

from dataclasses import dataclass

import numpy as np

from feature_store.errors import InputError
from recording.interference import Phase, draw_phases
from recording.settings import CampaignSettings
from recording.workloads.catalogue import WORKLOADS

# Combinations of k workloads are drawn in proportion to k squared: every size up to theta occurs, and the
# crowded ones, which give more samples and more interference per second of recording, dominate.
_SIZE_EXPONENT = 2.0
# After so many draws in a row that were there already, others are given up.
_MOST_DRAWS = 1000


@dataclass(frozen=True)
class PlannedWorkload:
    """One workload of a combination with the values of its configurable properties."""

    name: str
    configuration: dict[str, float]


@dataclass(frozen=True)
class Combination:
    """One colocation combination.

    Attributes:
        identifier: value of the column `combination`, `<environment>-<number>`.
        workloads: what runs together, in the catalogue's order.
        interference: phases of stress-ng beside them; empty for none.
    """

    identifier: str
    workloads: tuple[PlannedWorkload, ...]
    interference: tuple[Phase, ...]


def draw_sizes(random: np.random.Generator, count: int, theta: int) -> list[int]:
    """Sizes of `count` combinations in 1..theta: fixed shares by largest remainder, in random order."""
    weights = np.arange(1, theta + 1, dtype=float) ** _SIZE_EXPONENT
    quotas = count * weights / weights.sum()
    shares = np.floor(quotas).astype(int)
    for index in np.argsort(shares - quotas, kind="stable")[: count - shares.sum()]:
        shares[index] += 1
    sizes = np.repeat(np.arange(1, theta + 1), shares)
    return [int(size) for size in random.permutation(sizes)]


def plan_campaign(settings: CampaignSettings) -> list[Combination]:
    """The combinations that a campaign with these settings records, in order.

    Raises:
        InputError: there are not so many that differ.
    """
    random = np.random.default_rng(settings.seed)
    digits = len(str(settings.combinations - 1))
    plan: list[Combination] = []
    seen: set[str] = set()
    for size in draw_sizes(random, settings.combinations, settings.theta):
        for _ in range(_MOST_DRAWS):
            workloads = _draw_workloads(random, settings, size)
            phases = (
                draw_phases(random, settings.profile, settings.seconds_per_combination)
                if settings.interference
                else ()
            )
            # Where there are too few configurations to differ in, the interference still does.
            if (key := repr((workloads, phases))) not in seen or not settings.interference:
                break
        else:
            raise InputError(f"combinations must differ, got {settings.combinations} and only {len(plan)} that do: "
                             "ask for fewer, for more workloads, or for longer ones")
        seen.add(key)
        plan.append(Combination(f"{settings.environment}-{len(plan):0{digits}d}", workloads, phases))
    return plan


def _draw_workloads(
    random: np.random.Generator, settings: CampaignSettings, size: int
) -> tuple[PlannedWorkload, ...]:
    chosen = sorted(random.choice(len(settings.workloads), size=size, replace=False))
    drawn = []
    for index in chosen:
        name = settings.workloads[index]
        ranges = WORKLOADS[name].ranges(settings.profile)
        drawn.append(
            PlannedWorkload(name, {key: float(random.choice(values)) for key, values in ranges.items()})
        )
    return tuple(drawn)
