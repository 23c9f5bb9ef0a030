"""A meta network: an encoder of the support's runs beside a base learner, trained on episodes of the pool.

Two flavours. `flash_sizeless()` is the published one (thesis, section 5.6.2 and appendix A): Sizeless's network with
FLASH's embedding appended, in the target's own scale; see sizeless.py. `MetaNetwork(relative=True)` predicts, of every
configuration, the log ratio to the mean of the support's logs as

    prior's mean - level + share * correction(target, support, embedding)

The prior is another learner, the additive baseline where none is named, and the correction starts at zero: what
the network does not learn stays the prior's. In training, the prior that an episode meets has not seen its workload
(cross-fitting), for otherwise the correction would learn how well the prior remembers.

Two further networks, each trained without one half of the workloads, predict that half. The share, 0 to 1, is the one
that makes their squared error least: a pool too small to learn from gives the prior back. Variances are the prior's,
multiplied for each number of runs by what the same held-out workloads ask for.

Symbols as in learner.py; B episodes, Q queries, f inputs of the correction, level: mean log target of the support.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import additive
from models.adaptation.learner import Fitted, FloatArray, IntArray, Learner, Pool, Prediction, Support
from models.adaptation.networks.sizeless import FittedTime, TimeSettings, fit_time, trainable
from models.adaptation.pool.episodes import (
    Cells,
    Episodes,
    HeldOut,
    Runs,
    fold_of,
    held_out,
    inflation,
    seeded,
    support_of,
)
from models.learners.mlp import build_mlp, linear_layers
from models.learners.set_encoders import build_encoder

FOLDS = 4  # in which the prior is cross-fitted
HALVES = 2  # both are held out in turn for the share and the variances
MOST_EPISODES = 128  # of a workload and its mixtures; they are drawn once, for the prior to predict them at once
CHUNK = 256  # workloads whose predictions are made at once
HUBER = 0.5  # log residuals beyond this, a factor of 1.6, weigh linearly
LEAST_VARIANCE = 1e-6
RIDGE = 0.3  # noise of the smoothed residuals, in units of the kernels' variance
LOSSES = ("log", "mape")


@dataclass(frozen=True)
class MetaNetwork:
    """An encoder of the measured runs, and the base learner that takes its embedding.

    Attributes:
        loss: "log", a Huber loss, or "mape" of the ratio, under which the mean is the logarithm of a point prediction
            rather than the mean of logarithms.
        mixtures: further workloads for each of the pool's, see _with_mixtures.
        runs: the most in a training support; at prediction there may be more.
        steps: gradient steps, of `batch` workloads each.
        queries: the most of an episode.
        members: networks whose mean is taken.
        published: settings that replace all these where `relative` is False.
    """

    encoder: str = "attention"
    embedding: int = 32
    hidden: tuple[int, ...] = (64, 64)
    relative: bool = True
    metrics: bool = True
    loss: str = "log"
    mixtures: int = 5
    runs: int = 3
    steps: int = 200
    batch: int = 16
    queries: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    members: int = 1
    prior: Learner | None = None
    published: TimeSettings = field(default_factory=lambda: TimeSettings(encoder="gru", learning_rate=3e-4))
    name: str = "meta_network"

    def fit(self, pool: Pool, seed: int = 0) -> "FittedMetaNetwork | FittedTime":
        """Raises InputError: under four workloads were measured under two configurations, or a name is not known."""
        if self.loss not in LOSSES:
            raise InputError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        if not self.relative:
            return fit_time(pool, self.published, seed)
        pool = trainable(pool)
        fold = fold_of(pool.workloads, HALVES, seed)
        parts = held_out(pool, self.runs, fold, HALVES, seed)
        halves = [self._fit(pool.part(np.flatnonzero(fold != number)), seed) for number in range(HALVES)]
        share = _best_share(halves, parts)
        factors = inflation([replace(half, share=share) for half in halves], parts, self.runs)
        return replace(self._fit(pool, seed), share=share, inflation=factors)

    def _fit(self, pool: Pool, seed: int) -> "FittedMetaNetwork":
        fold, prior = fold_of(pool.workloads, FOLDS, seed), self.prior or additive()
        wide, wide_fold = _with_mixtures(pool, fold, self.mixtures, seed)
        cells = Cells.of(wide, self.metrics)
        with seeded(seed) as generator:
            episodes = self._episodes(cells, generator)
            support, row_fold = support_of(wide, episodes), wide_fold[episodes.workload.numpy()]
            mean, variance = _cross_fitted(prior, pool, fold, support, row_fold, seed)
            networks = tuple(self._train(cells, episodes, mean, variance, generator) for _ in range(self.members))
        return FittedMetaNetwork(cells, networks, prior.fit(pool, seed), 1.0, np.ones(self.runs + 1))

    def _episodes(self, cells: Cells, generator: torch.Generator) -> Episodes:
        workloads = torch.from_numpy(np.flatnonzero(cells.measured.sum(dim=1).numpy() > 1))
        most = max(MOST_EPISODES // (1 + self.mixtures), 1)
        each = int(np.clip(self.steps * self.batch // max(len(workloads), 1), 1, most))
        return cells.draw(workloads.repeat(each), generator, self.runs, 1, self.queries)

    def _train(self, cells: Cells, episodes: Episodes, mean: Tensor, variance: Tensor,
               generator: torch.Generator) -> "_Network":
        network = _Network(cells, self, generator)
        optimizer = torch.optim.AdamW(network.parameters(), self.learning_rate, weight_decay=self.weight_decay,
                                      fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        for _ in range(self.steps):
            part = torch.randint(len(episodes.workload), (self.batch,), generator=generator)
            at, asked = episodes.queries[part], episodes.asked[part]
            said = network(cells.x, _part(episodes.runs, part), mean[part], variance[part], at)
            error = torch.where(asked, said - episodes.y[part], 0.0)
            if self.loss == "mape":
                each = torch.expm1(error.clamp(max=5.0)).abs()  # beyond e^5 the gradient would be all that counts
            else:
                each = functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=HUBER)
            optimizer.zero_grad()
            (each.sum() / asked.sum().clamp(min=1)).backward()
            optimizer.step()
            schedule.step()
        return network.eval().requires_grad_(False)


def flash_sizeless(settings: TimeSettings | None = None) -> MetaNetwork:
    """As published: Tables A.1 to A.3."""
    published = settings or TimeSettings(encoder="gru", learning_rate=3e-4)
    return MetaNetwork(relative=False, published=published, name="flash_sizeless")


class _Network(nn.Module):
    """The prior's mean plus a correction, in units of the pool's spread around the prior."""

    def __init__(self, cells: Cells, settings: MetaNetwork, generator: torch.Generator) -> None:
        super().__init__()
        d, extra = cells.x.shape[1], cells.metrics.shape[-1]
        self.runs, self.centre, self.scale = settings.runs, cells.centre, cells.scale
        self.encoder = build_encoder(settings.encoder, d + extra + 3, settings.embedding)
        self.correct = build_mlp(4 * d + extra + 8 + settings.embedding, settings.hidden, generator)
        with torch.no_grad():
            linear_layers(self.correct)[-1].weight.zero_()

    def forward(self, x: Tensor, runs: Runs, mean: Tensor, variance: Tensor, at: Tensor) -> Tensor:
        """x (C, d); the prior's mean and variance (B, C); at (B, Q), configurations asked for: log targets (B, Q)."""
        rows = self._rows(x, runs, mean, variance, at)
        embedding = self.embed(x, runs, mean)[:, None].expand(*at.shape, -1)
        correction: Tensor = self.correct(torch.cat([rows, embedding], dim=-1))[..., 0]
        return mean.gather(1, at) + self.scale * correction

    def embed(self, x: Tensor, runs: Runs, mean: Tensor) -> Tensor:
        """(B, embedding)."""
        ratio, rest = self._ratios(runs, mean)
        level = ((runs.level - self.centre) / self.scale)[:, None].expand_as(ratio)
        samples = torch.cat([x[runs.at], runs.metrics, torch.stack([ratio, rest, level], dim=-1)], dim=-1)
        embedding: Tensor = self.encoder(samples, runs.is_run)
        return embedding

    def _ratios(self, runs: Runs, mean: Tensor) -> tuple[Tensor, Tensor]:
        """(B, k) each: the runs' log ratios to their mean, and to the prior."""
        return (runs.y - runs.level[:, None]) / self.scale, (runs.y - mean.gather(1, runs.at)) / self.scale

    def _rows(self, x: Tensor, runs: Runs, mean: Tensor, variance: Tensor, at: Tensor) -> Tensor:
        """(B, Q, f without the embedding): all means over the runs, so that their order does not matter."""
        ratio, rest = self._ratios(runs, mean)
        targets, base = x[at], x[runs.at]
        gap = targets[:, :, None] - base[:, None]  # (B, Q, k, d)
        weight = runs.is_run[:, None].float() / runs.is_run.sum(dim=1).clamp(min=1)[:, None, None]  # (B, 1, k)
        parts = [targets, (gap * weight[..., None]).sum(dim=2), (gap.abs() * weight[..., None]).sum(dim=2),
                 (gap * (weight * rest[:, None])[..., None]).sum(dim=2)]
        level = (runs.level - self.centre) / self.scale
        share = runs.is_run.sum(dim=1).clamp(max=self.runs) / self.runs
        whole = torch.stack([level, runs.mean(rest), runs.mean(ratio.abs()), share], dim=-1)
        of_query = torch.stack([(mean.gather(1, at) - runs.level[:, None]) / self.scale,
                           variance.gather(1, at).sqrt() / self.scale,
                           *_smoothed(targets, base, rest, runs.is_run)], dim=-1)
        shape = (*at.shape, -1)
        shared = torch.cat([whole, runs.mean(runs.metrics)], dim=-1)[:, None].expand(shape)
        return torch.cat([*parts, of_query, shared], dim=-1)


def _smoothed(targets: Tensor, base: Tensor, rest: Tensor, is_measured: Tensor) -> list[Tensor]:
    """What Gaussian processes with a linear and a squared exponential kernel make of the prior's residuals (B, k) at
    base (B, k, d), under targets (B, Q, d): (B, Q) each. Products that a small network would have to learn."""
    d = max(base.shape[-1], 1)
    smoothed = []
    for kernel in (lambda a, b: 1 + a @ b.mT / d, lambda a, b: torch.exp(-torch.cdist(a, b).pow(2) / d)):
        inner = kernel(base, base) * (is_measured[:, :, None] & is_measured[:, None]) + RIDGE * torch.eye(base.shape[1])
        weights = torch.linalg.solve(inner, (rest * is_measured)[..., None])
        smoothed.append((kernel(targets, base) @ weights)[..., 0])
    return smoothed


@dataclass(frozen=True)
class FittedMetaNetwork:
    """See MetaNetwork.

    Attributes:
        share: of the networks' mean correction that is added.
        inflation (K + 1,): of the prior's variance, by number of runs; for more runs than K, that of K.
    """

    cells: Cells
    networks: tuple[_Network, ...]
    prior: Fitted
    share: float
    inflation: FloatArray

    def predict(self, support: Support) -> Prediction:
        """See learner.py. Without any run it is the prior that speaks."""
        said, count = self.prior.predict(support), support.is_run.sum(axis=1)
        mean, every = said.mean.copy(), torch.arange(len(self.cells.x))
        some = np.flatnonzero(count)
        for start in range(0, len(some), CHUNK):
            part = some[start:start + CHUNK]
            runs = self.cells.runs(_rows_of(support, part))
            prior = [torch.from_numpy(values[part].astype(np.float32)) for values in (said.mean, said.variance)]
            with torch.no_grad():
                each = [network(self.cells.x, runs, prior[0], prior[1], every.expand(len(part), -1))
                        for network in self.networks]
            mean[part] += self.share * (torch.stack(each).mean(dim=0) - prior[0]).double().numpy()
        factor = self.inflation[np.minimum(count, len(self.inflation) - 1)]
        return Prediction(mean, np.maximum(said.variance * factor[:, None], LEAST_VARIANCE))


def _with_mixtures(pool: Pool, fold: IntArray, each: int, seed: int) -> tuple[Pool, IntArray]:
    """The pool and `each` mixtures a workload, with another of its fold, and all their folds (Zhang et al., "mixup",
    ICLR 2018, on logarithms). A pool has few workloads, and a network otherwise learns them by heart."""
    generator = np.random.default_rng(seed)
    first = np.repeat(np.arange(pool.workloads), each)
    alike = [np.flatnonzero(fold == number) for number in fold[first]]
    second = np.array([generator.choice(rows) for rows in alike], dtype=np.int64)
    weight = generator.random((len(first), 1))
    y = weight * pool.y[first] + (1 - weight) * pool.y[second]
    metrics = weight[..., None] * pool.metrics[first] + (1 - weight[..., None]) * pool.metrics[second]
    wide = replace(pool, y=np.concatenate([pool.y, y]), runs=np.concatenate([pool.runs, pool.runs[first]]),
                   metrics=np.concatenate([pool.metrics, metrics]))
    return wide, np.concatenate([fold, fold[first]])


def _cross_fitted(prior: Learner, pool: Pool, fold: IntArray, support: Support, row_fold: IntArray,
                  seed: int) -> tuple[Tensor, Tensor]:
    """The prior's mean and variance (B, C) for each support, by a fit to the other folds of the pool."""
    mean, variance = np.zeros((2, len(support.at), len(pool.x)), dtype=np.float32)
    for out in np.unique(row_fold):
        inside = np.flatnonzero(row_fold == out)
        fitted = prior.fit(pool.part(np.flatnonzero(fold != out)), seed)
        for start in range(0, len(inside), CHUNK):
            part = inside[start:start + CHUNK]
            said = fitted.predict(_rows_of(support, part))
            mean[part], variance[part] = said.mean, said.variance
    return torch.from_numpy(mean), torch.from_numpy(variance)


def _best_share(halves: Sequence[FittedMetaNetwork], parts: Sequence[HeldOut]) -> float:
    """Least squares of the prior's errors on the corrections, over all held-out cells whose support has a run."""
    product, square = 0.0, 0.0
    for part in parts:
        if part.k == 0:
            continue
        before = halves[part.fold].prior.predict(part.support).mean
        correction = halves[part.fold].predict(part.support).mean - before
        asked = ~np.isnan(part.y)
        product += float((correction * (part.y - before))[asked].sum())
        square += float((correction**2)[asked].sum())
    return float(np.clip(product / square, 0.0, 1.0)) if square > 0 else 0.0


def _rows_of(support: Support, rows: np.ndarray) -> Support:
    return Support(support.at[rows], support.y[rows], support.metrics[rows])


def _part(runs: Runs, rows: Tensor) -> Runs:
    return Runs(runs.at[rows], runs.is_run[rows], runs.y[rows], runs.metrics[rows])
