"""The mean of several learners, and the point that is reported of a prediction.

Symbols as in learner.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feature_store.errors import InputError, nearest
from models.adaptation.learner import Fitted, FloatArray, Learner, Pool, Prediction, Support


@dataclass(frozen=True)
class Mean:
    """The mean of the learners' means, in logarithms; the variance is that of an even mixture of them."""

    learners: tuple[Learner, ...]
    name: str = "mean"

    def fit(self, pool: Pool, seed: int = 0) -> "FittedMean":
        """Raises InputError: there is no learner, or one of them raises it."""
        if not self.learners:
            raise InputError(f"{self.name} must have at least one learner, got none")
        return FittedMean(tuple(learner.fit(pool, seed) for learner in self.learners))


@dataclass(frozen=True)
class FittedMean:
    """See Mean."""

    fitted: Sequence[Fitted]

    def predict(self, support: Support) -> Prediction:
        """See learner.py."""
        each = [fitted.predict(support) for fitted in self.fitted]
        means = np.stack([one.mean for one in each])
        variance = np.mean([one.variance for one in each], axis=0) + means.var(axis=0)
        return Prediction(means.mean(axis=0), variance)


# What is added to the mean, in variances, by loss.
SHIFTS = {"mape": -1.0, "median": 0.0}


def point(prediction: Prediction, loss: str = "mape") -> FloatArray:
    """(E, C): the target's value that makes the expected loss least, where its logarithm is normal.

    mape: exp(mean - variance), the median of the density weighted by 1 / target (Gneiting 2011, "Making and evaluating
    point forecasts", section 2.3); median: exp(mean), for errors in logarithms.

    Raises:
        InputError: `loss` is none of these.
    """
    if loss not in SHIFTS:
        raise InputError(f"loss must be one of {', '.join(SHIFTS)}, got {loss!r}; {nearest(loss, SHIFTS)}")
    return np.exp(prediction.mean + SHIFTS[loss] * prediction.variance)
