"""What training by gradients through windows of an environment's steps needs, of many policies side by side.

Symbols: K policies, N applications of each, the applications of one next to each other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor


def discounted(state: Any, discount: float) -> Any:
    """The same state, through which gradients pass multiplied by `discount`; 0: none.

    Args:
        state: tensors, in dataclasses, (named) tuples, lists and mappings; anything else is left as it is.
    """
    match state:
        case Tensor() if not state.requires_grad:
            return state
        case Tensor():
            return torch.lerp(state.detach(), state, discount) if discount else state.detach()
        case tuple() if hasattr(state, "_make"):
            return state._make(discounted(part, discount) for part in state)
        case tuple() | list():
            return type(state)(discounted(part, discount) for part in state)
        case Mapping():
            return {key: discounted(value, discount) for key, value in state.items()}
        case _ if is_dataclass(state) and not isinstance(state, type):
            return replace(state, **{one.name: discounted(getattr(state, one.name), discount)
                                     for one in fields(state) if one.init})
    return state


def limit_slopes(targets: Tensor, most: float) -> None:
    """Cuts the gradient that will come to targets (K * N, m): by the logarithms of each application's to `most`.

    Without it a few applications near collapse, with slopes of thousands beside a median of 0.1, decide everything.
    """
    targets.register_hook(partial(_limited, targets.detach(), most))


def _limited(targets: Tensor, most: float, gradient: Tensor) -> Tensor:
    norm = (gradient * targets).norm(dim=1, keepdim=True)
    return gradient * (most / norm.clamp(min=1e-12)).clamp(max=1.0)


def member_means(values: Sequence[Tensor], members: int) -> Tensor:
    """(K,) means over steps and applications of tensors (K * N,)."""
    return torch.stack(list(values)).mean(dim=0).reshape(members, -1).mean(dim=1)


def cut_to_norm(gradients: Sequence[Tensor], clip: float) -> tuple[list[Tensor], Tensor]:
    """Gradients (K, ...) of K policies' weights, those of each cut to the norm `clip`; the (K,) norms before."""
    norms = torch.stack([gradient.flatten(1).square().sum(dim=1) for gradient in gradients]).sum(dim=0).sqrt()
    factor = (clip / norms.clamp(min=1e-12)).clamp(max=1.0)
    return [gradient * factor.view(-1, *[1] * (gradient.dim() - 1)) for gradient in gradients], norms


def falling_rate(rate: float, last: float, progress: float) -> float:
    """A learning rate that falls by a cosine to the share `last`, while `progress` rises from 0 to 1."""
    return rate * (last + (1 - last) * 0.5 * (1 + math.cos(math.pi * progress)))
