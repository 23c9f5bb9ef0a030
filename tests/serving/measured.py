"""Paired cases and gates of small bundles, as the export and gate steps record them."""

import hashlib
from typing import Any

import numpy as np

TEST_ROWS = 60
SPAN = 2.0  # maximum - minimum of the target's scaling, in whose units a mean squared error is
TEST_SET = "7e57" * 16  # digest of the test rows

GATES: dict[str, dict[str, Any]] = {
    "specification": {"verdict": "PROVED"},
    "test_accuracy": {"metric": "test_accuracy", "better": "larger", "at_least": 0.5},
    "champion_mse": {"metric": "test_mse", "better": "smaller", "relative_to": "champion", "at_most_ratio": 1.05,
                     "least_cases": 30},
    "baseline_mse": {"metric": "test_mse", "better": "smaller", "relative_to": "baseline_mse", "at_most_ratio": 1.5},
    "mean_baseline": {"metric": "test_mse", "better": "smaller", "relative_to": "mean_mse", "at_most_ratio": 1.0},
    "counterexample_accuracy": {"metric": "counterexample_accuracy", "better": "larger", "at_least": 1.0},
    "parity": {"metric": "parity_max_abs", "better": "smaller", "at_most": 0.0001},
    "latency": {"metric": "latency_us", "better": "smaller", "at_most": 500},
}


def squared_errors(mse: float) -> list[float]:
    """(TEST_ROWS,) in ms², with the mean `mse` in units of SPAN².

    Those of two mses stand in one ratio in every row: no luck is in it.
    """
    shape = (np.sin(np.arange(TEST_ROWS)) + 1.5) ** 2
    return [float(value) for value in SPAN**2 * mse * shape / np.mean(shape)]


def cases(mse: float, test_set: str = TEST_SET) -> dict[str, Any]:
    """evidence["cases"]; a test set is named by its digest, or by a word whose digest is taken."""
    digest = test_set if len(test_set) == 64 else hashlib.sha256(test_set.encode()).hexdigest()
    return {"quantity": "squared error", "metric": "test_mse", "better": "smaller", "unit": "ms²",
            "values": squared_errors(mse), "sha256": digest, "scale": SPAN**2, "block": None}


def measured_champion(version: int, mse: float, test_set: str = TEST_SET) -> dict[str, Any]:
    """What the gate step hands over: the champion on the new test set."""
    return {"version": version, "metrics": {"test_mse": mse}, "cases": cases(mse, test_set)}
