"""Errors of single rows and the metric beside them tell one story, or are refused."""

from typing import Any

import numpy as np
import pytest

from feature_store.errors import InputError
from models.export.row_errors import recorded
from models.recorded_errors import MOST_RECORDED, checked_residuals

RESIDUALS = [float(value) for value in np.random.default_rng(5).normal(size=50)]
MSE = float(np.mean((np.array(RESIDUALS) / 4.0) ** 2))


def evidence(rows: Any = 50, low: Any = -1.0, high: Any = 3.0) -> dict[str, Any]:
    return {"metrics": {"test_rows": rows}, "target": {"minimum": low, "maximum": high}}


def test_what_was_measured_together_is_returned() -> None:
    assert checked_residuals(RESIDUALS, MSE, evidence()) == tuple(RESIDUALS)
    assert checked_residuals(RESIDUALS, MSE * (1 + 9e-7), evidence()) == tuple(RESIDUALS)
    assert checked_residuals([0.0] * 50, 0.0, evidence()) == (0.0,) * 50


def test_of_more_rows_than_are_recorded_only_the_number_can_be_held_to_it() -> None:
    kept = recorded(np.linspace(-1.0, 1.0, 3 * MOST_RECORDED))
    assert len(checked_residuals(kept, 0.1, evidence(3 * MOST_RECORDED))) == MOST_RECORDED
    with pytest.raises(InputError, match="one for each of the 60000 test rows"):
        checked_residuals(kept[:-1], 0.1, evidence(3 * MOST_RECORDED))


@pytest.mark.parametrize(("residuals", "mse", "changes", "message"), [
    (RESIDUALS, MSE * (1 + 2e-6), {}, "must have the mean square test_mse"),
    (RESIDUALS, 16 * MSE, {}, "must have the mean square test_mse"),
    (RESIDUALS, None, {}, "test_mse, no number"),
    ([1e200] * 50, MSE, {}, "got inf"),
    (RESIDUALS[:-1], MSE, {}, "one for each of the 50 test rows"),
    (RESIDUALS, MSE, {"rows": None}, "no number test rows"),
    (RESIDUALS, MSE, {"rows": 49}, "one for each of the 49 test rows"),
    (RESIDUALS, MSE, {"low": 3.0}, "a minimum below its maximum"),
    (RESIDUALS, MSE, {"high": None}, "a minimum below its maximum"),
    ([10**400] * 50, MSE, {}, "must be finite numbers"),
    ([True] * 50, MSE, {}, "must be finite numbers"),
    (None, MSE, {}, "must be a list of numbers"),
    ([], MSE, {}, "must be a list of numbers"),
])
def test_what_contradicts_itself_is_refused(residuals: Any, mse: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        checked_residuals(residuals, mse, evidence(**changes))
