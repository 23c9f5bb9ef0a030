"""Mistakes in an environment are named by file and method before any work."""

from typing import Any

import pytest
import torch
import yaml

from feature_store.errors import InputError
from models.control.contract.first_steps import check_first_steps, check_settings_shown
from models.control.contract.systems import environment_names, environment_of
from models.control.training.windows import discounted
from models.tasks.control.checking import check_task
from models.tasks.task import parse_task
from tests.environments import broken
from tests.environments.backlog import Backlog
from tests.environments.test_backlog import TASK


@pytest.mark.parametrize(("environment", "message"), [
    (broken.SettingOfASignal(), "broken.py, settings: must not have 'wait_s': a signal of this name is measured"),
    (broken.SettingOfWhatIsSet(), "broken.py, settings: must not have 'capacity_rps'"),
    (broken.Fails(), r"broken.py, step: must not fail, got RuntimeError: .*shapes.*\(line \d+\)"),
    (broken.TooFew(), r"broken.py, observe: must return a tensor \(3, 5\) of float32, got a tensor \(3, 4\)"),
    (broken.Beyond(), "broken.py, observe: must return capacity_rps from 1 to 256 1/s, got "),
    (broken.Undefined(), "broken.py, step: must return a finite `reward`, got NaN or infinity"),
    (broken.MeasuresOthers(), "step: must return the measures capacity_rps, got capacity_rps, wait_over_slo"),
    (broken.Mean(), r"broken.py, step: must return `cost` as a tensor \(5,\), got a tensor \(\) of float32"),
    (broken.Detached(), "broken.py, step: must be differentiable in its targets"),
    (broken.NoTake(), "broken.py, draw: must return episodes that have `take`, got dict"),
    (broken.BrokenRule(), "rule silent, make: must return a controller with `start` and `act`, got NoneType"),
    (broken.NoObserver(), "acting tests.environments.nowhere: must not fail, got InputError: acting"),
], ids=lambda value: type(value).__name__ if isinstance(value, Backlog) else "")
def test_what_does_not_hold_is_named_by_file_and_method(environment: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        check_first_steps(environment)
    assert "\n" not in str(refused.value)


def test_the_environments_that_come_along_hold() -> None:
    for environment in (*map(environment_of, environment_names()), Backlog(), broken.DataclassBacklog()):
        check_first_steps(environment)


def test_a_task_file_is_refused_with_the_line_of_its_environment() -> None:
    text = TASK.read_text().replace("tests.environments.backlog", "tests.environments.broken")
    with pytest.raises(InputError, match=r"environment: .*'wait_s'.*task\.yaml"):
        check_task(parse_task(yaml.safe_load(text), "task.yaml"), "shop", "task.yaml", None)  # type: ignore[arg-type]


def test_a_signal_with_the_name_of_a_setting_shows_it() -> None:
    """A measurement may be constant in the first steps; the workload's own environment knows the setting."""
    check_settings_shown(Backlog(slo_s=3.0), {"slo_s": 3.0, "other": 7.0, "word": "x"}, "workload shop")
    with pytest.raises(InputError, match=r"setting slo_s: expected .*shows the setting, 2; the environment shows 3"):
        check_settings_shown(Backlog(slo_s=3.0), {"slo_s": 2.0}, "workload shop")


@pytest.mark.parametrize("discount", [0.0, 0.5])
def test_a_state_may_be_a_dataclass_through_which_gradients_are_cut_too(discount: float) -> None:
    environment = broken.DataclassBacklog()
    targets = torch.full((4, 1), 20.0, requires_grad=True)
    state, _ = environment.step(environment.reset(environment.draw("train", 4, 10, 0)), targets)
    found = discounted(state, discount)
    assert found.note == "kept" and torch.equal(found.inner.capacity, state.inner.capacity)
    assert found.inner.capacity.requires_grad is bool(discount)
    if discount:
        whole, part = (torch.autograd.grad(one.inner.capacity.sum(), targets, retain_graph=True)[0]
                       for one in (state, found))
        torch.testing.assert_close(part, discount * whole)
