"""The one entry to verification: `verify(network, specification, budget) -> Verdict`.

Falsification first (milliseconds, refutes ordinary networks), then branch and bound on the partial
derivatives with rigorous bounds. A box counts as proved only if the independent checker accepts it
too, so that every PROVED comes with a certificate that anyone can check again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.verification.branch_and_bound import Budget, Margins, Progress, Query, branch_and_bound
from models.verification.checker import leaf_bounds
from models.verification.derivative_query import DerivativeQuery, Slopes
from models.verification.falsification import SlopeFalsifier, slope_falsifier
from models.verification.graph import FloatArray, Graph
from models.verification.network import ReluNetwork
from models.verification.specification import Specification
from models.verification.verdict import Status, Verdict, Witness

# Numbers of one tensor of a round: large enough to use the machine, small enough for its caches.
ROUND_ELEMENTS = 1_000_000
SMALLEST_ROUND, LARGEST_ROUND = 16, 2048
SUSPECTS = 64


def verify(
    network: ReluNetwork,
    specification: Specification,
    budget: Budget = Budget(),
    points: FloatArray | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> Verdict:
    """Decides whether the network satisfies the specification everywhere in its box.

    Args:
        network: n inputs, one output, in the coordinates of the specification's box.
        points: starting points (m, n) for the counterexample search, for example training rows.
        on_progress: called after every round of the search.

    Returns:
        PROVED with a tree of leaf boxes that the independent checker accepted; REFUTED with witnesses, most
        violated first; TIMEOUT or UNKNOWN with the share proved so far. Never raises on a hard problem.

    Raises:
        InputError: the specification does not fit the network, or the budget is not positive.
    """
    if len(specification.feature_names) != network.inputs:
        raise InputError(f"specification must describe the network's {network.inputs} inputs, got "
                         f"{len(specification.feature_names)} features")
    if not (budget.seconds > 0 and budget.boxes > 0 and (budget.batch is None or budget.batch > 0)):  # NaN is not
        raise InputError(f"budget must be positive, got {budget}")
    started = time.monotonic()
    falsifier = slope_falsifier(network.graph, specification)
    witnesses = list(falsifier.search(points, seed=seed))
    if witnesses:
        verdict = Verdict(Status.REFUTED, "a counterexample was found")
    else:
        left = replace(budget, seconds=max(budget.seconds - (time.monotonic() - started), 1e-3))
        verdict = _prove(network, specification, left, falsifier, witnesses, seed, on_progress)
    return replace(verdict, witnesses=tuple(witnesses), seconds=time.monotonic() - started)


def _prove(network: ReluNetwork, specification: Specification, budget: Budget, falsifier: SlopeFalsifier,
           witnesses: list[Witness], seed: int, on_progress: Callable[[Progress], None] | None) -> Verdict:
    features = tuple(feature for feature, _ in specification.queries)
    signs = np.array([[sign] for _, sign in specification.queries], dtype=np.float64)
    slopes = Slopes(features, signs, np.full(len(features), specification.tolerance))
    tensors = network.graph.tensors()

    def violating(suspects: Tensor, root: Tensor) -> bool:
        wrong = torch.zeros(len(suspects), dtype=torch.bool)
        for feature, sign in specification.queries:
            gradient = tensors.gradient(suspects, torch.tensor([float(sign)], dtype=torch.float64))
            wrong |= gradient[:, feature] < -specification.tolerance
        if wrong.any():
            near = suspects[wrong][:SUSPECTS].numpy()
            witnesses.extend(falsifier.search(near, samples=64, steps=5, seed=seed + 1) or falsifier.near(near))
        return bool(witnesses)

    lower, upper = (torch.as_tensor(wall)[None] for wall in (specification.lower, specification.upper))
    query = _Checked(DerivativeQuery(network.graph, slopes), network, specification)
    result = branch_and_bound(query, lower, upper, budget, violating, on_progress, round_size(network.graph))
    # what is reported as the bound of a proof is the checker's
    lowest = query.lowest if result.status is Status.PROVED else result.lower_bound - specification.tolerance
    return Verdict(result.status, result.reason, lowest, result.proved_share, boxes=result.boxes, tree=result.tree)


def round_size(graph: Graph) -> int:
    """Boxes of one tensor operation for a network of this size."""
    elements = max(graph.widths, default=1) * (graph.inputs + 3)
    return int(np.clip(ROUND_ELEMENTS // elements, SMALLEST_ROUND, LARGEST_ROUND))


@dataclass
class _Checked:
    """The search's query, with a box proved only if the independent checker proves it too."""

    query: Query
    network: ReluNetwork
    specification: Specification
    lowest: float = float("inf")

    def __post_init__(self) -> None:
        self.weights = [w.astype(float) for w in self.network.weights]
        self.biases = [b.astype(float) for b in self.network.biases]

    def bound(self, lower: Tensor, upper: Tensor, root: Tensor, dtype: torch.dtype) -> Margins:
        """Margins whose `proved` both agree on."""
        margins = self.query.bound(lower, upper, root, dtype)
        rows = margins.proved.nonzero()[:, 0]
        if len(rows):
            bounds = leaf_bounds(self.weights, self.biases, lower[rows].numpy(), upper[rows].numpy(),
                                 self.specification.queries).min(axis=1)
            holds = torch.as_tensor(bounds >= -self.specification.tolerance)
            refused = rows[~holds]
            margins.proved[refused] = False
            margins.charge[refused] = 0
            margins.margin[refused] = torch.as_tensor(bounds + self.specification.tolerance)[~holds].to(
                margins.margin.dtype)
            self.lowest = min(self.lowest, float(bounds[holds.numpy()].min(initial=np.inf)))
        return margins
