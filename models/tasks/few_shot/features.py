"""What the `featurize` step makes of measurements: the pool's knowledge, and each adapted workload's rows.

    _pool/       encoder.npz (pool_encoder.py), pool.json, rows.parquet: what the base learner is pretrained on
    <workload>/  train.parquet, test.parquet, options.parquet (a row a configuration), few_shot.json

The base learner sees a configuration and an embedding. It is trained on what the encoder's learner predicts, over
embeddings around the workload's own and over the hull of the pool's: the few runs are in that prediction, and the
network that is proved becomes the monotone function nearest to it. Test rows are the workload's measured configurations
outside of the support; a workload without any cannot be judged.

Symbols as in models/adaptation/learner.py; d embedding size, n inputs of the configuration.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from feature_store.errors import InputError
from models.adaptation.closed_form.combination import Mean, point
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.design import Design
from models.adaptation.encoding import Table
from models.adaptation.learner import FloatArray, IntArray, Pool, supports
from models.adaptation.pool.conformal import Conformal, widths_of
from models.adaptation.pool.pool_encoder import PoolEncoder, exportable_learner, fit_pool_encoder
from models.adaptation.pool.similarity import Predictability, calibrate_similarity
from models.adaptation.pool.tuning import suggest_mean, tune
from models.adaptation.pool.validation import Held
from models.adaptation.recommendation import SMALLEST_POOL, cost_rate
from models.tasks.few_shot.model_inputs import Input, input_values, label
from models.tasks.few_shot.settings import FewShot

# Rows that the base learner is trained on, about; embeddings around a workload's own and from the hull.
POOL_ROWS, OWN_ROWS = 20_000, 2_000
NEAR, FAR, OWN = 12, 4, 4
# Before the names of columns of options.parquet that are neither the configuration's nor the model's inputs.
OWN_PREFIX = "own:"


@dataclass(frozen=True)
class Knowledge:
    """Of a pool: table (all workloads of the file), pool (W), encoder, its held-out supports, widths of intervals,
    predictability; inputs (n) and their values (C, n); settings: hyperparameters by name, and how they were found."""

    table: Table
    pool: Pool
    encoder: PoolEncoder
    held: Held
    conformal: Conformal
    predictability: Predictability
    inputs: tuple[Input, ...]
    values: FloatArray
    settings: Mapping[str, Any]
    seed: int

    @cached_property
    def embeddings(self) -> FloatArray:
        """(E, d): of the held-out supports."""
        return self.encoder.project(self.held.prediction.mean)

    @cached_property
    def design(self) -> Design:
        """What chooses supports: its fits to the pool serve all workloads."""
        return Design(_plain(self.pool), exportable_learner(), Hierarchical(metrics=False), seed=self.seed)

    def columns(self, settings: FewShot) -> list[str]:
        """Inputs of the model, in order."""
        return [one.name for one in self.inputs] + list(settings.inputs)

    def to_json(self) -> dict[str, Any]:
        """What a reader wants to know of the pool."""
        noise = self.pool.noise
        return {"workloads": self.pool.workloads, "configurations": len(self.values),
                "noise": float(noise) if np.isfinite(noise) else None,
                "embedding": self.encoder.size, "held_out_supports": len(self.held.workload),
                "widths": {str(k): width for k, width in self.conformal.widths.items()},
                "coverage": self.conformal.coverage, "predictability": asdict(self.predictability),
                "settings": dict(self.settings)}


def learn_pool(table: Table, inputs: tuple[Input, ...], settings: FewShot, seed: int,
               journal: Path | None = None) -> Knowledge:
    """Everything that is learned of the pool before any workload is adapted.

    Args:
        journal: where Optuna keeps its trials, so that a search that was ended goes on.

    Raises:
        InputError: the pool is smaller than SMALLEST_POOL, or too little of it was measured.
    """
    missing = [name for name in settings.pool if name not in table.workloads]
    if missing:
        raise InputError(f"pool must be of workloads that have runs which did not fail, got {', '.join(missing)}")
    pool = table.pool.part(np.sort(table.rows(settings.pool)))
    if pool.workloads < SMALLEST_POOL:
        raise InputError(f"pool must have at least {SMALLEST_POOL} workloads, got {pool.workloads}")
    with threadpool_limits(1):  # the matrices are small: more threads wait for each other most of the time
        learner, found = exportable_learner(), {}
        if settings.trials:
            tuned = tune(suggest_mean, _plain(pool), settings.trials, seed, journal=journal)
            assert isinstance(tuned.learner, Mean)
            learner = tuned.learner
            found = {**tuned.settings, "trials": tuned.trials, "pool_error": tuned.error,
                     "default_pool_error": tuned.default_error}
        shots = range(1, settings.runs + 1)
        encoder, held = fit_pool_encoder(pool, settings.embedding, shots, learner, seed)
        return Knowledge(table, pool, encoder, held, widths_of(pool, held, settings.coverage),
                         calibrate_similarity(encoder, pool, held), inputs,
                         input_values(inputs, table.configurations), found, seed)


def pool_rows(knowledge: Knowledge, settings: FewShot, seed: int) -> FloatArray:
    """(N, n + d + 1): what the base learner is pretrained on: configurations, embeddings of held-out supports, and the
    point that was predicted from them (log). At most about POOL_ROWS, spread evenly."""
    embedding = _padded(knowledge.embeddings, settings.embedding)
    target = np.log(point(knowledge.held.prediction))
    episodes, configurations = target.shape
    rng = np.random.default_rng(seed)
    picked = rng.permutation(episodes * configurations)[:POOL_ROWS]
    row, at = picked // configurations, picked % configurations
    return np.column_stack([knowledge.values[at], embedding[row], target[row, at]])


@dataclass(frozen=True)
class Adapted:
    """One workload: training and test rows; options: a row a configuration; facts: few_shot.json."""

    train: pd.DataFrame
    test: pd.DataFrame
    options: pd.DataFrame
    embedding_ranges: Mapping[str, tuple[float, float]]
    facts: Mapping[str, Any]


def adapt(knowledge: Knowledge, workload: str, settings: FewShot, target: str, seed: int) -> Adapted:
    """Chooses the support among what was measured, and makes the workload's rows.

    Args:
        target: name of the column of log targets.

    Raises:
        InputError: the workload has no run that did not fail, or too few measured configurations to be judged.
    """
    table, encoder = knowledge.table, knowledge.encoder
    own = int(table.rows([workload])[0])
    measured = np.flatnonzero(~np.isnan(table.pool.y[own]))
    if len(measured) <= settings.runs:
        raise InputError(f"workload must have more than {settings.runs} measured configurations, a support and at "
                         f"least one to be judged by, got {len(measured)} ({workload}); `assay recommend` predicts "
                         "from fewer, without a proof")
    with threadpool_limits(1):
        at = choose_support(knowledge, own, measured, settings, seed)
        support = supports(table.pool, np.array([own]), at[None])
        prediction = encoder.predict(support)
        embedding = encoder.embed(support)
    padded = _padded(embedding, settings.embedding)[0]
    shift = np.log(point(prediction))[0] - prediction.mean[0]
    # the pool's own curves, and what the encoder makes of a few runs of its workloads
    hull = _padded(np.concatenate([encoder.pool, knowledge.embeddings]), settings.embedding)
    used = np.arange(settings.embedding) < encoder.size
    low, high = (edge(np.stack([far, padded + sign * settings.radius * used]), axis=0)
                 for edge, far, sign in ((np.min, hull.min(axis=0), -1), (np.max, hull.max(axis=0), 1)))
    columns = knowledge.columns(settings)
    train = _training_rows(knowledge, prediction.mean[0] + shift, padded, (low, high), settings, seed)
    judged = np.setdiff1d(measured, at)
    test = np.column_stack([knowledge.values[judged], np.tile(padded, (len(judged), 1)), table.pool.y[own, judged]])
    options = table.configurations.assign(
        **{f"input:{one.name}": knowledge.values[:, k] for k, one in enumerate(knowledge.inputs)},
        **{OWN_PREFIX + name: value for name, value in {
            "mean": prediction.mean[0], "deviation": np.sqrt(prediction.variance[0]), "runs": table.pool.runs[own],
            "measured": table.pool.y[own], "support": np.isin(np.arange(len(table.configurations)), at),
            "rate": cost_rate(table) if table.cost is not None else np.nan}.items()})
    similarity = float(knowledge.predictability.of(embedding, encoder.pool)[0])
    measured_y = table.pool.y[own, judged]
    facts = {
        "runs": int(table.pool.runs[own, at].sum()), "bases": settings.bases,
        "support": [{"configuration": label(table.configurations.iloc[i]), "index": int(i),
                     "target": float(np.exp(table.pool.y[own, i]))} for i in at],
        "embedding": padded.tolist(),
        "hull": {name: [float(a), float(b)] for name, a, b in
                 zip(settings.inputs, hull.min(axis=0), hull.max(axis=0), strict=True)},
        "similarity": similarity, "threshold": knowledge.predictability.threshold,
        "out_of_distribution": bool(similarity < knowledge.predictability.threshold),
        "width": knowledge.conformal.widths[max(k for k in knowledge.conformal.widths if k <= len(at))],
        "coverage": knowledge.conformal.coverage, "deadline": settings.deadline,
        "support_mean": float(table.pool.y[own, at].mean()),
        "closed_form_mape": _mape(prediction.mean[0, judged] + shift[judged], measured_y),
        "support_mean_mape": _mape(np.full(len(judged), table.pool.y[own, at].mean()), measured_y),
    }
    ranges = dict(zip(settings.inputs, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    return Adapted(pd.DataFrame(train, columns=[*columns, target]), pd.DataFrame(test, columns=[*columns, target]),
                   options, ranges, facts)


def choose_support(knowledge: Knowledge, own: int, measured: IntArray, settings: FewShot, seed: int) -> IntArray:
    """(runs,): configurations of the support, among those that the workload measured."""
    if settings.bases == "random":
        rng = np.random.default_rng(np.random.SeedSequence([seed, own]))
        return np.sort(rng.permutation(measured)[: settings.runs])
    design = knowledge.design
    if settings.bases in ("chosen", "planned"):
        choose = design.base if settings.bases == "chosen" else design.together
        return choose(settings.runs, measured)
    chosen: list[int] = []
    pool = _plain(knowledge.table.pool)
    while len(chosen) < settings.runs:
        seen = supports(pool, np.array([own]), np.array([chosen], dtype=np.int64).reshape(1, -1))
        chosen.append(design.following(seen, np.setdiff1d(measured, chosen)))
    return np.array(chosen, dtype=np.int64)


def _training_rows(knowledge: Knowledge, predicted: FloatArray, own: FloatArray, box: tuple[FloatArray, FloatArray],
                   settings: FewShot, seed: int) -> FloatArray:
    """(N, n + d + 1): what is predicted at the own embedding, several times, and how it moves with the embedding."""
    rng = np.random.default_rng(seed)
    decode = np.zeros((len(predicted), settings.embedding))
    decode[:, : knowledge.encoder.size] = knowledge.encoder.decode
    near = own + settings.radius * rng.uniform(-1, 1, (NEAR, len(own)))
    embeddings = np.concatenate([near, rng.uniform(*box, (FAR, len(own)))]) * decode.any(axis=0)
    configurations = len(predicted)
    part = min(configurations, max(1, OWN_ROWS // len(embeddings)))
    at = np.concatenate([np.tile(np.arange(configurations), OWN),
                         *(rng.permutation(configurations)[:part] for _ in embeddings)])
    at_own = np.tile(own, (OWN * configurations, 1))
    embedding = np.concatenate([at_own, np.repeat(embeddings, part, axis=0)])
    target = predicted[at] + np.einsum("nd,nd->n", decode[at], embedding - own)
    return np.column_stack([knowledge.values[at], embedding, target])


def _padded(embedding: FloatArray, size: int) -> FloatArray:
    """(E, size): zeros for entries that the pool's curves have no directions for."""
    return np.pad(embedding, ((0, 0), (0, size - embedding.shape[1])))


def _plain(pool: Pool) -> Pool:
    """Without metrics, which the exported encoder does not take."""
    return Pool(pool.x, pool.distance, pool.y, pool.runs, np.empty((*pool.y.shape, 0)), pool.noise)


def _mape(predicted: FloatArray, measured: FloatArray) -> float:
    return float(np.mean(np.abs(np.exp(predicted - measured) - 1)))
