"""What equations that a simulator shares with an observer need of tensors: `xp` of a contract's derived signals."""

from types import SimpleNamespace

import torch

TENSORS = SimpleNamespace(exp=torch.exp, log=torch.log, clamp=torch.clamp, where=torch.where)
