"""Training episodes out of a pool: a few random runs of a workload as support, its other measured cells as queries.

An episode looks like what a learner meets later: k runs, 1 to K, of one workload (Vinyals et al., "Matching Networks",
2016). A batch is drawn by one ordering of random numbers, without a loop over workloads.

Symbols as in learner.py; B episodes, K most runs of a support, Q queries an episode, p metrics that are used.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.adaptation.learner import NONE, Fitted, FloatArray, IntArray, Pool, Support, supports
from models.learners.set_encoders import front_order

# Supports that are drawn of each held-out workload for each number of runs: most, and of all workloads together.
HELD_OUT_DRAWS, HELD_OUT_SUPPORTS = 8, 1000
LEAST_SPREAD = 1e-2  # of log targets; below that a pool has no scale of its own


@dataclass(frozen=True)
class Runs:
    """A support as tensors: at (E, k), there (E, k), y (E, k), log target; metrics (E, k, 2 p), see Cells. Zeros where
    there is no run."""

    at: Tensor
    is_run: Tensor
    y: Tensor
    metrics: Tensor

    @property
    def level(self) -> Tensor:
        """(E,): mean log target of the runs, 0 without any."""
        return self.mean(self.y)

    def mean(self, values: Tensor) -> Tensor:
        """Over the runs that are there, of (E, k, ...): (E, ...); 0 without any."""
        is_run = self.is_run.reshape(*self.is_run.shape, *[1] * (values.ndim - 2))
        return torch.where(is_run, values, 0.0).sum(dim=1) / is_run.sum(dim=1).clamp(min=1)

    def first(self, most: int) -> "Runs":
        """The first `most` runs that are there, in a row of exactly that length."""
        order = front_order(self.is_run)[:, :most]
        parts = [part.gather(1, order) for part in (self.at, self.is_run, self.y)]
        metrics = self.metrics.gather(1, order[..., None].expand(*order.shape, self.metrics.shape[-1]))
        if (short := most - order.shape[1]) > 0:
            parts = [torch.nn.functional.pad(part, (0, short)) for part in parts]
            metrics = torch.nn.functional.pad(metrics, (0, 0, 0, short))
        return Runs(parts[0], parts[1], parts[2], metrics)


@dataclass(frozen=True)
class Episodes:
    """workload (B,); its support; queries (B, Q), configurations, asked (B, Q) where there is one; y (B, Q) theirs."""

    workload: Tensor
    runs: Runs
    queries: Tensor
    asked: Tensor
    y: Tensor


@dataclass(frozen=True)
class Cells:
    """A pool as float32 tensors: x (C, d), y (W, C), 0 where nothing was measured, measured (W, C).

    metrics (W, C, 2 p): standardised over the pool's cells, 0 where missing, then 1 where they are not. centre, scale:
    of the pool's log targets; metric_centre, metric_scale (p,).
    """

    x: Tensor
    y: Tensor
    measured: Tensor
    metrics: Tensor
    centre: float
    scale: float
    metric_centre: FloatArray
    metric_scale: FloatArray

    @classmethod
    def of(cls, pool: Pool, metrics: bool) -> "Cells":
        """`metrics`: whether they are used at all."""
        measured = ~np.isnan(pool.y)
        p = pool.metrics.shape[-1] if metrics else 0
        columns = [pool.metrics[..., j][~np.isnan(pool.metrics[..., j])] for j in range(p)]
        centre = np.array([column.mean() if len(column) else 0.0 for column in columns], dtype=np.float64)
        scale = np.array([column.std() if len(column) else 1.0 for column in columns], dtype=np.float64)
        scale[~(scale > 0)] = 1.0
        known = pool.y[measured]
        spread = float(known.std())
        return cls(_tensor(pool.x), _tensor(np.where(measured, pool.y, 0.0)), torch.from_numpy(measured),
                   _metrics(pool.metrics, centre, scale), float(known.mean()), spread if spread > LEAST_SPREAD else 1.0,
                   centre, scale)

    def runs(self, support: Support) -> Runs:
        """What a learner has been given, in the pool's units."""
        if support.at.shape[1] == 0:  # one place without a run: encoders and means take it like any other
            support = Support(np.full((len(support.at), 1), NONE), np.zeros((len(support.at), 1)),
                              np.full((len(support.at), 1, support.metrics.shape[-1]), np.nan))
        is_run = support.is_run
        metrics = np.where(is_run[..., None], support.metrics, np.nan)
        return Runs(torch.from_numpy(np.where(is_run, support.at, 0)), torch.from_numpy(is_run),
                    _tensor(np.where(is_run, support.y, 0.0)), _metrics(metrics, self.metric_centre, self.metric_scale))

    def draw(self, workloads: Tensor, generator: torch.Generator, most_runs: int, fewest_runs: int = 1,
             most_queries: int | None = None) -> Episodes:
        """One episode a member of workloads (B,). At least one measured cell is left as a query where there are two."""
        measured = self.measured[workloads]
        score = torch.rand(measured.shape, generator=generator).masked_fill_(~measured, -1.0)
        length = measured.shape[1] if most_queries is None else min(measured.shape[1], most_runs + most_queries)
        score, order = score.topk(length, dim=1)
        k = torch.randint(fewest_runs, most_runs + 1, (len(workloads), 1), generator=generator)
        k = torch.minimum(k, (measured.sum(dim=1, keepdim=True) - 1).clamp(min=min(fewest_runs, 1)))
        given = (torch.arange(length) < k) & (score >= 0)
        at, is_run = order[:, :most_runs], given[:, :most_runs]
        y, metrics = self.y[workloads], self.metrics[workloads]
        chosen = metrics.gather(1, at[..., None].expand(*at.shape, metrics.shape[-1])) * is_run[..., None]
        runs = Runs(at * is_run, is_run, y.gather(1, at) * is_run, chosen)
        return Episodes(workloads, runs, order, (score >= 0) & ~given, y.gather(1, order))


def support_of(pool: Pool, episodes: Episodes) -> Support:
    """The episodes' supports as other learners take them; the pool is the one that they were drawn from."""
    at = torch.where(episodes.runs.is_run, episodes.runs.at, NONE)
    return supports(pool, episodes.workload.numpy(), at.numpy())


def fold_of(workloads: int, folds: int, seed: int) -> IntArray:
    """(W,): a fold for every workload, as even as can be."""
    return np.random.default_rng(seed).permutation(np.arange(workloads) % folds)


@dataclass(frozen=True)
class HeldOut:
    """Supports of k runs of workloads that the learner of this fold has not seen; y (E, C): NaN in the support too."""

    fold: int
    k: int
    support: Support
    y: FloatArray


def held_out(pool: Pool, most_runs: int, fold: IntArray, tried: int, seed: int) -> list[HeldOut]:
    """Of the first `tried` folds, for k from 0 to K, some supports of each workload. fold (W,)."""
    parts = []
    for number in range(tried):
        out = pool.part(np.flatnonzero(fold == number))
        cells, generator = Cells.of(out, metrics=False), torch.Generator().manual_seed(seed)
        draws = int(np.clip(HELD_OUT_SUPPORTS // max(out.workloads, 1), 1, HELD_OUT_DRAWS))
        for k in range(most_runs + 1):
            episodes = cells.draw(torch.arange(out.workloads).repeat(draws), generator, k, k)
            asked = torch.zeros_like(episodes.asked).scatter(1, episodes.queries, episodes.asked).numpy()
            y = np.where(asked, out.y[episodes.workload.numpy()], np.nan)
            parts.append(HeldOut(number, k, support_of(out, episodes), y))
    return parts


def inflation(fitted: Sequence[Fitted], parts: Sequence[HeldOut], most_runs: int) -> FloatArray:
    """By how much variances must grow, by number of runs 0 to K: (K + 1,).

    The mean, over the held-out workloads' cells outside the support, of the squared error in units of the predicted
    variance; fitted: one a fold, to the other folds. So nothing is predicted by what has seen it; that what is used
    in the end has seen more workloads makes it conservative.
    """
    total, count = np.zeros(most_runs + 1), np.zeros(most_runs + 1)
    for part in parts:
        said = fitted[part.fold].predict(part.support)
        ratio = ((part.y - said.mean) ** 2 / said.variance)[~np.isnan(part.y)]
        total[part.k] += float(ratio.sum())
        count[part.k] += ratio.size
    return total / np.maximum(count, 1)


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """A generator, and torch's own state (initial weights, dropout) for as long as the context lasts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def _tensor(values: FloatArray) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


def _metrics(values: FloatArray, centre: FloatArray, scale: FloatArray) -> Tensor:
    values = values[..., :len(centre)]
    known = ~np.isnan(values)
    standard = np.where(known, (np.where(known, values, 0.0) - centre) / scale, 0.0)
    return _tensor(np.concatenate([standard, known], axis=-1))
