"""The finite cache of transitions that off-policy methods draw batches from (thesis, section 3.2.4; size: Table 5.2).

Preallocated; all N applications of a step go in as one operation, and a full buffer forgets the oldest. Reward, cost
and violation are kept apart, so that what is maximised (objective.py) can change its weights while training goes on.

Symbols: C capacity, B batch, f features, m controls; all float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from feature_store.errors import InputError

CAPACITY = 1_000_000  # Table 5.2; Table 3.3 has 10^5


class Batch(NamedTuple):
    """Transitions.

    Attributes:
        features: (B, f) normalised, as networks take them.
        action: (B, m) in [-1, 1].
        reward, cost, violated: (B,).
        following: (B, f) features of the next step.
    """

    features: Tensor
    action: Tensor
    reward: Tensor
    cost: Tensor
    violated: Tensor
    following: Tensor


class ReplayBuffer:
    """A ring of transitions."""

    def __init__(self, features: int, controls: int, capacity: int = CAPACITY) -> None:
        if capacity < 1:
            raise InputError(f"replay buffer: expected a capacity of at least 1, got {capacity}")
        self.capacity = capacity
        self._widths = (features, controls, 1, 1, 1, features)
        self._rows = torch.empty(capacity, sum(self._widths))  # one gather a batch
        self._next = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, batch: Batch) -> None:
        """Inserts transitions, oldest first; of more than fit the latest stay."""
        rows = torch.cat([part if part.dim() == 2 else part[:, None] for part in batch], dim=1).detach()
        rows = rows[-self.capacity:]
        first = min(len(rows), self.capacity - self._next)
        self._rows[self._next:self._next + first] = rows[:first]
        self._rows[:len(rows) - first] = rows[first:]
        self._next = (self._next + len(rows)) % self.capacity
        self._size = min(self._size + len(rows), self.capacity)

    def sample(self, count: int, generator: torch.Generator) -> Batch:
        """`count` transitions, each drawn from all with equal chance. Raises InputError where there is none."""
        if not self._size:
            raise InputError("replay buffer: expected a transition to draw, got none")
        rows = self._rows[torch.randint(self._size, (count,), generator=generator)]
        return self._parts(rows)

    def state(self) -> dict[str, Tensor]:
        """What `restore` takes: the rows in use, and where the next one goes."""
        return {"rows": self._rows[:self._size].clone(), "next": torch.tensor(self._next)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Goes on from `state`. Raises InputError where it is of other widths or larger than the capacity."""
        rows = state["rows"]
        if rows.shape[1] != self._rows.shape[1] or len(rows) > self.capacity:
            raise InputError(f"replay buffer: expected at most {self.capacity} rows of {self._rows.shape[1]} numbers, "
                             f"got {tuple(rows.shape)}")
        self._rows[:len(rows)] = rows
        self._size, self._next = len(rows), int(state["next"])

    def _parts(self, rows: Tensor) -> Batch:
        features, action, reward, cost, violated, following = rows.split(self._widths, dim=1)
        return Batch(features, action, reward[:, 0], cost[:, 0], violated[:, 0], following)
