"""What the data say about the directions that a specification demands, whichever those are.

For each monotone feature:
    rank_correlation   Spearman's with the target
    others_equal       the same question with the other features roughly equal: over the rows, each with its nearest
                       neighbour in the ranks of the other features, the share of pairs in which the target rises with
                       the feature minus the share in which it falls; -1..1 (Kendall's tau of these pairs)

For the specification as a whole the cross-validated squared error of gradient boosting that is free, that obeys it and
that obeys its reverse, a fold a value, as a share of the constant predictor's: of the target, and of the target's
ranks, where an outlier weighs no more than any other row.

Symbols: x (m, n) features, y (m,) target, group (m,): rows that no fold may part.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import rankdata
from sklearn.model_selection import GroupKFold

from models.training.baseline import monotone_gradient_boosting
from models.training.evaluation import mean_squared_error
from models.verification.language.specification import FloatArray

Queries = Sequence[tuple[int, int]]
FOLDS = 5


def measure_directions(x: FloatArray, y: FloatArray, group: NDArray[np.int64], queries: Queries, names: Sequence[str],
                       seed: int) -> dict[str, Any]:
    """{"features": {name: {"sign", "rank_correlation", "others_equal"}}, "errors": {of: {which: one a fold}}}."""
    ranks, rank_y = rankdata(x, axis=0) / len(x), rankdata(y) / len(y)
    features = {names[feature]: {"sign": sign, "rank_correlation": _correlation(ranks[:, feature], rank_y),
                                 "others_equal": _others_equal(ranks, rank_y, feature)} for feature, sign in queries}
    kinds: dict[str, Queries] = {"free": (), "as_specified": tuple(queries),
                                 "reversed": tuple((feature, -sign) for feature, sign in queries)}
    errors = {of: {kind: _errors(x, target, group, own, seed) for kind, own in kinds.items()}
              for of, target in (("target", y), ("ranks", rank_y))}
    return {"rows": len(x), "features": features, "errors": errors}


def _correlation(a: FloatArray, b: FloatArray) -> float:
    """Pearson's; 0 for a constant column."""
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else 0.0


def _others_equal(ranks: FloatArray, rank_y: FloatArray, feature: int) -> float:
    others = np.delete(ranks, feature, axis=1)
    nearest = cKDTree(others).query(others, k=2)[1]
    rows = np.arange(len(ranks))
    partner = np.where(nearest[:, 0] == rows, nearest[:, 1], nearest[:, 0])
    order = np.sign(ranks[:, feature] - ranks[partner, feature]) * np.sign(rank_y - rank_y[partner])
    return float(order.mean())


def _errors(x: FloatArray, y: FloatArray, group: NDArray[np.int64], queries: Queries, seed: int) -> list[float]:
    errors = []
    for train, test in GroupKFold(FOLDS, shuffle=True, random_state=seed).split(x, y, group):
        predicted = monotone_gradient_boosting(x[train], y[train], queries, seed).predict(x[test])
        constant = mean_squared_error(np.full(len(test), y[train].mean()), y[test])
        errors.append(mean_squared_error(predicted, y[test]) / constant)
    return errors
