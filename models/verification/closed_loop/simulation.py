"""The law and a policy step by step, from many starts at once and under loads that are meant to do harm.

It looks for trajectories that refute a guarantee, and says how close to a proved one they come.

Symbols: m trajectories, T steps; states (T + 1, m, 3) as (b, a, c).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.verification.closed_loop.chain_builder import chain_values
from models.verification.closed_loop.one_step import OneStep
from models.verification.network.graph import FloatArray
from models.verification.network.runtime_session import open_session

Execute = Callable[[FloatArray], FloatArray]  # what the policy sees (m, n) -> its target (m,)
LOADS = ("high", "low", "waves", "random", "greedy", "reverse")


@dataclass(frozen=True)
class Trajectories:
    """states (T + 1, m, 3); of each trajectory the way its load moves."""

    states: FloatArray
    loads: tuple[str, ...]

    def largest(self, after: int) -> tuple[float, float]:
        """The largest backlog, and the largest excess of capacity over load, from a step on."""
        late = self.states[after:]
        return (float(late[..., 0].max()), float((late[..., 2] - late[..., 1]).max())) if len(late) else (0.0, 0.0)


def simulate(loop: OneStep, backlog: float, steps: int, count: int = 600, seed: int = 0,
             execute: Execute | None = None) -> Trajectories:
    """About `count` trajectories from backlogs up to `backlog`, any load and capacity; corners among them.

    Loads: as high or low as they go, waves at the fastest change, random, and the two that raise or lower V most in
    every step. What is free in the observation is held, random, or at its ends.
    """
    law, random = loop.law, np.random.default_rng(seed)
    run = execute or (lambda seen: chain_values(loop.policy, seen)[:, 0])
    share = random.random((count, 3))
    share[: count // 2] = np.round(share[: count // 2])
    low = np.array([0.0, law.load_low, law.capacity_low])
    state = low + share * (np.array([backlog, law.load_high, law.capacity_high]) - low)
    kinds = np.arange(count) % len(LOADS)
    period = np.maximum(random.integers(1, max(int(4 * (law.load_high - law.load_low) / max(law.change, 1e-9)), 2),
                                        count), 1)
    phase, noise = random.integers(0, 1_000_000, count), np.round(random.random((count, loop.observation.inputs)))
    mode = random.integers(0, 3, count)
    states = [state]
    for step in range(steps):
        b, a, c = states[-1].T
        drawn = random.random(noise.shape)
        free = np.where(mode[:, None] == 0, noise, np.where(mode[:, None] == 1, drawn, np.round(drawn)))
        target = law.next_capacity(run(loop.observation.seen(b, a, c, free)))
        following = law.next_backlog(b, a, c)
        wave = np.where((step + phase) // period % 2 == 0, law.change, -law.change)
        rises = np.stack([np.full(count, law.change), np.full(count, -law.change), wave,
                          law.change * (2 * random.random(count) - 1)])
        ends = [law.next_load(a, np.full(count, sign * law.change)) for sign in (1, -1)]
        values = [loop.value(following, load, target) for load in ends]
        rises = np.vstack([rises, np.where(values[0] >= values[1], law.change, -law.change),
                           np.where(values[0] >= values[1], -law.change, law.change)])
        load = law.next_load(a, rises[kinds, np.arange(count)])
        states.append(np.stack([following, load, target], axis=1))
    return Trajectories(np.stack(states), tuple(LOADS[k] for k in kinds))


def in_runtime(model: Path) -> Execute:
    """The policy in onnxruntime, on its own file, one decision at a time as a controller makes them."""
    session = open_session(str(model), optimised=False)
    (entry,) = session.get_inputs()
    number = {"tensor(float)": np.float32, "tensor(double)": np.float64}[entry.type]

    def run(seen: FloatArray) -> FloatArray:
        return np.array([session.run(None, {entry.name: row[None].astype(number)})[0].item() for row in seen])

    return run
