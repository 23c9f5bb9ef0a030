"""Is a network in scaled coordinates ordered, while it is trained: `verify(network, specification, budget) -> Verdict`.

For the loop that trains on counterexamples, and for benchmarks beside other tools. What ships is decided by decide.py,
on the file itself.

Falsification first (milliseconds, refutes ordinary networks), then branch and bound on the partial
derivatives with rigorous bounds. A box counts as proved only if the independent checker accepts it too.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.verification.checker.check import leaf_bounds
from models.verification.language.specification import Specification
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.graph import FloatArray
from models.verification.obligations.slopes import Slopes
from models.verification.search.checked_query import CheckedQuery
from models.verification.search.derivative_query import DerivativeQuery
from models.verification.search.prove import WITNESSES, prove_slopes
from models.verification.search.search_result import Budget, Check, Progress
from models.verification.verdict import Status, Verdict


def verify(
    network: ReluNetwork,
    specification: Specification,
    budget: Budget = Budget(),
    points: FloatArray | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    wanted: int = WITNESSES,
) -> Verdict:
    """Decides whether the network satisfies the specification everywhere in its box.

    Args:
        network: n inputs, one output, in the coordinates of the specification's box.
        points: starting points (m, n) for the counterexample search, for example training rows.
        on_progress: called after every round of the search.
        wanted: witnesses sought once there is one, at most; 1: the first one ends the search, however small its fall.

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
    query = CheckedQuery(DerivativeQuery(network.graph, slopes), _check(network, specification))
    result, witnesses = prove_slopes(network.graph, slopes, specification.lower[None], specification.upper[None],
                                     budget, points, seed, on_progress, query, wanted=wanted)
    # what is reported as the bound of a proof is the checker's
    margin = query.lowest if result.status is Status.PROVED else result.lower_bound
    return Verdict(result.status, result.reason, margin - specification.tolerance, result.proved_share,
                   time.monotonic() - started, result.boxes, witnesses, result.tree)


def _check(network: ReluNetwork, specification: Specification) -> Check:
    weights, biases = ([array.astype(float) for array in arrays] for arrays in (network.weights, network.biases))
    enough = np.full(len(specification.queries), -specification.tolerance)

    def check(lower: FloatArray, upper: FloatArray, root: NDArray[np.int64]) -> tuple[NDArray[np.bool_], FloatArray]:
        bounds = leaf_bounds(weights, biases, lower, upper, specification.queries, enough=enough).min(axis=1)
        return bounds >= -specification.tolerance, bounds + specification.tolerance

    return check
