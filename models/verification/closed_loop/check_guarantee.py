"""Checks a guarantee again: `check_guarantee(folder, policy)`. Takes nothing on trust that the folder holds.

From guarantee.json come the law, what the policy sees, and the numbers that are claimed. Chains and claims are made
again out of them and the policy and must be the files that the proofs are about; the independent checker proves every
leaf; and S, N and X must follow from the two rankings, as guarantee.py says.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from feature_store.errors import InputError
from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain
from models.verification.closed_loop.fluid_law import FluidLaw, Observation
from models.verification.closed_loop.one_step import OneStep, Ramp
from models.verification.closed_loop.ranking import Ranking, files_of, write_ranking
from models.verification.proof_file import check_proof
from models.verification.verdict import Status

DOCUMENT = "guarantee.json"


@dataclass(frozen=True)
class GuaranteeCheck:
    """accepted, the reason if not; the leaves that were proved again."""

    accepted: bool
    reason: str = ""
    leaves: int = 0


def policy_digest(policy: Chain) -> str:
    """Hex SHA-256 of a policy's weights, ReLUs and types."""
    digest = hashlib.sha256(repr((policy.relus, policy.fed.str, policy.executed.str)).encode())
    for array in (*policy.weights, *policy.biases):
        digest.update(f"{array.shape} ".encode() + np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()


def chain_document(chain: Chain | None) -> dict[str, Any] | None:
    """A chain in float64 as plain values."""
    if chain is None:
        return None
    return {"weights": [weight.tolist() for weight in chain.weights], "biases": [b.tolist() for b in chain.biases],
            "relus": list(chain.relus)}


def _chain(given: Mapping[str, Any] | None) -> Chain | None:
    if given is None:
        return None
    weights, biases = ([np.array(values, dtype=np.float64) for values in given[name]] for name in ("weights", "biases"))
    return Chain(tuple(weights), tuple(biases), tuple(bool(relu) for relu in given["relus"]))


def check_guarantee(folder: Path, policy: Chain) -> GuaranteeCheck:
    """Whether the folder proves its guarantee of this policy. Never raises on a bad folder: refuses."""
    def leaves(document: Mapping[str, Any]) -> int:
        loop = _loop(document, policy)
        first, second = (_ranking(one) for one in document["rankings"])
        _require_consequence(loop, document, first, second)
        return sum(_leaves(loop, ranking, folder) for ranking in (first, second))

    return checked_document(folder / DOCUMENT, policy, leaves)


def checked_document(path: Path, policy: Chain, leaves: Callable[[Mapping[str, Any]], int]) -> GuaranteeCheck:
    """Whether a guarantee's document is of this policy and PROVED, and what it claims is. Never raises: refuses.

    Args:
        leaves: checks what the document claims and counts the leaves of its proofs; raises whatever it likes.
    """
    try:
        document = json.loads(path.read_text())
        if document["status"] != str(Status.PROVED):
            raise Rejected(f"guarantee must be PROVED, got {document['status']!r:.40}")
        if document["policy_sha256"] != policy_digest(policy):
            raise Rejected("policy must be the one that the guarantee is about, its SHA-256 differs")
        return GuaranteeCheck(True, leaves=leaves(document))
    except (Rejected, InputError) as error:
        return GuaranteeCheck(False, str(error))
    except Exception as error:  # a malformed folder of any kind is a refusal, not a crash
        return GuaranteeCheck(False, f"guarantee must be readable, got {type(error).__name__}: {error}")


def _loop(document: Mapping[str, Any], policy: Chain) -> OneStep:
    seen = document["observation"]
    matrix, low, high = (np.array(seen[name], dtype=np.float64) for name in ("matrix", "low", "high"))
    observation = Observation(matrix, low, high, _chain(seen["function"]))
    ramp = None if document["ramp"] is None else Ramp(**document["ramp"])
    return OneStep(policy, observation, FluidLaw(**document["law"]), ramp)


def _ranking(given: Mapping[str, Any]) -> Ranking:
    numbers = {name: float(given[name]) for name in ("base", "step", "highest", "backlog")}
    within = None if given["within"] is None else float(given["within"])
    if not all(np.isfinite(value) for value in (*numbers.values(), *([] if within is None else [within]))):
        raise Rejected("ranking must be of finite numbers, got NaN or infinity")
    if not numbers["step"] > 0:
        raise Rejected(f"step of a ranking must be > 0, got {numbers['step']!r}")
    return Ranking(given["ranked"], **numbers, within=within, proved=True, reason="", seconds=0.0, boxes=0, leaves=0,
                   worst=None)


def _require_consequence(loop: OneStep, document: Mapping[str, Any], first: Ranking, second: Ranking) -> None:
    """Raises Rejected unless S, N and X follow from the rankings."""
    start, law = float(document["start"]), loop.law
    backlog, steps, excess, excess_steps = (document[name] for name in ("backlog", "steps", "excess", "excess_steps"))
    reached = max(first.highest, first.base)  # V never exceeds it
    for holds, what in (
        ((first.ranked, second.ranked) == ("backlog", "capacity"), "rankings must be of the backlog and the capacity"),
        (start >= 0 and first.highest >= loop.highest(start), "highest value must be that of all starts"),
        (first.backlog >= max(start, reached), "backlogs of the first ranking must be all that can be reached"),
        (first.within is None or first.within >= reached, "first ranking must hold wherever V can be"),
        (backlog >= max(first.base, 0.0), "S must be no less than the base of the first ranking"),
        (steps >= first.steps + 1, "N must be no less than the steps of the first ranking and one"),
        (second.highest >= law.capacity_high - law.load_low, "second ranking must begin at any capacity"),
        (second.backlog >= max(first.base, 0.0), "backlogs of the second ranking must be all up to S"),
        (second.within is None or second.within >= first.base, "second ranking must hold wherever the first leads"),
        (excess >= second.base, "X must be no less than the base of the second ranking"),
        (excess_steps >= first.steps + 1 + second.steps, "steps of X must be no less than those of both rankings"),
    ):
        if not holds:
            raise Rejected(what)


def _leaves(loop: OneStep, ranking: Ranking, folder: Path) -> int:
    """The leaves of a ranking's proof, about chain and claim as they are made here."""
    with TemporaryDirectory() as name:
        again = Path(name)
        write_ranking(loop, ranking, again)
        model, claim, _ = files_of(again, ranking.ranked)
        checked = check_proof(files_of(folder, ranking.ranked)[2], model, claim)
    if not checked.accepted:
        raise Rejected(f"ranking of the {ranking.ranked}: {checked.reason}")
    return checked.leaves
