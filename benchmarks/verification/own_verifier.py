"""Our verifier behind the questions that peers get; all questions about one network at once.

    assay          models.verification.verify: the search, and the independent checker on every box that it closes
    assay_search   models.verification.search.prove: the search alone, which is what peers do
    bounds         models.verification.search.branch_and_bound: no attack, no checker (verification/growth.py)

As peers do, ours ends at the first counterexample. Seconds count the preparation of the network.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.verification.peers.question import PeerResult, Question
from models.verification.network.fully_connected import ReluNetwork
from models.verification.verdict import Verdict

OUR_TOOLS = ("assay", "assay_search")
MODES = (*OUR_TOOLS, "bounds")


@dataclass(frozen=True)
class OwnAnswer:
    """boxes bounded; search_seconds: branch and bound alone, without preparation and first attack."""

    answer: PeerResult
    boxes: int
    search_seconds: float


def decide(mode: str, questions: Sequence[Question], seconds: float, boxes: int) -> OwnAnswer:
    """The verdict on all questions (of one network, box and tolerance) together."""
    from models.verification.language.properties import Monotonicity
    from models.verification.language.specification import Specification
    from models.verification.obligations.slopes import Slopes
    from models.verification.search.branch_and_bound import Budget, Progress, branch_and_bound
    from models.verification.search.derivative_query import DerivativeQuery
    from models.verification.search.prove import prove_slopes, round_size
    from models.verification.verify import verify

    searched = [0.0]

    def on_progress(progress: Progress) -> None:
        searched.append(progress.seconds)

    first, budget = questions[0], Budget(seconds=seconds, boxes=boxes)
    lower, upper = first.lower, first.upper
    rules = tuple(Monotonicity((question.feature,), "increasing" if question.sign > 0 else "decreasing")
                  for question in questions)
    specification = Specification(tuple(f"x{i}" for i in range(first.network.inputs)), lower, upper, rules,
                                  first.tolerance)
    slopes = Slopes(tuple(question.feature for question in questions),
                    np.array([[float(question.sign)] for question in questions]),
                    np.full(len(questions), first.tolerance))
    network = ReluNetwork(first.network.weights, first.network.biases)  # nothing of it is prepared yet
    started = time.perf_counter()
    if mode == "assay":
        verdict = verify(network, specification, budget, on_progress=on_progress, wanted=1)
    elif mode == "assay_search":
        result, witnesses = prove_slopes(network.graph, slopes, lower[None], upper[None], budget,
                                         on_progress=on_progress, wanted=1)
        verdict = Verdict(result.status, result.reason, boxes=result.boxes, witnesses=witnesses)
    else:
        result = branch_and_bound(
            DerivativeQuery(network.graph, slopes), torch.as_tensor(lower)[None], torch.as_tensor(upper)[None], budget,
            lambda suspects, root: False, on_progress, round_size(network.graph))
        verdict = Verdict(result.status, result.reason, boxes=result.boxes)
    took = time.perf_counter() - started
    witness = verdict.witnesses[0] if verdict.witnesses else None
    return OwnAnswer(PeerResult(verdict.status, verdict.reason, took, witness=witness), verdict.boxes, searched[-1])
