"""Sizeless as the FLASH thesis has it: a fully connected network from measured configurations to a run time.

    time(target) = network(target configuration, base configurations, their run times and metrics [, embedding])

in units of the pool's mean run time, trained on the mean absolute percentage error. `Sizeless` is the plain base
learner; `Transfer` tunes its last layers to each new workload by gradient steps; with an encoder the same network is
FLASH-Sizeless (meta_network.py). Without any run, the additive baseline's expectation stands in.

Sources: Eismann et al., "Sizeless" (Middleware 2021); Qiu's thesis, appendix A.2, Tables A.2 and A.3.

Symbols as in learner.py; K slots of base runs, Q targets an episode, f inputs of the network, w its width.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import additive
from models.adaptation.learner import Fitted, FloatArray, Pool, Prediction, Support
from models.adaptation.pool.episodes import Cells, Runs, fold_of, held_out, inflation, seeded
from models.learners.mlp import build_mlp
from models.learners.set_encoders import build_encoder

# Of a prediction below 0 there is no logarithm: the least run time that is predicted, in units of the pool's least.
LEAST_TIME = 0.1
CHUNK_ELEMENTS = 4_000_000  # of one network input (E, C, f)
LEAST_WORKLOADS = 4
FOLDS = 3  # of the pool's workloads; one of them is held out for the variance
MOST_WORKLOADS = 64  # whose own last layers are tuned at once


@dataclass(frozen=True)
class TimeSettings:
    """Settings of Tables A.1 to A.3.

    Attributes:
        batch: workloads a step, each with one drawn support and all its other cells as targets; an epoch sees every
            workload once.
        l2: weight of the sum of squares beside a loss in per cent, as in Sizeless's own code.
    """

    hidden: tuple[int, ...] = (256, 256, 256, 256)
    epochs: int = 200
    batch: int = 4
    learning_rate: float = 1e-3
    l2: float = 1e-2
    runs: int = 3
    metrics: bool = True
    encoder: str | None = None
    embedding: int = 32


class TimeNetwork(nn.Module):
    """Run times in units of `unit`; slots and, where there is an encoder, its embedding describe the workload."""

    def __init__(self, cells: Cells, settings: TimeSettings, generator: torch.Generator) -> None:
        super().__init__()
        times = cells.y.exp()[cells.measured]
        self.unit, self.least = float(times.mean()), LEAST_TIME * float(times.min())
        self.spread = max(float(times.std(correction=0)) / self.unit, 1e-3)
        self.runs, configuration, extra = settings.runs, cells.x.shape[1], cells.metrics.shape[-1]
        sample = configuration + 1 + extra
        embedding = settings.embedding if settings.encoder else 0
        self.encoder = build_encoder(settings.encoder, sample, embedding) if settings.encoder else None
        self.base = build_mlp(configuration + self.runs * (sample + 1) + embedding, settings.hidden, generator)

    def workload(self, x: Tensor, runs: Runs) -> Tensor:
        """(E, f - d): what is known of each workload. x (C, d)."""
        slots = runs.first(self.runs)
        is_run = slots.is_run[..., None]
        parts = [torch.cat([self._samples(x, slots) * is_run, is_run], dim=-1).flatten(1)]
        if self.encoder is not None:
            # of FLASH's X_t = [x_t, y_t] (appendix A.1)
            parts.append(self.encoder(self._samples(x, runs), runs.is_run))
        return torch.cat(parts, dim=1)

    def rows(self, targets: Tensor, workload: Tensor) -> Tensor:
        """targets (E or 1, Q, d), workload (E, f - d): (E, Q, f)."""
        shape = (len(workload), targets.shape[1], -1)
        return torch.cat([targets.expand(shape), workload[:, None].expand(shape)], dim=-1)

    def forward(self, targets: Tensor, workload: Tensor) -> Tensor:
        """(E, Q)."""
        times: Tensor = self.base(self.rows(targets, workload))[..., 0]
        return times

    def log_times(self, outputs: Tensor) -> Tensor:
        """Logarithms of what the network says, see LEAST_TIME."""
        return (outputs * self.unit).clamp(min=self.least).log()

    def _samples(self, x: Tensor, runs: Runs) -> Tensor:
        time = (runs.y.exp() / self.unit - 1) / self.spread
        return torch.cat([x[runs.at], time[..., None], runs.metrics], dim=-1)


def percentage_error(outputs: Tensor, times: Tensor, asked: Tensor) -> Tensor:
    """MAPE in per cent over what is asked for, all (..., Q); 0 where nothing is."""
    error = torch.where(asked, (outputs - times).abs() / torch.where(asked, times, 1.0), 0.0)
    return 100 * error.sum() / asked.sum().clamp(min=1)


def train_time_network(pool: Pool, settings: TimeSettings, seed: int) -> tuple[Cells, TimeNetwork]:
    """Adam, see TimeSettings. The same seed gives the same network."""
    cells = Cells.of(pool, settings.metrics)
    with seeded(seed) as generator:
        network = TimeNetwork(cells, settings, generator)
        # torch adds weight_decay * w to the gradient, and the gradient of l2 * w^2 is 2 l2 w
        optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate, weight_decay=2 * settings.l2,
                                     fused=True)
        for _ in range(settings.epochs):
            for part in torch.randperm(pool.workloads, generator=generator).split(settings.batch):
                episodes = cells.draw(part, generator, settings.runs)
                outputs = network(cells.x[episodes.queries], network.workload(cells.x, episodes.runs))
                loss = percentage_error(outputs, episodes.y.exp() / network.unit, episodes.asked)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return cells, network.eval().requires_grad_(False)


@dataclass(frozen=True)
class FittedTime:
    """A trained network of run times.

    Attributes:
        base: gives the expectation without any run.
        inflation (K + 1,): see episodes.inflation.
        tuning: steps and step size of the last layers on a new workload's runs; None: they are not tuned.
    """

    cells: Cells
    network: TimeNetwork
    base: Fitted
    inflation: FloatArray
    tuning: "Tuning | None" = None

    def predict(self, support: Support) -> Prediction:
        """See learner.py. The variance depends on the number of runs alone: the base's flat one, inflated."""
        said, count = self.base.predict(support), support.is_run.sum(axis=1)
        mean = said.mean.copy()
        some = np.flatnonzero(count)
        per_row = len(self.cells.x) * (self.cells.x.shape[1] + 64)
        size = min(max(1, CHUNK_ELEMENTS // per_row), MOST_WORKLOADS if self.tuning else len(some) + 1)
        for start in range(0, len(some), size):
            part = some[start:start + size]
            runs = self.cells.runs(Support(support.at[part], support.y[part], support.metrics[part]))
            mean[part] = self._log_times(runs).double().numpy()
        return Prediction(mean, said.variance * self.inflation[np.minimum(count, len(self.inflation) - 1)][:, None])

    def _log_times(self, runs: Runs) -> Tensor:
        network, x = self.network, self.cells.x
        with torch.no_grad():
            workload = network.workload(x, runs)
            if self.tuning is None:
                return network.log_times(network(x[None], workload))
            return network.log_times(self.tuning.outputs(network, x, runs, network.rows(x[None], workload)))


@dataclass(frozen=True)
class Tuning:
    """Plain gradient steps on the mean absolute percentage error of a workload's own runs."""

    steps: int
    step_size: float
    layers: int

    def outputs(self, network: TimeNetwork, x: Tensor, runs: Runs, rows: Tensor) -> Tensor:
        """(E, C): under rows (E, C, f), each workload by its own tuned layers.

        A run to learn from is predicted from the other runs; the only run, where there is but one, from itself.
        """
        cut = len(network.base) - (2 * self.layers - 1)
        body, tail = network.base[:cut], network.base[cut:]
        runs = runs.first(network.runs)
        k = runs.is_run.shape[1]
        others = runs.is_run[:, None] & ~torch.eye(k, dtype=torch.bool)
        given = torch.where(others.any(dim=2, keepdim=True), others, runs.is_run[:, None])  # (E, k target, k)
        left = Runs(*(part.repeat_interleave(k, dim=0) for part in (runs.at, runs.is_run, runs.y, runs.metrics)))
        left = Runs(left.at, given.flatten(0, 1), left.y, left.metrics)
        targets = x[runs.at].flatten(0, 1)[:, None]
        hidden = body(network.rows(targets, network.workload(x, left)))[:, 0].unflatten(0, (-1, k))
        times = runs.y.exp() / network.unit

        def loss(weights: dict[str, Tensor], hidden: Tensor, times: Tensor, is_run: Tensor) -> Tensor:
            return percentage_error(functional_call(tail, weights, (hidden,))[:, 0], times, is_run) / 100

        weights = {name: value.expand(len(rows), *value.shape) for name, value in tail.named_parameters()}
        for _ in range(self.steps):
            slopes = vmap(grad(loss))(weights, hidden, times, runs.is_run)
            weights = {name: value - self.step_size * slopes[name] for name, value in weights.items()}
        final: Tensor = vmap(lambda tuned, inner: functional_call(tail, tuned, (inner,)))(weights, body(rows))
        return final[..., 0]


def fit_time(pool: Pool, settings: TimeSettings, seed: int, tuning: Tuning | None = None) -> FittedTime:
    """The network, and its variances from workloads that another one, trained on the rest, has not seen.

    Raises InputError: see trainable.
    """
    pool = trainable(pool)

    def of(part: Pool, factors: FloatArray) -> FittedTime:
        return FittedTime(*train_time_network(part, settings, seed), additive().fit(part), factors, tuning)

    fold = fold_of(pool.workloads, FOLDS, seed)
    without = of(pool.part(np.flatnonzero(fold != 0)), np.ones(settings.runs + 1))
    return of(pool, inflation([without], held_out(pool, settings.runs, fold, 1, seed), settings.runs))


def trainable(pool: Pool) -> Pool:
    """The workloads that were measured under two configurations: others give no episode.

    Raises InputError: there are fewer than four, too few to train on some and hold out others.
    """
    rows = np.flatnonzero((~np.isnan(pool.y)).sum(axis=1) > 1)
    if len(rows) < LEAST_WORKLOADS:
        raise InputError(f"pool must have {LEAST_WORKLOADS} workloads that were measured under two configurations, "
                         f"got {len(rows)}")
    return pool.part(rows)


@dataclass(frozen=True)
class Sizeless:
    """The plain base learner; settings: without an encoder."""

    settings: TimeSettings = TimeSettings()
    name: str = "sizeless"

    def fit(self, pool: Pool, seed: int = 0) -> FittedTime:
        """Raises InputError: the pool is too small."""
        return fit_time(pool, self.settings, seed)


@dataclass(frozen=True)
class Transfer:
    """Sizeless pretrained on the pool, its last layers tuned to each new workload; all below stays as it is.

    The thesis's baseline of transfer learning (section 5.6.3), which does not say what it tunes or for how long.
    """

    settings: TimeSettings = TimeSettings()
    steps: int = 20
    step_size: float = 1e-3
    layers: int = 2
    name: str = "transfer"

    def fit(self, pool: Pool, seed: int = 0) -> FittedTime:
        """Raises InputError: the pool is too small."""
        return fit_time(pool, self.settings, seed, Tuning(self.steps, self.step_size, self.layers))
