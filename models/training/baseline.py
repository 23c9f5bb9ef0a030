"""The baseline every learner is gated against: gradient boosting that obeys the same monotonicity."""

from collections.abc import Sequence

from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from models.verification.language.specification import FloatArray

BASELINE = "gradient boosting with the same monotone constraints"


def monotone_gradient_boosting(
    x: FloatArray, y: FloatArray, queries: Sequence[tuple[int, int]], seed: int,
) -> HistGradientBoostingRegressor:
    """Fits scikit-learn's histogram gradient boosting with monotonic constraints.

    Args:
        x: (m, n) scaled features; y: (m,) scaled target; queries: (feature, direction sign) pairs.
    """
    constraints = [0] * x.shape[1]
    for feature, sign in queries:
        constraints[feature] = sign
    # a tenth of the data decides how many trees are kept, so that the baseline is tuned to each workload
    model = HistGradientBoostingRegressor(
        learning_rate=0.05, max_iter=500, max_leaf_nodes=31, min_samples_leaf=10, l2_regularization=0.1,
        early_stopping=True, validation_fraction=0.1, n_iter_no_change=20, monotonic_cst=constraints,
        random_state=seed)
    # its threads spin while they wait: two fits at once on two cores took 50 times as long as one thread each
    with threadpool_limits(1):
        return model.fit(x, y)
