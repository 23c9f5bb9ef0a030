"""Random numbers of training."""

import torch


def seeded(seed: int) -> torch.Generator:
    """On torch's default device, so that what is drawn with it lies where networks do; the CPU's are equal on all."""
    return torch.Generator(torch.get_default_device()).manual_seed(seed)
