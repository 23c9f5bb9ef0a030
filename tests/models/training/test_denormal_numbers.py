"""Arithmetic without denormal numbers."""

import pytest
import torch

from models.training.denormal_numbers import denormals_flushed


def half_of_the_smallest() -> float:
    return float(torch.tensor(torch.finfo(torch.float32).tiny) / 2)


@pytest.fixture(autouse=True)
def _as_before() -> object:
    yield
    torch.set_flush_denormal(False)


def test_denormal_numbers_are_zero_within_and_numbers_again_afterwards() -> None:
    assert half_of_the_smallest() > 0
    with denormals_flushed():
        assert half_of_the_smallest() == 0
        with denormals_flushed():
            pass
        assert half_of_the_smallest() == 0
    assert half_of_the_smallest() > 0


def test_an_error_puts_it_back_too() -> None:
    with pytest.raises(ValueError, match="within"), denormals_flushed():
        raise ValueError("within")
    assert half_of_the_smallest() > 0
