"""How predictable a workload is before it is predicted: the similarity of its embedding to the pool's.

    similarity(a, b) = (1 - |a - b| / reach + cos(a, b)) / 2   Qiu's thesis (cited in set_encoders.py), section 5.6.3

A workload's similarity is the largest one to a workload of the pool; reach, the largest distance of two of the pool,
normalises the distances. Below the threshold, the lowest `share` of held-out workloads of the pool lie: what lies
below it is flagged as out of distribution.

Symbols as in learner.py; d embedding size.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from models.adaptation.learner import FloatArray, Pool
from models.adaptation.pool.pool_encoder import PoolEncoder
from models.adaptation.pool.validation import Held, mean_over_cells

SHARE = 0.05


def similarities(embedding: FloatArray, pool: FloatArray, reach: float) -> FloatArray:
    """(E, W): of embeddings (E, d) to those of the pool (W, d)."""
    distance = np.linalg.norm(embedding[:, None] - pool[None], axis=2) / reach
    length = np.linalg.norm(embedding, axis=1)[:, None] * np.linalg.norm(pool, axis=1)[None]
    cosine = (embedding @ pool.T) / np.where(length > 0, length, 1.0)
    return np.asarray((1 - distance + cosine) / 2)


@dataclass(frozen=True)
class Predictability:
    """How well the similarity to the pool tells the error.

    Attributes:
        threshold: similarity below which a workload is flagged; reach: largest distance of two of the pool.
        correlation: Spearman's, of the similarity of held-out workloads with their mean absolute error in logarithms
            before any adaptation of a network.
        p_value: of there being no correlation.
    """

    threshold: float
    reach: float
    correlation: float
    p_value: float

    def of(self, embedding: FloatArray, pool: FloatArray) -> FloatArray:
        """(E,): similarity to the nearest workload of the pool."""
        return np.asarray(similarities(embedding, pool, self.reach).max(axis=1))


def calibrate_similarity(encoder: PoolEncoder, pool: Pool, held: Held, share: float = SHARE) -> Predictability:
    """From held-out supports of the pool; a workload is not compared with itself."""
    gaps = np.linalg.norm(encoder.pool[:, None] - encoder.pool[None], axis=2)
    reach = float(gaps.max()) or 1.0
    similar = similarities(encoder.project(held.prediction.mean), encoder.pool, reach)
    similar[np.arange(len(similar)), held.workload] = -np.inf
    nearest = similar.max(axis=1)
    error = mean_over_cells(np.abs(held.unmeasured(pool) - held.prediction.mean))
    is_known = ~np.isnan(error)
    if np.ptp(nearest[is_known]) > 0 and np.ptp(error[is_known]) > 0:
        correlation, p_value = (float(value) for value in spearmanr(nearest[is_known], error[is_known]))
    else:
        correlation, p_value = 0.0, 1.0
    return Predictability(float(np.quantile(nearest, share)), reach, correlation, p_value)
