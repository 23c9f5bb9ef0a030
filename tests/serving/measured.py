"""Errors of single test rows, as the export and gate steps record them of small bundles."""

from typing import Any

import numpy as np

TEST_ROWS = 60
SPAN = 2.0  # maximum - minimum of the target's scaling, in whose units a mean squared error is
TEST_SET = "7e57" * 16  # digest of the test rows


def residuals(mse: float) -> list[float]:
    """(TEST_ROWS,) with the mean square `mse` in units of SPAN.

    Those of two mses stand in one ratio in every row: no luck is in it.
    """
    shape = np.sin(np.arange(TEST_ROWS)) + 1.5
    return [float(value) for value in SPAN * shape * np.sqrt(mse / np.mean(shape**2))]


def measured_champion(version: int, mse: float, test_set: str = TEST_SET) -> dict[str, Any]:
    """What the gate step hands over: the champion on the new test set."""
    return {"version": version, "test_mse": mse, "residuals": residuals(mse), "test_sha256": test_set}
