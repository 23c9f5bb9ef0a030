"""Checks a scaler's guarantee again: `check_scaler_guarantee(folder, scaler, law)`. No code of the search.

Makes chains and claims again from what it is given, has the independent checker prove every leaf, and derives S, N and
the sentence again. The law, the share of capacity that a step may leave among it, and what the policy sees are taken
from whoever checks, never from the folder.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from feature_store.whole_files import write_file
from models.verification.checker.archive import Rejected
from models.verification.closed_loop.answer import GuaranteeCheck
from models.verification.closed_loop.chain_builder import chain_file
from models.verification.closed_loop.document_check import checked_document, require_said
from models.verification.language.amounts import amount, plain
from models.verification.proof_file import check_proof
from systems.autoscaling.guarantee.backlog_bound import BacklogBound, backlog_bound
from systems.autoscaling.guarantee.catching_up import CatchingUp, Scaler, ScalerLaw

DOCUMENT = "scaler_guarantee.json"
KEYS = ("status", "statement", "policy_sha256", "law", "observation", "start", "threshold", "headroom", "growth",
        "bound")


def about(law: ScalerLaw, start: float) -> str:
    """What a guarantee is about, in words."""
    return (f"In the fluid law, from any backlog up to {plain(start)} core seconds, with any {law.replicas_low} to "
            f"{law.replicas_high} replicas of {plain(law.limit_low)} to {plain(law.limit_high)} cores running, for any "
            f"load from {plain(law.load_low)} to {plain(law.load_high)} cores that changes by at most "
            f"{plain(law.change)} cores in a step of {plain(law.step_s)} s")


def guaranteed(law: ScalerLaw, start: float, bound: BacklogBound) -> str:
    """What is guaranteed, in words: S after N steps."""
    return (f"{about(law, start)}: the backlog is at most {amount(bound.backlog, 'core seconds')} after {bound.steps} "
            "steps and for ever after.")


def claims_of(scaler: Scaler, law: ScalerLaw, threshold: float, headroom: float, growth: float) -> list[CatchingUp]:
    """The claims of all numbers of replicas that may have too little capacity. Raises InputError: the policy is not
    shown what one is about."""
    every = (CatchingUp(scaler, law, number, threshold, headroom, growth)
             for number in range(law.replicas_low, law.replicas_high + 1))
    found = [one for one in every if one.cells()]
    for one in found:
        one.require_shown()
    return found


def files_of(folder: Path, replicas: int) -> tuple[Path, Path, Path]:
    """The chain, the claim and the proof of a number of replicas."""
    name = f"replicas_{replicas}"
    return folder / f"{name}.onnx", folder / f"{name}.vnnlib", folder / f"{name}.npz"


def write_claim(claim: CatchingUp, folder: Path) -> None:
    """Writes chain and claim."""
    model, specification, _ = files_of(folder, claim.replicas)
    write_file(model, chain_file(claim.chain()))
    write_file(specification, claim.claim_text())


def check_scaler_guarantee(folder: Path, scaler: Scaler, law: ScalerLaw, seconds: float = math.inf) -> GuaranteeCheck:
    """Whether the folder proves its guarantee of this scaler in this law. Never raises on a bad folder: refuses.

    seconds: limit of the check, after which the folder is refused.
    """
    deadline = time.monotonic() + seconds

    def derived(document: Mapping[str, Any]) -> GuaranteeCheck:
        numbers = {name: float(document[name]) for name in ("threshold", "headroom", "growth")}
        bound = _claimed(document, law, numbers)
        leaves = sum(_leaves(claim, folder, deadline) for claim in claims_of(scaler, law, **numbers))
        return GuaranteeCheck(True, "", leaves, document["statement"], about(law, float(document["start"])),
                              {"core seconds of backlog": bound.backlog, "steps until then": bound.steps})

    given = {"law": asdict(law), "observation": observation_of(scaler)}
    return checked_document(folder / DOCUMENT, KEYS, scaler.policy, given, derived)


def _claimed(document: Mapping[str, Any], law: ScalerLaw, numbers: Mapping[str, float]) -> BacklogBound:
    """S and N, as the document claims them. Raises Rejected unless they follow."""
    if not all(0 < value < math.inf for value in (*numbers.values(), float(document["start"]))):
        raise Rejected("start, threshold, headroom and growth must be numbers > 0")
    bound = backlog_bound(law, numbers["threshold"], numbers["headroom"], numbers["growth"], float(document["start"]))
    claimed = BacklogBound(**document["bound"])
    if bound is None or not (claimed.backlog >= bound.backlog and claimed.steps >= bound.steps):
        raise Rejected("S and N must be no less than what follows from the growth")
    require_said(document, guaranteed(law, float(document["start"]), claimed))
    return claimed


def _leaves(claim: CatchingUp, folder: Path, deadline: float) -> int:
    if (left := deadline - time.monotonic()) <= 0:
        raise Rejected(f"guarantee must be checked within the time limit, got to {claim.replicas} replicas")
    with TemporaryDirectory() as name:
        write_claim(claim, Path(name))
        model, specification, _ = files_of(Path(name), claim.replicas)
        checked = check_proof(files_of(folder, claim.replicas)[2], model, specification, left)
    if not checked.accepted:
        raise Rejected(f"{claim.replicas} replicas: {checked.reason}")
    return checked.leaves


def observation_of(scaler: Scaler) -> dict[str, Any]:
    """What the policy sees, and its outputs, as plain values."""
    return {name: getattr(scaler, name).tolist() for name in ("matrix", "low", "high")} | {
        "limit": scaler.limit, "replicas": scaler.replicas}
