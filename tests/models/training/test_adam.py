"""Adam, against torch's own."""

import subprocess
import sys

import torch

from models.learners.mlp import build_mlp
from models.training.adam import Adam, adam_step


def test_it_is_torch_s_adam_bit_for_bit() -> None:
    ours, theirs = (build_mlp(5, (19, 7), torch.Generator().manual_seed(0)) for _ in range(2))
    optimiser, oracle = Adam(ours.parameters()), torch.optim.Adam(theirs.parameters(), fused=True)
    random = torch.Generator().manual_seed(1)
    for step in range(30):
        x, y, rate = torch.rand(16, 5, generator=random), torch.rand(16, generator=random), 0.01 / (1 + step)
        optimiser.step(((ours(x)[:, 0] - y) ** 2).mean(), rate)
        oracle.param_groups[0]["lr"] = rate
        oracle.zero_grad()
        ((theirs(x)[:, 0] - y) ** 2).mean().backward()
        oracle.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other) and one.grad is None
    assert [float(count) for count in optimiser.steps] == [30] * 6


def test_training_does_not_import_torch_s_compiler() -> None:
    code = ("import sys, torch; from models.training.adam import Adam; from models.training import stacked_training; "
            "p = torch.ones(3, requires_grad=True); Adam([p]).step((p * p).sum(), 0.1); "
            "sys.exit('torch._dynamo' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_gradient_of_any_layout_steps_its_own_weights():
    generator = torch.Generator().manual_seed(0)
    weight, gradient = torch.randn(3, 4, generator=generator), torch.randn(4, 3, generator=generator).T
    stepped = []
    for given in (gradient, gradient.contiguous()):
        own = weight.clone()
        adam_step([own], [given], [torch.zeros_like(own)], [torch.zeros_like(own)], [torch.zeros(())], 0.1)
        stepped.append(own)
    assert torch.equal(*stepped)
    assert torch.equal((stepped[0] - weight).sign(), -gradient.sign())
