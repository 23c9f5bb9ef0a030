"""The one entry to verification: `verify(network, specification, budget) -> Verdict`.

Falsification first (milliseconds, refutes ordinary networks), then branch and bound on the partial
derivatives with rigorous bounds. A box counts as proved only if the independent checker accepts it
too, so that every PROVED comes with a certificate that anyone can check again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.verification.branch_and_bound import Budget, Margins, Progress, Query
from models.verification.checker import leaf_bounds
from models.verification.derivative_query import DerivativeQuery, Slopes
from models.verification.graph import FloatArray
from models.verification.network import ReluNetwork
from models.verification.prove import prove_slopes
from models.verification.specification import Specification
from models.verification.verdict import Status, Verdict


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
    features = tuple(feature for feature, _ in specification.queries)
    signs = np.array([[sign] for _, sign in specification.queries], dtype=np.float64)
    slopes = Slopes(features, signs, np.full(len(features), specification.tolerance))
    query = _Checked(DerivativeQuery(network.graph, slopes), network, specification)
    result, witnesses = prove_slopes(network.graph, slopes, specification.lower[None], specification.upper[None],
                                     budget, points, seed, on_progress, query)
    # what is reported as the bound of a proof is the checker's
    lowest = query.lowest if result.status is Status.PROVED else result.lower_bound - specification.tolerance
    return Verdict(result.status, result.reason, lowest, result.proved_share, time.monotonic() - started, result.boxes,
                   witnesses, result.tree)


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
