"""Targets as they are set: whole numbers and levels, by the function that a live controller uses too."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.control.contract import signals
from models.control.contract.signals import Control


def settable(targets: Tensor, controls: Sequence[Control]) -> Tensor:
    """(..., m) targets as they are set; gradients pass as if they were not rounded (straight through)."""
    if not any(control.whole or control.levels for control in controls):
        return targets
    with torch.no_grad():
        found = torch.stack([signals.settable(column, control, torch)
                             for column, control in zip(targets.unbind(dim=-1), controls, strict=True)], dim=-1)
    return targets + (found - targets).detach()
