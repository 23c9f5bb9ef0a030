"""What can be set of a target: whole numbers and levels, alike for numpy and torch, to the safe side."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.control.contract.signals import ROUNDING, Control, settable
from models.control.simulation import settable as in_simulation

MHZ = (800.0, 1000.0, 1500.0, 3000.0)
CLOCK = Control("target_mhz", "mhz", "MHz", 800.0, 3000.0, 0.5, 1.0, levels=MHZ)
COUNT = Control("target", "now", "1", 1.0, 9.0, 0.25, 0.5, whole=True)


def less(control: Control) -> Control:
    return replace(control, safe_side="less")


@pytest.mark.parametrize(("control", "target", "expected"), [
    (CLOCK, 1000.0, 1000.0), (CLOCK, 1000.0005, 1000.0), (CLOCK, 1000.5, 1500.0), (CLOCK, 1499.9995, 1500.0),
    (CLOCK, 3100.0, 3000.0), (CLOCK, 10.0, 800.0),
    (less(CLOCK), 1000.0, 1000.0), (less(CLOCK), 999.9995, 1000.0), (less(CLOCK), 999.5, 800.0),
    (less(CLOCK), 2999.0, 1500.0), (less(CLOCK), 5.0, 800.0), (less(CLOCK), 4000.0, 3000.0),
    (COUNT, 3.0005, 3.0), (COUNT, 3.002, 4.0), (less(COUNT), 3.9995, 4.0), (less(COUNT), 3.998, 3.0),
    (replace(CLOCK, levels=()), 1234.5, 1234.5),
])
def test_what_is_between_goes_to_the_safe_side(control: Control, target: float, expected: float) -> None:
    assert float(settable(np.asarray(target), control, np)) == expected
    found = in_simulation.settable(torch.tensor([[target, target]]), (control, replace(CLOCK, levels=())))
    torch.testing.assert_close(found, torch.tensor([[expected, target]]))


@given(st.lists(st.floats(1.0, 5000.0, width=32), min_size=1, max_size=20), st.sampled_from(["more", "less"]))
def test_live_and_simulated_agree_and_what_is_set_stays(targets: list[float], side: Any) -> None:
    control = replace(CLOCK, safe_side=side)
    live = settable(np.asarray(targets, dtype=np.float32), control, np)
    simulated = in_simulation.settable(torch.tensor(targets)[:, None], (control,))[:, 0]
    assert np.array_equal(live, simulated.numpy()) and set(live.tolist()) <= set(MHZ)
    assert np.array_equal(settable(live, control, np), live)
    towards = live - np.clip(np.asarray(targets), MHZ[0], MHZ[-1])
    assert (towards >= -ROUNDING - 1e-3).all() if side == "more" else (towards <= ROUNDING + 1e-3).all()


def test_gradients_pass_as_if_nothing_was_rounded() -> None:
    targets = torch.tensor([[1234.0, 2.4]], requires_grad=True)
    found = in_simulation.settable(targets, (CLOCK, COUNT))
    assert found.tolist() == [[1500.0, 3.0]]
    (found * torch.tensor([2.0, 5.0])).sum().backward()
    assert targets.grad is not None and targets.grad.tolist() == [[2.0, 5.0]]


def test_one_level_is_a_fixed_target() -> None:
    fixed = replace(CLOCK, low=1500.0, high=1500.0, levels=(1500.0,))
    assert float(settable(np.asarray(900.0), fixed, np)) == 1500.0 and fixed.span == 1500.0


@pytest.mark.parametrize(("changed", "message"), [
    ({"levels": (800.0, 1500.0, 1000.0, 3000.0)}, "ascending levels"),
    ({"levels": (0.0, 800.0, 3000.0)}, "ascending levels"),
    ({"low": 900.0}, "low and high among"),
    ({"whole": True}, "not whole"),
    ({"most_up": 0.9}, "reach the next level, 2 times"),
    ({"most_down": 0.49}, "reach the next level, 2 times"),
])
def test_levels_that_cannot_be_acted_on_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CLOCK, **changed)
