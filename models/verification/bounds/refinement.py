"""Whether tighter bounds of single neurons pay, learned during a search from a few boxes at a time."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Weight of a round in the running estimate of what refinement leaves.
LEARNING = 0.3
# Boxes of a trial, open boxes met before the first one, and rounds from one trial to the next: a search that ends soon
# pays for none.
TRIALS, UNTRIED, EVERY = 8, 32, 16


@dataclass
class Refinement:
    """Whether refinement pays: what it gains beside what halving the box gains, and what it costs beside a plain bound.

    left: share of a bound's looseness that refinement leaves, 0..1; gain, step: by how much refinement and halving
    raise a margin; cost: of a refined bound in plain ones. All are running means over trials.
    """

    left: float = 0.0
    gain: float = 0.0
    step: float = 0.0
    cost: float = 1.0
    met: int = 0
    rounds: int = 0
    trials: int = 0

    @property
    def pays(self) -> bool:
        """A box that refinement proves would take about this many halvings, and the boxes of such a tree."""
        if not self.trials:
            return False
        halvings = self.gain / max(self.step, 1e-30)
        return halvings > 40 or 2 ** (halvings + 1) - 2 > self.cost

    def trial(self, candidates: int) -> bool:
        """Whether to try this round."""
        self.rounds += candidates > 0
        self.met += candidates
        return candidates > 0 and self.met > UNTRIED and (self.trials < 3 or self.rounds % EVERY == 0)

    def learn(self, plain: Tensor, refined: Tensor, halved: Tensor, reach: Tensor, cost: float) -> None:
        """From a trial's margins: plain, refined, of halves, and at most to be had; cost: of a refined bound."""
        left = ((reach - refined) / (reach - plain).clamp_min(1e-12)).clamp(0, 1)
        found = [(self.left, left), (self.gain, refined - plain), (self.step, halved - plain)]
        if not all(torch.isfinite(new).all() for _, new in found):
            return
        rate = max(LEARNING, 1 / (self.trials + 1))
        self.left, self.gain, self.step = (old + rate * (float(new.mean()) - old) for old, new in found)
        self.cost += rate * (cost - self.cost)
        self.trials += 1
