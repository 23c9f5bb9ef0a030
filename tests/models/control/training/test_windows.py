"""Gradients of a window of steps: what is passed on, what is cut, of each policy its own."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from models.control.training.windows import cut_to_norm, discounted, falling_rate, limit_slopes, member_means


class State(NamedTuple):
    backlog: Tensor
    rest: tuple[Tensor, dict[str, Tensor], int]


@pytest.mark.parametrize("discount", [0.0, 0.3, 1.0])
def test_a_state_keeps_its_values_and_passes_on_a_share_of_each_gradient(discount: float) -> None:
    parts = [torch.tensor([2.0, 3.0], requires_grad=True) for _ in range(3)]
    state = discounted(State(parts[0] * 1.0, (parts[1] * 1.0, {"a": parts[2] * 1.0}, 7)), discount)
    tensors = [state.backlog, state.rest[0], state.rest[1]["a"]]
    assert state.rest[2] == 7
    for tensor in tensors:
        torch.testing.assert_close(tensor.detach(), torch.tensor([2.0, 3.0]))
        assert tensor.requires_grad == (discount > 0)
    if discount:
        sum((tensor * torch.tensor([5.0, 1.0])).sum() for tensor in tensors).backward()  # type: ignore[union-attr]
        for part in parts:
            torch.testing.assert_close(part.grad, discount * torch.tensor([5.0, 1.0]))


def test_slopes_by_the_logarithms_of_one_application_s_targets_are_cut_and_others_are_not() -> None:
    targets = torch.tensor([[2.0, 4.0], [2.0, 4.0]], requires_grad=True)
    passed = targets * 1.0
    limit_slopes(passed, most=1.0)
    # by logarithms: (3, 4), whose norm is 5; and (0.3, 0.4)
    (passed * torch.tensor([[1.5, 1.0], [0.15, 0.1]])).sum().backward()
    torch.testing.assert_close(targets.grad, torch.tensor([[0.3, 0.2], [0.15, 0.1]]))


def test_means_are_of_each_policy_s_own_applications() -> None:
    steps = [torch.tensor([1.0, 3.0, 10.0, 20.0]), torch.tensor([5.0, 7.0, 30.0, 40.0])]
    torch.testing.assert_close(member_means(steps, 2), torch.tensor([4.0, 25.0]))


def test_each_policy_s_gradient_is_cut_to_the_norm_over_all_its_weights() -> None:
    first, second = torch.tensor([[[3.0]], [[0.3]]]), torch.tensor([[4.0], [0.4]])
    (one, two), norms = cut_to_norm([first, second], 1.0)
    torch.testing.assert_close(norms, torch.tensor([5.0, 0.5]))
    torch.testing.assert_close(one, torch.tensor([[[0.6]], [[0.3]]]))
    torch.testing.assert_close(two, torch.tensor([[0.8], [0.4]]))


def test_the_rate_falls_by_a_cosine() -> None:
    found = [falling_rate(0.1, 0.02, progress) for progress in (0.0, 1 / 3, 0.5, 1.0)]
    assert found == pytest.approx([0.1, 0.1 * (0.02 + 0.98 * 0.75), 0.1 * 0.51, 0.002])
    assert math.isclose(falling_rate(0.1, 1.0, 0.7), 0.1)
