"""From which end of the network to bound derivatives, learned during a search from a few boxes at a time.

Until there is something to learn from, both ends are taken, the second for the boxes that the first leaves unproved. A
trial bounds a few boxes, and the two parts that each would be split into, from either end and from both; what is
compared is the cost of the tree below them, boxes doubling with every split.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from models.verification.bounds.derivative_margins import Ends

BOTH: Ends = ("output", "input")
CHOICES: tuple[Ends, ...] = (BOTH, ("output",), ("input",))
# Boxes of a trial; boxes bounded before the first one, and how many times as many before the next: a trial bounds
# nine times its boxes, a seventh of a search's at most.
END_TRIALS, FIRST, GROWTH = 8, 512, 2.0
# Weight of a trial in the running means.
LEARNING = 0.5


@dataclass(frozen=True)
class Trial:
    """Mean margins of the boxes and, after a split, of their parts; cost of a bound, in any unit."""

    margin: float
    parts: float
    cost: float


@dataclass
class EndChoice:
    """ends: those to bound from; bounded: boxes so far; means: of the trials."""

    ends: Ends = BOTH
    bounded: int = 0
    next: float = FIRST
    means: dict[Ends, Trial] = field(default_factory=dict)

    def trial(self, boxes: int, unproved: int) -> bool:
        """Whether to try in a round of so many boxes."""
        self.bounded += boxes
        return self.bounded >= self.next and unproved > 0

    def learn(self, found: Mapping[Ends, Trial]) -> bool:
        """From a trial; whether other ends are taken from now on."""
        self.next = GROWTH * self.bounded
        if not all(math.isfinite(trial.margin) and math.isfinite(trial.parts) for trial in found.values()):
            return False
        for ends, new in found.items():
            old = self.means.get(ends, new)
            self.means[ends] = Trial(old.margin + LEARNING * (new.margin - old.margin),
                                     old.parts + LEARNING * (new.parts - old.parts), new.cost)
        before, self.ends = self.ends, min(self.means, key=self._tree)
        return self.ends != before

    def _tree(self, ends: Ends) -> float:
        """Logarithm to base 2 of the cost of a box's tree: as many splits deep as its margin is wide of a proof."""
        found = self.means[ends]
        step = max(found.parts - found.margin, 1e-3 * abs(found.margin), 1e-30)
        return max(-found.margin, 0.0) / step + math.log2(found.cost)
