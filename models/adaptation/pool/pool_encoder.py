"""What a pool of workloads knows, as plain arrays: an encoder from few measured runs to an embedding.

It is the default learner (hierarchical model and nearest workloads, docs/decisions/0006) written down for the pool's
configurations, so that it can be stored, exported (models/export/encoder_model.py) and run without the pool:

    curve (C)      = mean of the two learners' predictions of the log target, from a support of runs
    embedding (d)  = (curve - centre) @ encode,   curve ~ centre + decode @ embedding

decode's columns are the principal directions of the curves that held-out workloads of the pool get from their supports;
an embedding's entry is 1 where a workload lies one standard deviation of the pool off. The base learner takes the
embedding beside a configuration (Qiu's thesis, section 5.6: there a recurrent network makes the embedding; here a
closed form that predicts better on pools of this size). The thesis is cited in models/learners/set_encoders.py.

Symbols as in learner.py; d embedding size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from feature_store.errors import InputError
from models.adaptation.closed_form.combination import FittedMean, Mean
from models.adaptation.closed_form.hierarchical import FittedHierarchical, Hierarchical
from models.adaptation.closed_form.neighbours import FittedNeighbours, Neighbours
from models.adaptation.learner import FloatArray, Pool, Prediction, Support
from models.adaptation.pool.validation import Held, held_out_predictions
from models.training.pretraining import UNREADABLE

FOLDS, DRAWS = 15, 4
# Supports of held-out workloads, beyond which more tell nothing new of the directions.
MOST_SUPPORTS = 3000
# Standard deviation of a log target, below which curves differ by rounding.
LEAST_SPREAD = 1e-9


def exportable_learner() -> Mean:
    """The default learner without metrics: a controller's runs have none that the encoder could take."""
    filling = Hierarchical(metrics=False)
    return Mean((filling, Neighbours(filling=filling)), name="hierarchical_nearest")


@dataclass(frozen=True)
class PoolEncoder:
    """From few measured runs to an embedding, by what the pool knows.

    Hierarchical part: prior (C,), covariance (C, C) of a new workload's curve, noise (1,) of a run. Nearest part:
    curves (W, C), bandwidths (2,) of ratios and level, spread (1,), the noise it adds. Projection: centre (C,), encode
    and decode (C, d). pool (W, d): embeddings of the pool's own curves.
    """

    prior: FloatArray
    covariance: FloatArray
    noise: FloatArray
    curves: FloatArray
    bandwidths: FloatArray
    spread: FloatArray
    centre: FloatArray
    encode: FloatArray
    decode: FloatArray
    pool: FloatArray

    @property
    def size(self) -> int:
        """d."""
        return self.encode.shape[1]

    def predict(self, support: Support) -> Prediction:
        """As learner.py's Fitted; the same as the learners that it was made of."""
        return self._learner.predict(support)

    def embed(self, support: Support) -> FloatArray:
        """(E, d)."""
        return self.project(self.predict(support).mean)

    def project(self, curves: FloatArray) -> FloatArray:
        """Embeddings (E, d) of curves (E, C)."""
        return np.asarray((curves - self.centre) @ self.encode)

    def save(self, path: Path) -> None:
        """As an .npz of plain arrays."""
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **{f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def load(cls, path: Path) -> "PoolEncoder":
        """Reads what `save` wrote. Raises InputError for any other file."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return cls(**{f.name: stored[f.name] for f in fields(cls)})
        except UNREADABLE as error:
            raise InputError(f"pool encoder must be readable, got {error} ({path})") from error

    @property
    def _learner(self) -> FittedMean:
        configurations, workloads = len(self.prior), len(self.curves)
        # the curve itself as coefficients: rows of the identity, so that only their distribution matters
        hierarchical = FittedHierarchical(np.eye(configurations), np.empty((0, configurations, configurations)),
                                          self.prior, self.covariance, self.noise)
        nearest = FittedNeighbours(Neighbours(ratio=self.bandwidths[0], level=self.bandwidths[1]), self.curves,
                                   np.empty((workloads, 0)), np.empty((configurations, 0)), np.ones(0),
                                   float(self.spread[0]))
        return FittedMean((hierarchical, nearest))


def fit_pool_encoder(pool: Pool, size: int, shots: Sequence[int], learner: Mean | None = None,
                     seed: int = 0) -> tuple[PoolEncoder, Held]:
    """The encoder, and held-out supports of the pool: what a base learner and every threshold is made from.

    Args:
        size: d, the most entries of an embedding; no more than the curves have directions.
        shots: numbers of runs of the held-out supports.
        learner: Mean of a Hierarchical and a Neighbours without metrics; None: the default ones.

    Raises:
        InputError: fewer than two workloads, none with two measured configurations, or another learner.
    """
    learner = learner or exportable_learner()
    pool = replace(pool, metrics=np.empty((*pool.y.shape, 0)))
    fitted = learner.fit(pool, seed).fitted
    if [type(part) for part in fitted] != [FittedHierarchical, FittedNeighbours]:
        raise InputError(f"learner of an encoder: expected hierarchical and nearest, got {learner.name}")
    hierarchical, nearest = fitted
    assert isinstance(hierarchical, FittedHierarchical) and isinstance(nearest, FittedNeighbours)
    draws = int(np.clip(MOST_SUPPORTS // (pool.workloads * len(shots)), 1, DRAWS))
    held = held_out_predictions(learner, pool, shots, FOLDS, draws, seed)
    centre, encode, decode = _directions(held.prediction.mean, nearest.curves, size)
    target = hierarchical.target
    encoder = PoolEncoder(
        target @ hierarchical.mean, target @ hierarchical.covariance @ target.T, hierarchical.noise[:1],
        nearest.curves, np.array([nearest.settings.ratio, nearest.settings.level]), np.array([nearest.noise]),
        centre, encode, decode, (nearest.curves - centre) @ encode)
    return encoder, held


def _directions(predicted: FloatArray, curves: FloatArray, size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centre (C,), encode and decode (C, d): principal directions of both kinds of curves, the pool's counting alike.

    encode maps a curve to entries of standard deviation 1 over the pool; decode maps back: encode.T @ decode = 1.
    """
    centre = curves.mean(axis=0)
    weight = np.concatenate([np.full(len(predicted), 1 / len(predicted)), np.full(len(curves), 1 / len(curves))])
    rows = (np.concatenate([predicted, curves]) - centre) * np.sqrt(weight / 2)[:, None]
    _, values, vectors = np.linalg.svd(rows, full_matrices=False)
    keep = min(size, int((values > max(1e-6 * values[0], LEAST_SPREAD)).sum()))
    if not keep:  # one curve only: an embedding that says nothing
        return centre, np.zeros((len(centre), 1)), np.zeros((len(centre), 1))
    return centre, vectors[:keep].T / values[:keep], vectors[:keep].T * values[:keep]
