"""SmartOverclock's agent: deep Q-learning by Tables A.4 and A.5 of the thesis, many agents side by side.

State (Table A.4): instructions a second, usage, measured clock, preservation ratio of the objective. Action: a level of
the clock, in GHz, of any processor; where a processor has no such level the simulator sets its next one. Settings are
Table A.5's; what it leaves open is Stable-Baselines3's DQN by default, which it is adopted from: layers of 64 and 64,
Huber loss, gradients cut to norm 10, a gradient step every 4 transitions, the target network every 10,000, a share of
0.05 of random actions in the end, only random ones before learning starts. (Its state is not discretised there.) The
library trains one agent at a time; here K agents are one stack, each with its own weights, transitions and moments.

    y = r + discount max_a Q'(s', a);   loss = Huber(Q(s, a) - y);   episodes end by time alone, so y has no last step

Symbols: K agents, E episodes of each at once, B transitions of a batch, A actions; float32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from models.control.contract.environment import Environment
from models.control.training.windows import cut_to_norm
from models.training.adam import Adam
from models.training.seeds import seeded
from systems.cpu_frequency.interface import SIGNALS
from systems.cpu_frequency.processors import LEVELS

LEVELS_GHZ = torch.tensor(LEVELS)
HIDDEN = (64, 64)
CLIP = 10.0
STATE = 4
_NAMES = tuple(signal.name for signal in SIGNALS)
_RANGES = {signal.name: (signal.low, signal.high) for signal in SIGNALS}


@dataclass(frozen=True)
class Settings:
    """Table A.5.

    Attributes:
        rate: of Adam.
        starts: transitions of an agent before its first gradient.
        batch: B.
        discount: of what follows.
        explored: share of training over which the share of random actions falls from 1 to `random`.
        random: share of random actions from then on.
        every: transitions a gradient step.
        renewed: transitions after which the target network takes the weights (all of them: update rate 1.0).
    """

    rate: float = 1e-4
    starts: int = 50_000
    batch: int = 32
    discount: float = 0.99
    explored: float = 0.1
    random: float = 0.05
    every: int = 4
    renewed: int = 10_000


def state_of(observation: Tensor) -> Tensor:
    """(N, 13) raw -> (N, 4) of Table A.4, each in [0, 1]; instructions and clock by their logarithms."""
    seen = dict(zip(_NAMES, observation.unbind(dim=1), strict=True))

    def place(name: str) -> Tensor:
        low, high = (torch.tensor(end).log() for end in _RANGES[name])
        return (seen[name].log() - low) / (high - low)

    preserved = (seen["most_latency_ms"] / seen["latency_ms"]).clamp(max=1.0)
    return torch.stack([place("ips_1e9"), seen["usage"], place("delivered_ghz"), preserved], dim=1)


def td_targets(reward: Tensor, following: Tensor, discount: float) -> Tensor:
    """(...) what the value of an action should be; following: (..., A) values of the next state's actions."""
    return reward + discount * following.amax(dim=-1)


class Agents:
    """K Q-networks, and Adam's moments of them."""

    def __init__(self, count: int, seed: int, actions: int = len(LEVELS), state: int = STATE) -> None:
        """Weights are uniform within 1 / sqrt(inputs), as torch's layers begin."""
        generator = seeded(seed)
        self.weights: list[Tensor] = []
        for inputs, outputs in pairwise((state, *HIDDEN, actions)):
            for shape in ((count, inputs, outputs), (count, 1, outputs)):
                first = (2.0 * torch.rand(shape, generator=generator) - 1.0) / inputs**0.5
                self.weights.append(first.requires_grad_())
        self.targets = [part.detach().clone() for part in self.weights]
        self.adam = Adam(self.weights)

    def __len__(self) -> int:
        return len(self.weights[0])

    def taken(self, index: list[int]) -> "Agents":
        """Some of them, each with moments that begin anew; one may be taken several times."""
        found = Agents(len(index), 0)
        with torch.no_grad():
            for own, target, part in zip(found.weights, found.targets, self.weights, strict=True):
                own.copy_(part[index])
                target.copy_(part[index])
        return found

    def values(self, states: Tensor, weights: list[Tensor] | None = None) -> Tensor:
        """(K, B, s) -> (K, B, A)."""
        layers = weights or self.weights
        for number in range(0, len(layers), 2):
            states = torch.baddbmm(layers[number + 1], states, layers[number])
            if number + 2 < len(layers):
                states = states.relu()
        return states

    def learn(self, states: Tensor, actions: Tensor, reward: Tensor, following: Tensor, settings: Settings) -> Tensor:
        """A gradient step of every agent.

        Args:
            states: (K, B, s); following: the next ones.
            actions: (K, B) int64.
            reward: (K, B).

        Returns:
            (K,) losses before it.
        """
        with torch.no_grad():
            wanted = td_targets(reward, self.values(following, self.targets), settings.discount)
        present = self.values(states).gather(-1, actions[..., None])[..., 0]
        losses = smooth_l1_loss(present, wanted, reduction="none").mean(dim=1)
        gradients, _ = cut_to_norm(torch.autograd.grad(losses.sum(), self.weights), CLIP)
        self.adam.apply(gradients, settings.rate)
        return losses.detach()

    def renew(self) -> None:
        """The target networks take the weights."""
        for target, own in zip(self.targets, self.weights, strict=True):
            target.copy_(own.detach())

    @torch.no_grad()
    def greedy(self, observation: Tensor) -> Tensor:
        """(K N, 13) raw, the rows of an agent next to each other -> (K N, 1) levels, GHz."""
        states = state_of(observation).unflatten(0, (len(self), -1))
        return LEVELS_GHZ[self.values(states).argmax(dim=-1)].flatten()[:, None]


@torch.no_grad()
def train(environment: Environment, agents: Agents, episodes: Callable[[int], Any], rounds: int, each: int, seed: int,
          settings: Settings, after: Callable[[int], None] = lambda done: None, explores: bool = True) -> None:
    """Trains in place, by E episodes of every agent a round.

    Args:
        environment: of CPU frequency.
        episodes: round -> K E of them, those of an agent next to each other.
        rounds: how many; each: E.
        seed: of what is random beside the episodes.
        settings: see `Settings`.
        after: called after every round with the number of those done, and with 0 at first.
        explores: whether the share of random actions falls from 1; else it is `random` from the beginning.
    """
    generator, count = seeded(seed), len(agents)
    total = rounds * environment.steps * each
    stored = {"state": torch.empty(count, total, STATE), "following": torch.empty(count, total, STATE),
              "action": torch.empty(count, total, dtype=torch.int64), "reward": torch.empty(count, total)}
    rows, size, learned = torch.arange(count)[:, None], 0, 0
    after(0)
    for number in range(rounds):
        state = environment.reset(episodes(number))
        seen = state_of(environment.observe(state)).unflatten(0, (count, each))
        for _ in range(environment.steps):
            share = settings.random
            if explores:
                share = max(share, 1.0 - (1.0 - share) * size / (settings.explored * total))
                share = 1.0 if size < settings.starts else share
            anyhow = torch.randint(len(LEVELS), (count, each), generator=generator)
            lucky = torch.rand((count, each), generator=generator) < share
            action = torch.where(lucky, anyhow, agents.values(seen).argmax(dim=-1))
            state, outcome = environment.step(state, LEVELS_GHZ[action].flatten()[:, None])
            following = state_of(environment.observe(state)).unflatten(0, (count, each))
            new = {"state": seen, "following": following, "action": action,
                   "reward": outcome.reward.unflatten(0, (count, each))}
            for name, values in new.items():
                stored[name][:, size:size + each] = values
            before, size, seen = size, size + each, following
            learned = max(learned, settings.starts)  # no gradient steps are caught up with
            while size >= learned + settings.every:
                learned += settings.every
                chosen = torch.randint(size, (count, settings.batch), generator=generator)
                batch = {name: values[rows, chosen] for name, values in stored.items()}
                with torch.enable_grad():
                    agents.learn(batch["state"], batch["action"], batch["reward"], batch["following"], settings)
            if size // settings.renewed > before // settings.renewed:
                agents.renew()
        after(number + 1)
