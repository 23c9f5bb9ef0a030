"""Many networks of equal sizes as one tensor a layer, trained side by side: one step of Adam on a batch each.

What one network computes does not depend on those beside it, and is what it computes alone. Measured with Intel's MKL
it is so bit for bit, for these reasons; elsewhere float32's rounding may differ:
- a slice of a batched product is the product alone, whatever the other slices are, except where a factor has one
  column: the last layer is taken network by network;
- rows of zeros change no product, except that one of few rows is taken another way, and no sum of 64 numbers in a
  full batch: batches of few rows, and sums over a batch that is not full, are taken network by network;
- Adam runs in vectors, the last numbers of a tensor one by one, with other roundings: no vector reaches from one
  network into the next.

The gradient of the mean squared error of a fully connected ReLU network is written out: torch's own bookkeeping took
longer than the arithmetic of small networks.

Symbols: N networks, of which the first A take part in a step; B places of a batch, m of them in use; n inputs, w width.
    x (A, B, n), y (A, B)   0 in places that are not in use
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from models.training.adam import Adam, adam_step

# Numbers of the longest vector of a processor's instructions, and one less than the shortest has.
LONGEST_VECTOR, BELOW_A_VECTOR = 16, 7
# Fewer rows than this are multiplied in other ways: measured up to 15, with layers 512 wide.
FEW_ROWS = 16


@dataclass(frozen=True)
class StepRows:
    """Rows of each network's batch in one step: counts (A,), not rising.

    part_full: networks whose batch is smaller than B, few: than FEW_ROWS; gradient_scale (A, 1): of the squared
    errors' means.
    """

    counts: tuple[int, ...]
    part_full: tuple[int, ...]
    few: tuple[int, ...]
    gradient_scale: Tensor

    @classmethod
    def of(cls, counts: Sequence[int], places: int) -> "StepRows":
        """places: B."""
        part_full = tuple(a for a, count in enumerate(counts) if count < places)
        few = tuple(a for a in part_full if counts[a] < FEW_ROWS)
        return cls(tuple(counts), part_full, few, 2 * (1 / torch.tensor(counts, dtype=torch.float32)[:, None]))


@dataclass(frozen=True)
class _Piece:
    """What Adam takes as one tensor: parts of parameter, gradient, mean, square; and its number of steps."""

    parameter: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    steps: Tensor


class NetworkStack:
    """Copies of networks and of their optimisers' moments; `write_back` copies them back.

    Args:
        optimisers: N, one over the parameters of each network (weight, bias, weight, ...): fully connected ReLU
            networks of equal sizes with one output.
        groups: sizes of consecutive groups of networks, N in all: those of a group take part in the same steps.
    """

    def __init__(self, optimisers: Sequence[Adam], groups: Sequence[int]) -> None:
        self.optimisers = optimisers
        self.parameters, self.means, self.squares = (
            [torch.stack(parts).detach() for parts in zip(*tensors, strict=True)] for tensors in (
                [optimiser.parameters for optimiser in optimisers], [optimiser.means for optimiser in optimisers],
                [optimiser.squares for optimiser in optimisers]))
        self.gradients = [torch.zeros_like(stacked) for stacked in self.parameters]
        self.weights, self.biases = self.parameters[::2], self.parameters[1::2]
        self.columns = [weight.t() for weight in self.weights[-1]]  # the last layer's, (w, 1) a network
        starts = [sum(groups[:g]) for g in range(len(groups) + 1)]
        self.ends = starts[1:]
        self.pieces = [self._pieces(start, end) for start, end in pairwise(starts)]

    def step(self, x: Tensor, y: Tensor, rows: StepRows, rate: float) -> Tensor:
        """One step of the first A networks with a learning rate. A: all networks of the first groups.

        Returns:
            (A,) mean squared errors before the step.
        """
        values = self._forward(x, rows)
        difference = values[-1][..., 0] - y  # 0 - 0 in places that are not in use
        squared = difference**2
        errors = squared.mean(1)
        for a in rows.part_full:
            errors[a] = squared[a, : rows.counts[a]].mean()
        self._backward(values, (difference * rows.gradient_scale)[..., None], rows)
        pieces = [piece for end, group in zip(self.ends, self.pieces, strict=True) if end <= len(x) for piece in group]
        adam_step([piece.parameter for piece in pieces], [piece.gradient for piece in pieces],
                  [piece.mean for piece in pieces], [piece.square for piece in pieces],
                  [piece.steps for piece in pieces], rate)
        return errors

    @torch.no_grad()
    def write_back(self) -> None:
        """Copies weights, moments and numbers of steps into the networks and their optimisers."""
        steps = [group[0].steps for group in self.pieces]
        for number, optimiser in enumerate(self.optimisers):
            taken = next(count for count, end in zip(steps, self.ends, strict=True) if number < end)
            for stacked, own in ((self.parameters, optimiser.parameters), (self.means, optimiser.means),
                                 (self.squares, optimiser.squares)):
                for whole, part in zip(stacked, own, strict=True):
                    part.copy_(whole[number])
            for count in optimiser.steps:
                count.copy_(taken)

    def _forward(self, x: Tensor, rows: StepRows) -> list[Tensor]:
        """Inputs, the hidden layers' values (A, B, w), and the outputs (A, B, 1): 0 in places not in use."""
        count, values = len(x), [x]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            sums = torch.baddbmm(bias[:count, None], values[-1], weight[:count].transpose(1, 2))
            for a in rows.few:
                used = slice(0, rows.counts[a])
                torch.addmm(bias[a], values[-1][a, used], weight[a].t(), out=sums[a, used])
            values.append(sums.relu_())
        output = torch.zeros(*x.shape[:2], 1)
        bias = self.biases[-1]
        for a, (last, out) in enumerate(zip(_used(values[-1], rows), _used(output, rows), strict=True)):
            torch.addmm(bias[a], last, self.columns[a], out=out)
        return [*values, output]

    def _backward(self, values: Sequence[Tensor], slope: Tensor, rows: StepRows) -> None:
        """Sets the gradients of the first A networks; slope (A, B, 1): of the loss by the outputs."""
        count, last = len(slope), len(self.weights) - 1
        weight_gradients, bias_gradients = self.gradients[::2], self.gradients[1::2]
        _sum_rows(slope, bias_gradients[last], rows)
        for own, value, out in zip(_used(slope, rows), _used(values[last], rows), weight_gradients[last][:count],
                                   strict=True):
            torch.mm(own.t(), value, out=out)
        for k in range(last - 1, -1, -1):
            above = self.weights[k + 1][:count]
            flowing = slope * above if k + 1 == last else torch.bmm(slope, above)
            for a in rows.few if k + 1 < last else ():
                used = slice(0, rows.counts[a])
                torch.mm(slope[a, used], above[a], out=flowing[a, used])
            slope = torch.ops.aten.threshold_backward(flowing, values[k + 1], 0)
            torch.bmm(slope.transpose(1, 2), values[k], out=weight_gradients[k][:count])
            _sum_rows(slope, bias_gradients[k], rows)

    def _pieces(self, start: int, end: int) -> list[_Piece]:
        """Adam's tensors of one group of networks."""
        taken = self.optimisers[start].steps[0]
        pieces = []
        for tensors in zip(self.parameters, self.gradients, self.means, self.squares, strict=True):
            size = tensors[0][0].numel()
            together = end - start if size % LONGEST_VECTOR == 0 else max(BELOW_A_VECTOR // size, 1)
            for first in range(start, end, together):
                own = slice(first, min(first + together, end))
                parameter, gradient, mean, square = (tensor[own] for tensor in tensors)
                pieces.append(_Piece(parameter, gradient, mean, square, taken.clone()))
        return pieces


def _used(batch: Tensor, rows: StepRows) -> list[Tensor]:
    """The places in use, (m, ...) a network."""
    parts = list(batch.unbind())
    for a in rows.part_full:
        parts[a] = parts[a][: rows.counts[a]]
    return parts


def _sum_rows(batch: Tensor, out: Tensor, rows: StepRows) -> None:
    """Sums (A, w) of a batch (A, B, w) over its rows, into the first A of `out`."""
    torch.sum(batch, 1, out=out[: len(batch)])
    for a in rows.part_full:
        torch.sum(batch[a, : rows.counts[a]], 0, out=out[a])
