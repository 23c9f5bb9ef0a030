"""Checks a guarantee again: `check_guarantee(folder, policy, observation, law)`. Trusts nothing that the folder holds.

The law and what the policy sees are given by whoever checks, for a guarantee is worth what these are; guarantee.json
must name the same, and has the numbers that are claimed. Chains and claims are made again out of them and the policy
and must be the files that the proofs are about; the independent checker proves every leaf; S, N and X must follow from
the two rankings, as guarantee.py says; the sentence must be what these numbers say; and there is nothing else in it.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain
from models.verification.closed_loop.document_check import GuaranteeCheck, checked_document, require_said
from models.verification.closed_loop.fluid_law import FluidLaw, Observation
from models.verification.closed_loop.one_step import OneStep, Ramp
from models.verification.closed_loop.ranking import Ranking, files_of, write_ranking
from models.verification.language.amounts import amount, plain
from models.verification.proof_file import check_proof

DOCUMENT = "guarantee.json"
NUMBERS = ("start", "backlog", "steps", "excess", "excess_steps")
RANKED = ("ranked", "base", "step", "highest", "backlog", "within")
KEYS = ("status", "statement", "policy_sha256", "law", "observation", "ramp", "rankings", *NUMBERS)


def chain_document(chain: Chain | None) -> dict[str, Any] | None:
    """A chain in float64 as plain values."""
    if chain is None:
        return None
    return {"weights": [weight.tolist() for weight in chain.weights], "biases": [b.tolist() for b in chain.biases],
            "relus": list(chain.relus)}


def observation_document(observation: Observation) -> dict[str, Any]:
    """What a policy sees as plain values."""
    return {"matrix": observation.matrix.tolist(), "low": observation.low.tolist(), "high": observation.high.tolist(),
            "function": chain_document(observation.function)}


def about(law: FluidLaw, start: float, unit: str) -> str:
    """What a guarantee is about, in words: backlogs up to `start`, and the law's loads and capacities."""
    return (f"In the fluid law, from any backlog up to {plain(start)} {unit} x s, whatever capacity from "
            f"{plain(law.capacity_low)} to {plain(law.capacity_high)} {unit} is running, for any load from "
            f"{plain(law.load_low)} to {plain(law.load_high)} {unit} that changes by at most {plain(law.change)} "
            f"{unit} in a step of {plain(law.step_s)} s")


def guaranteed(law: FluidLaw, start: float, backlog: float, steps: int, excess: float, excess_steps: int,
               unit: str = "cores") -> str:
    """What is guaranteed, in words: S after N steps, X after so many."""
    return (f"{about(law, start, unit)}: the backlog is at most {amount(backlog, f'{unit} x s')} after {steps} steps "
            f"and for ever after, and from step {excess_steps} on capacity exceeds load by at most "
            f"{amount(excess, unit)}.")


def check_guarantee(folder: Path, policy: Chain, observation: Observation, law: FluidLaw) -> GuaranteeCheck:
    """Whether the folder proves its guarantee of this policy, which sees that, in this law. Never raises on a bad
    folder: refuses."""
    given = {"law": asdict(law), "observation": observation_document(observation)}

    def leaves(document: Mapping[str, Any]) -> int:
        ramp = None if document["ramp"] is None else Ramp(**document["ramp"])
        loop = OneStep(policy, observation, law, ramp)
        first, second = (_ranking(one) for one in document["rankings"])
        _require_consequence(loop, document, first, second)
        require_said(document, guaranteed(law, *(document[name] for name in NUMBERS)))
        return sum(_leaves(loop, ranking, folder) for ranking in (first, second))

    return checked_document(folder / DOCUMENT, KEYS, policy, given, leaves)


def _ranking(given: Mapping[str, Any]) -> Ranking:
    if set(given) != set(RANKED):
        raise Rejected(f"ranking must hold {', '.join(RANKED)}, got {', '.join(sorted(given))[:500]}")
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
