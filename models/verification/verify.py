"""The one entry to verification: `verify(network, specification, budget) -> Verdict`.

Falsification first (milliseconds, refutes ordinary networks), then branch and bound on the partial
derivatives, then every leaf once more through the independent checker with outward rounding: PROVED
is said only of what the checker accepts.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from feature_store.errors import InputError
from models.verification.checker import leaf_bounds, leaf_boxes
from models.verification.falsification import falsify, falsify_near
from models.verification.network import ReluNetwork
from models.verification.search import Budget, Progress, branch_and_bound
from models.verification.specification import FloatArray, Specification
from models.verification.verdict import Status, Verdict, Witness


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
    if not (budget.seconds > 0 and budget.boxes > 0 and budget.batch > 0):  # NaN is not positive
        raise InputError(f"budget must be positive, got {budget}")
    started = time.monotonic()
    witnesses: list[Witness] = list(falsify(network, specification, points, seed=seed))

    def violating(suspects: FloatArray) -> bool:
        witnesses.extend(falsify(network, specification, suspects, samples=64, steps=5, seed=seed + 1)
                         or falsify_near(network, specification, suspects))
        return bool(witnesses)

    if witnesses:
        verdict = Verdict(Status.REFUTED, "a counterexample was found")
    else:
        left = replace(budget, seconds=max(budget.seconds - (time.monotonic() - started), 1e-3))
        verdict = branch_and_bound(network, specification, left, violating, on_progress)
    if verdict.status is Status.PROVED:
        verdict = _confirm(network, specification, verdict)
    return replace(verdict, witnesses=tuple(witnesses), seconds=time.monotonic() - started)


def _confirm(network: ReluNetwork, specification: Specification, verdict: Verdict) -> Verdict:
    """PROVED only if the rigorous bounds of every leaf agree; the reported lower bound is theirs."""
    assert verdict.tree is not None  # PROVED always carries its tree
    weights = [w.astype(float) for w in network.weights]
    biases = [b.astype(float) for b in network.biases]
    boxes = leaf_boxes(verdict.tree.split_dimension, verdict.tree.split_value, specification.lower, specification.upper)
    bounds = leaf_bounds(weights, biases, *boxes, specification.queries)
    verdict = replace(verdict, lower_bound=float(bounds.min()))
    if not (bounds >= -specification.tolerance).all():
        return replace(verdict.because(Status.UNKNOWN, "rounding left a box unproved"), tree=None)
    return verdict
