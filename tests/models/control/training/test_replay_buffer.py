"""A ring of transitions: what was put in comes out, the oldest is forgotten, and draws repeat."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.control.training.replay_buffer import CAPACITY, Batch, ReplayBuffer


def batch(first: int, count: int) -> Batch:
    """Transitions in which every number tells which one it is."""
    number = torch.arange(first, first + count, dtype=torch.float32)
    return Batch(number[:, None] + torch.tensor([0.0, 0.1]), number[:, None] + 0.2, number + 0.3, number + 0.4,
                 number + 0.5, number[:, None] + torch.tensor([0.6, 0.7]))


def numbers(buffer: ReplayBuffer) -> set[float]:
    return set(buffer.state()["rows"][:, 0].tolist())


@settings(deadline=None)
@given(sizes=st.lists(st.integers(min_value=0, max_value=9), max_size=12))
def test_the_latest_stay(sizes: list[int]) -> None:
    buffer, given_numbers = ReplayBuffer(2, 1, capacity=7), list[int]()
    for size in sizes:
        buffer.add(batch(len(given_numbers), size))
        given_numbers += range(len(given_numbers), len(given_numbers) + size)
    assert len(buffer) == min(7, len(given_numbers))
    assert numbers(buffer) == set(map(float, given_numbers[-7:]))


def test_a_drawn_transition_is_one_that_was_put_in() -> None:
    buffer = ReplayBuffer(2, 1, capacity=50)
    buffer.add(batch(0, 80))
    drawn = buffer.sample(64, torch.Generator().manual_seed(0))
    for part, expected in zip(drawn, batch(0, 80), strict=True):
        torch.testing.assert_close(part, expected[drawn.features[:, 0].long()])


def test_draws_are_even_and_repeat() -> None:
    buffer = ReplayBuffer(2, 1, capacity=10)
    buffer.add(batch(0, 10))
    one, other = (buffer.sample(20_000, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one.reward, other.reward)
    shares = one.features[:, 0].long().bincount(minlength=10) / 20_000
    assert (shares - 0.1).abs().max() < 0.01  # 5 standard deviations


def test_a_restored_buffer_goes_on_as_if_nothing_had_happened() -> None:
    one = ReplayBuffer(2, 1, capacity=8)
    one.add(batch(0, 11))
    other = ReplayBuffer(2, 1, capacity=8)
    other.restore(one.state())
    for buffer in (one, other):
        buffer.add(batch(11, 3))
    assert torch.equal(one.state()["rows"], other.state()["rows"])
    with pytest.raises(InputError, match="expected at most 4 rows of 8 numbers"):
        ReplayBuffer(2, 1, capacity=4).restore(one.state())


def test_an_empty_buffer_gives_nothing() -> None:
    with pytest.raises(InputError, match="expected a transition to draw, got none"):
        ReplayBuffer(2, 1).sample(1, torch.Generator())
    assert CAPACITY == 10**6
