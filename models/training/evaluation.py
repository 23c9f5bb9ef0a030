"""How good a learner is: errors, accuracy, and the curves a reviewer looks at.

Symbols: x (m, n) scaled features, y (m,) scaled target; accuracy: share with |f(x) - y| < tolerance
(equation 2 of vPALs, tolerance 0.05 of the scaled target).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from feature_store.scaling import FeatureScaling
from models.verification.language.specification import FloatArray

Predict = Callable[[FloatArray], FloatArray]


def mean_squared_error(predicted: FloatArray, y: FloatArray) -> float:
    """Mean of (f(x) - y)^2."""
    return float(np.mean((predicted - y) ** 2))


def mean_absolute_error(predicted: FloatArray, y: FloatArray) -> float:
    """Mean of |f(x) - y|."""
    return float(np.mean(np.abs(predicted - y)))


def accuracy(predicted: FloatArray, y: FloatArray, tolerance: float) -> float:
    """Share of |f(x) - y| < tolerance."""
    return float(np.mean(np.abs(predicted - y) < tolerance))


def scores(prefix: str, predict: Predict, x: FloatArray, y: FloatArray, tolerance: float) -> dict[str, float]:
    """{prefix}_mse, {prefix}_mae and {prefix}_accuracy."""
    predicted = predict(x)
    return {f"{prefix}_mse": mean_squared_error(predicted, y), f"{prefix}_mae": mean_absolute_error(predicted, y),
            f"{prefix}_accuracy": accuracy(predicted, y, tolerance)}


def partial_dependence(
    learners: Mapping[str, Predict], x: FloatArray, scaling: FeatureScaling, queries: Sequence[tuple[int, int]],
    grid: int = 40, rows: int = 200,
) -> dict[str, Any]:
    """Mean prediction along each monotone feature, raw units, over at most `rows` rows spread through x."""
    picked = x[np.linspace(0, len(x) - 1, min(rows, len(x))).astype(int)]
    curves: dict[str, Any] = {}
    for feature, sign in queries:
        axis = np.linspace(0.0, 1.0, grid)
        repeated = np.repeat(picked[None], grid, axis=0)
        repeated[:, :, feature] = axis[:, None]
        flat = repeated.reshape(-1, x.shape[1])
        low, high = scaling.features.minimum[feature], scaling.features.maximum[feature]
        curve: dict[str, Any] = {"x": (low + axis * (high - low)).tolist(),
                                 "direction": "increasing" if sign > 0 else "decreasing"}
        for name, predict in learners.items():
            mean = predict(flat).reshape(grid, -1).mean(axis=1)
            curve[name] = scaling.target.unscale(mean[:, None])[:, 0].tolist()
        curves[scaling.features.names[feature]] = curve
    return curves


def predictions(learners: Mapping[str, Predict], x: FloatArray, y: FloatArray, scaling: FeatureScaling,
                rows: int = 500) -> dict[str, list[float]]:
    """Measured and predicted target in raw units, at most `rows` rows spread through x."""
    picked = np.linspace(0, len(x) - 1, min(rows, len(x))).astype(int)
    columns = {"measured": y[picked], **{name: predict(x[picked]) for name, predict in learners.items()}}
    return {name: scaling.target.unscale(values[:, None])[:, 0].tolist() for name, values in columns.items()}
