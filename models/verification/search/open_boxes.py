"""The boxes that a search has still to prove, in chunks that were made together.

A round touches the chunks that it takes from and no others, so that its cost does not grow with the open boxes. Chunks
with the worst boxes come first, which finds counterexamples early (for a proof all boxes must be closed, in any order),
until MOST_OPEN are open: then the best, whose proofs are near, so that memory is bounded.

Symbols: N boxes, n inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Open boxes from which on the search goes into depth.
MOST_OPEN = 10_000


@dataclass(frozen=True)
class Boxes:
    """lower, upper (N, n) walls; root, node, share of the volume, margin of the parent: (N,)."""

    lower: Tensor
    upper: Tensor
    root: Tensor
    node: Tensor
    share: Tensor
    parent_margin: Tensor

    def __len__(self) -> int:
        return len(self.node)

    def pick(self, rows: Tensor | slice) -> "Boxes":
        """These of the boxes."""
        return Boxes(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def sorted(self, best_first: bool = False) -> "Boxes":
        """By their parents' margins."""
        return self.pick(torch.argsort(self.parent_margin, descending=best_first))


def joined(parts: Sequence[Boxes]) -> Boxes:
    """All boxes of the parts (at least one)."""
    return parts[0] if len(parts) == 1 else Boxes(
        *(torch.cat([getattr(part, name) for part in parts]) for name in Boxes.__dataclass_fields__))


class OpenBoxes:
    """Begins with these boxes, cut into chunks of `batch`."""

    def __init__(self, boxes: Boxes, batch: int) -> None:
        self.chunks: list[tuple[float, Boxes]] = []
        self.count = 0
        ordered = boxes.sorted()
        for first in range(0, len(boxes), batch):
            self.put(ordered.pick(slice(first, first + batch)))

    def __len__(self) -> int:
        return self.count

    def put(self, boxes: Boxes) -> None:
        """Adds a chunk."""
        if len(boxes):
            self.chunks.append((float(boxes.parent_margin.min()), boxes))
            self.count += len(boxes)

    def take(self, most: int) -> Boxes:
        """Removes at most so many boxes (at least one), of the chunks whose turn it is."""
        best_first = self.count > MOST_OPEN
        choose = max if best_first else min
        taken: list[Boxes] = []
        while self.chunks and most > 0:
            at = choose(range(len(self.chunks)), key=lambda k: self.chunks[k][0])
            _, boxes = self.chunks.pop(at)
            self.count -= len(boxes)
            if len(boxes) > most:
                boxes = boxes.sorted(best_first)
                self.put(boxes.pick(slice(most, None)))
                boxes = boxes.pick(slice(most))
            most -= len(boxes)
            taken.append(boxes)
        return joined(taken)
