"""Whether the errors of single test rows that stand in a bundle's evidence bear the metric beside them.

Flow: `export` and `gate` record residuals (models/export/row_errors.py) and their mean square, test_mse; gates decide
by the metric, succession by the rows. Whoever lets evidence decide asks here first: both must tell one story. Pure, and
without pandas and onnxruntime, which `register` does without.

    residuals (k,)  prediction - measured, unit of the target; k = min(test rows, MOST_RECORDED)
    test_mse        mean of (residual / span)^2 over all test rows; span: maximum - minimum of the target's scaling
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from feature_store.errors import InputError
from models.gates import finite_number

MOST_RECORDED = 20_000  # residuals in a bundle's evidence, spread evenly over the rows
# Both come from one array in float64; sums of up to 20,000 squares in another order differ by less than 1e-11.
SAME = 1e-6


def checked_residuals(residuals: Any, test_mse: Any, evidence: Mapping[str, Any]) -> tuple[float, ...]:
    """The residuals of a model, which bear its test_mse.

    Args:
        residuals: as JSON holds them. test_mse: the same model's metric on the same rows.
        evidence: of the bundle whose test set and scaling they are of: metrics.test_rows, target.

    Raises:
        InputError: they are no finite numbers, too few or too many, or their mean square is another than test_mse.
    """
    if not isinstance(residuals, Sequence) or isinstance(residuals, str) or not residuals:
        raise InputError("errors of single test rows must be a list of numbers, got none")
    numbers = [finite_number(value) for value in residuals]
    values = tuple(value for value in numbers if value is not None)
    if len(values) < len(numbers):
        raise InputError("errors of single test rows must be finite numbers, got one that is not")
    rows = finite_number(_part(evidence, "metrics").get("test_rows"))
    if rows is None or len(values) != min(rows, MOST_RECORDED):
        raise InputError(f"errors of single test rows must be one for each of the {_said(rows)} test rows (at most "
                         f"{MOST_RECORDED}), got {len(values)}")
    span = _span(evidence)
    found = sum((value / span) * (value / span) for value in values) / len(values)
    metric = finite_number(test_mse)
    if rows <= MOST_RECORDED and (metric is None or not math.isclose(found, metric, rel_tol=SAME)):
        raise InputError(f"errors of single test rows must have the mean square test_mse, {_said(metric)}, got "
                         f"{found:.6g}")
    return values


def _span(evidence: Mapping[str, Any]) -> float:
    """Width of the target's scaling."""
    low, high = (finite_number(_part(evidence, "target").get(side)) for side in ("minimum", "maximum"))
    if low is None or high is None or not 0 < high - low < math.inf:
        raise InputError(f"target must have a minimum below its maximum, got {_said(low)} and {_said(high)}")
    return high - low


def _part(evidence: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = evidence.get(name)
    return found if isinstance(found, Mapping) else {}


def _said(number: float | None) -> str:
    return "no number" if number is None else f"{number:.6g}"
