"""Which services of the adaptation benchmark train and which are unseen, and the reward that they are paid.

A service is a number from 0 to 999 here: below 800 it is a training one, from 800 on a held-out one; number modulo 3 is
its processor (programs.py). Symbols: N episodes, P processors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from models.control.contract.environment import Outcome
from systems.cpu_frequency.environment import ENVIRONMENT
from systems.cpu_frequency.processors import PROCESSORS
from systems.cpu_frequency.programs import SERVICES, Programs
from systems.cpu_frequency.simulator import CpuFrequency, State

FIRST_HELD_OUT = SERVICES["train"]
POOL = 201  # training services of a pool, a third on each processor; the thesis pretrains on 200 (section 5.6.3)
# of the reward, for the power limit: as much as for a latency without bounds, so that clocks have to be weighed
PRICE = 0.5
REWARDS = {"Table A.4": 0.0, "with power": PRICE}


class PaidFrequency(CpuFrequency):
    """The simulator, with Table A.4's reward less a price of power.

    Args:
        price: of the reward, for the power limit; 0: Table A.4's alone, which asks nothing for power.
    """

    def __init__(self, price: float) -> None:
        super().__init__()
        self.price = price

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        """See `Environment`."""
        state, outcome = super().step(state, targets)
        return state, replace(outcome, reward=outcome.reward - self.price * outcome.cost)


@dataclass(frozen=True)
class Choice:
    """Numbers of services.

    Attributes:
        targets: unseen ones that all are judged on and adapted to.
        pools: services of a pool: of all processors ("") and of all but one, by its name.
        sources: seed -> training services of which each trains agents of its own.
    """

    targets: tuple[int, ...]
    pools: dict[str, tuple[int, ...]]
    sources: tuple[tuple[int, ...], ...]


def processor_of(service: int) -> int:
    """Its number in PROCESSORS."""
    return service % len(PROCESSORS)


def choice_of(seeds: int, targets: int, sources: int) -> Choice:
    """The same numbers whatever is trained.

    Args:
        seeds: of training.
        targets, sources: how many on each processor, the latter for each seed.
    """
    count = len(PROCESSORS)
    every = tuple(range(POOL))
    own = []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        found = [count * int(row) + processor for processor in range(count)
                 for row in torch.randperm(POOL // count, generator=generator)[:sources]]
        own.append(tuple(found))
    step = (sum(SERVICES.values()) - FIRST_HELD_OUT) // count // targets
    unseen = tuple(FIRST_HELD_OUT + count * step * row + place for row in range(targets) for place in range(count))
    return Choice(unseen, {"": every} | {
        one.name: tuple(service for service in every if processor_of(service) != number)
        for number, one in enumerate(PROCESSORS)}, tuple(own))


def draw(services: Sequence[int], steps: int, seed: int) -> Programs:
    """An episode of each of N services, of both splits."""
    numbers = torch.tensor(list(services))
    parts, order = [], []
    for split, first in (("train", 0), ("held_out", FIRST_HELD_OUT)):
        mine = (numbers >= FIRST_HELD_OUT) == (first > 0)
        if bool(mine.any()):
            own = (numbers[mine] - first).tolist()
            parts.append(ENVIRONMENT.draw(split, len(own), steps + 1, seed, applications=own))
            order.append(mine.nonzero()[:, 0])
    together = Programs(**{one.name: torch.cat([getattr(part, one.name) for part in parts], dim=-1)
                           for one in fields(Programs)})
    return together.take(torch.cat(order).argsort())
