"""Which learner for this pool: chosen on the pool alone, by how well held-out workloads of it are predicted.

What is tried depends on the pool. Metrics may tell what the runs do not, or only bring their noise: each learner is
tried with and without them. Learners with many parameters need many workloads. The first candidate is the default;
the best of the others replaces it only where its error (validation.py) is less by more than one standard error of the
paired differences over workloads, the rule of tuning.py, for on a small pool the best of several is the luckiest.

Symbols as in learner.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feature_store.errors import InputError
from models.adaptation.closed_form.baselines import BoostedRatios
from models.adaptation.closed_form.combination import Mean
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.learner import FloatArray, Learner, Pool
from models.adaptation.networks.meta_network import MetaNetwork
from models.adaptation.pool.validation import SHOTS, mean_over_cells, validate

# From how many workloads on they are tried; measured in docs/benchmarks/adaptation.md.
BOOSTED_WORKLOADS, NETWORK_WORKLOADS = 60, 100


@dataclass(frozen=True)
class PoolError:
    """Mean absolute percentage error of the pool's held-out workloads, as a ratio, and its standard error over them
    (infinite of a single workload)."""

    mape: float
    standard_error: float


@dataclass(frozen=True)
class Choice:
    """The learner chosen and its name; errors by candidate, in the order in which they were tried, empty where the
    pool is too small to try any; reason: a sentence."""

    learner: Learner
    name: str
    errors: Mapping[str, PoolError]
    reason: str


def default_learner() -> Mean:
    """Hierarchical model and nearest workloads together: best on small pools without metrics (docs/decisions/0006)."""
    return _both(Hierarchical(), Neighbours(), "")


def candidates_for(workloads: int, metrics: bool, networks: bool = True) -> tuple[Learner, ...]:
    """The default first, then what else may suit a pool of so many workloads, that has metrics or has not.

    Args:
        networks: whether they may be among them: every fit of one takes some ten seconds.
    """
    learners: list[Learner] = [default_learner(), Hierarchical(), Neighbours()]
    if metrics:
        untold = "_without_metrics"
        hierarchical = Hierarchical(metrics=False, name=f"hierarchical{untold}")
        # of an infinite bandwidth, metrics make no difference
        nearest = Neighbours(metric=float("inf"), filling=hierarchical, name=f"nearest{untold}")
        learners += [_both(hierarchical, nearest, untold), hierarchical, nearest]
    if workloads >= BOOSTED_WORKLOADS:
        learners.append(BoostedRatios())
    if metrics and networks and workloads >= NETWORK_WORKLOADS:
        learners.append(MetaNetwork(prior=Hierarchical()))
    return tuple(learners)


def choose_learner(pool: Pool, candidates: Sequence[Learner] | None = None, shots: Sequence[int] = SHOTS,
                   seed: int = 0) -> Choice:
    """Tries every candidate on the same held-out workloads and supports.

    Args:
        candidates: the default first; None: candidates_for the pool.
        shots: numbers of runs whose errors are averaged.

    Raises:
        InputError: there is no candidate, or two have one name.
    """
    if candidates is None:
        candidates = candidates_for(pool.workloads, bool((~np.isnan(pool.metrics)).any()))
    learners = tuple(candidates)
    by_name = {learner.name: learner for learner in learners}
    if not learners or len(by_name) < len(learners):
        raise InputError("candidates: expected at least one, with distinct names, got "
                         f"{[learner.name for learner in learners]}")
    default = learners[0].name
    if pool.workloads < 2:
        return Choice(learners[0], default, {}, f"{default} is the default, and the pool has too few workloads to "
                                                f"choose on ({pool.workloads}).")
    errors_of: dict[str, FloatArray] = {}
    failed: list[str] = []
    for name, learner in by_name.items():
        try:
            errors = mean_over_cells(validate(learner, pool, shots, seed=seed).T)  # (W,)
        except InputError as error:
            failed.append(f"{name} was not tried: {error}.")
            continue
        if np.isfinite(errors).any():
            errors_of[name] = errors
    summaries = {name: PoolError(*_mean_and_error(errors)) for name, errors in errors_of.items()}
    chosen, reason = _decide(default, errors_of, summaries)
    return Choice(by_name[chosen], chosen, summaries, " ".join([reason, *failed]))


def _decide(default: str, errors_of: Mapping[str, FloatArray], summaries: Mapping[str, PoolError]) -> tuple[str, str]:
    """Name and reason. errors_of: errors of workloads (W,) by candidate, NaN where a workload cannot be predicted."""
    if default not in errors_of:
        return default, f"{default} is the default, and no workload of the pool can be held out to choose on."
    others = [name for name in errors_of if name != default]
    if not others:
        return default, f"{default} is the default and the only candidate that was tried."
    best = min(others, key=lambda name: summaries[name].mape)
    gain, gain_error = _mean_and_error(errors_of[default] - errors_of[best])
    compared = (f"held-out workloads are predicted with an error of {summaries[best].mape:.1%} by {best} and "
                f"{summaries[default].mape:.1%} by {default}, the default")
    if gain > gain_error:
        return best, f"{best}: {compared}; the gain of {gain:.2%} is more than one standard error ({gain_error:.2%})."
    gained = (f"a gain of {gain:.2%} that is no more than one standard error ({gain_error:.2%})" if gain > 0
              else "no gain")
    return default, f"{default}: {compared}: {gained}."


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Of what is finite: mean, NaN without any, and standard error, infinite of fewer than two."""
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("inf")
    return float(known.mean()), float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("inf")


def _both(hierarchical: Hierarchical, nearest: Neighbours, suffix: str) -> Mean:
    return Mean((hierarchical, nearest), name=f"hierarchical_nearest{suffix}")
