"""Adam (Kingma and Ba, ICLR 2015) by torch's fused kernel, with torch's default decay rates.

What torch.optim.Adam computes, bit for bit. Its first use in a process imports torch's compiler, which no one needs
here: 1 s of processor time and 85 MB, more than training a small workload takes.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam


class Adam:
    """Parameters, their moments, and the steps taken: a tensor each, so that a stack can go on from them."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = list(parameters)
        self.means, self.squares = ([torch.zeros_like(part).detach() for part in self.parameters] for _ in range(2))
        self.steps = [torch.zeros(()) for _ in self.parameters]

    def step(self, loss: Tensor, rate: float) -> None:
        """One step down the gradient of a loss."""
        self.apply(torch.autograd.grad(loss, self.parameters), rate)

    def apply(self, gradients: Sequence[Tensor], rate: float) -> None:
        """One step down gradients."""
        adam_step(self.parameters, gradients, self.means, self.squares, self.steps, rate)


@torch.no_grad()
def adam_step(parameters: Sequence[Tensor], gradients: Sequence[Tensor], means: Sequence[Tensor],
              squares: Sequence[Tensor], steps: Sequence[Tensor], rate: float) -> None:
    """One step of each parameter, in place; steps: () each, how many it took before, one more afterwards.

    The fused kernel takes every gradient for contiguous and says nothing where one is not, as that of a weight that
    was used transposed: it would step other weights.
    """
    gradients = [gradient.contiguous() for gradient in gradients]
    adam(list(parameters), gradients, list(means), list(squares), [], list(steps), fused=True, lr=rate, beta1=0.9,
         beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False)
