"""What a policy that sets replicas and their CPU limit guarantees in the fluid law: `scaler_guarantee(...)`.

"From any backlog up to B, whatever capacity is running, for any load in its limits that changes by at most d a step:
the backlog is at most S after N steps and for ever after."

For every number of replicas it is proved how fast capacity rises under a backlog (catching_up.py); S and N follow
(backlog_bound.py). The orders of the policy's specification that this rests on are proved apart, with the bundle. The
factor of growth is looked for among samples first; what is proved is the claim with it, one file a number of replicas.
Nothing is said of how far capacity exceeds load.

check_scaler_guarantee.py checks what is written here.
"""

import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.verification.closed_loop.document_check import policy_digest
from models.verification.decide import decide
from models.verification.verdict import Status
from systems.autoscaling.guarantee.backlog_bound import BacklogBound, backlog_bound
from systems.autoscaling.guarantee.catching_up import CatchingUp, Scaler, ScalerLaw
from systems.autoscaling.guarantee.check_scaler_guarantee import (
    DOCUMENT,
    KEYS,
    about,
    claims_of,
    files_of,
    guaranteed,
    observation_of,
    write_claim,
)

# Random points of a cell; share of the sampled growth that is tried first, and of what is left after each attempt.
SAMPLES, ROOM, SMALLER, ATTEMPTS = 4096, 0.7, 0.7, 3
LEAST_GROWTH = 1.01
LEAST_SECONDS = 1.0  # with less no file can be read


@dataclass(frozen=True)
class ScalerGuarantee:
    """S and N for one d, with what shows them.

    threshold: v0, the backlog from which on capacity is proved to grow, by `growth` a step; headroom: up to how far
    above the load; start: B. bound: S and N; None where nothing is proved. sampled_growth: the least among samples;
    worst: where, what the policy sees by position. leaves: of all certificates; claims: numbers of replicas.
    """

    status: Status
    law: ScalerLaw
    start: float
    threshold: float
    headroom: float
    growth: float
    bound: BacklogBound | None
    sampled_growth: float
    worst_replicas: int
    worst: tuple[float, ...]
    claims: tuple[int, ...]
    boxes: int
    leaves: int
    seconds: float
    reason: str = ""

    def statement(self) -> str:
        """What is guaranteed, in words."""
        if self.bound is None:
            return f"{about(self.law, self.start)}: nothing is guaranteed. {self.reason}".strip()
        return guaranteed(self.law, self.start, self.bound)


def scaler_guarantee(scaler: Scaler, law: ScalerLaw, start: float, folder: Path, *, threshold: float,
                     headroom: float, seconds: float = 60.0, seed: int = 0) -> ScalerGuarantee:
    """Looks for the guarantee, proves it and writes chains, claims and proofs to the folder.

    Args:
        start: B, core seconds, > 0.
        folder: is made where it does not exist.
        threshold: v0, core seconds; headroom: cores above the load up to which capacity has to grow; both > 0.
        seconds: for the proofs.

    Raises:
        InputError: numbers that are not > 0.
    """
    for name, value in (("start", start), ("threshold", threshold), ("headroom", headroom)):
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be a number > 0, got {value!r}")
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    claims = claims_of(scaler, law, threshold, headroom, 1.0)
    (least, worst), number = min(((one.sampled(SAMPLES, seed), one.replicas) for one in claims), key=lambda p: p[0][0])
    found = ScalerGuarantee(
        Status.UNKNOWN, law, start, threshold, headroom, 1.0, None, least, number,
        tuple(CatchingUp(scaler, law, number, threshold, headroom, 1.0).seen_at(worst).tolist()),
        tuple(one.replicas for one in claims), 0, 0, 0.0)
    for attempt in range(ATTEMPTS):
        growth = 1.0 + math.floor(1000 * (least - 1.0) * ROOM * SMALLER**attempt) / 1000
        bound = backlog_bound(law, threshold, headroom, growth, start) if growth >= LEAST_GROWTH else None
        left = seconds - (time.monotonic() - began)
        if bound is None or left <= 0:
            found = replace(found, reason=found.reason or f"Capacity grows by a factor of {least:.3g} a step in the "
                                                          f"worst sample, with {number} replicas.")
            break
        tried = _proved(replace(found, growth=growth), scaler, folder, left / (2 if attempt == 0 else 1), seed)
        if tried.status is Status.PROVED:
            found = replace(tried, bound=bound)
            break
        found = replace(tried, growth=1.0)
    found = replace(found, seconds=time.monotonic() - began)
    write_file(folder / DOCUMENT, json.dumps(_document(found, scaler), indent=1, allow_nan=False))
    return found


def _proved(found: ScalerGuarantee, scaler: Scaler, folder: Path, seconds: float, seed: int) -> ScalerGuarantee:
    """All claims with that growth, until one is not proved."""
    began, boxes, leaves = time.monotonic(), found.boxes, 0
    claims = claims_of(scaler, found.law, found.threshold, found.headroom, found.growth)
    # the one with the worst sample first
    for claim in sorted(claims, key=lambda one: one.replicas != found.worst_replicas):
        model, specification, proof = files_of(folder, claim.replicas)
        left = seconds - (time.monotonic() - began)
        if left < LEAST_SECONDS:
            return replace(found, boxes=boxes, reason=f"The time ended before {claim.replicas} replicas.")
        write_claim(claim, folder)
        verdict = decide(model, specification, left, certificate=proof, seed=seed)
        boxes += sum(part.boxes for part in verdict.parts)
        if verdict.status is not Status.PROVED or verdict.certificate is None:
            return replace(found, boxes=boxes, reason=f"With {claim.replicas} replicas a growth by {found.growth:.4g} "
                                                      f"is {verdict.status}: {verdict.reason}.")
        leaves += verdict.certificate["leaves"]
    return replace(found, status=Status.PROVED, boxes=boxes, leaves=leaves, reason="")


def _document(found: ScalerGuarantee, scaler: Scaler) -> dict[str, Any]:
    """What `check_scaler_guarantee` derives again, and no more."""
    known = asdict(found) | {
        "status": str(found.status), "statement": found.statement(), "policy_sha256": policy_digest(scaler.policy),
        "observation": observation_of(scaler)}
    return {name: known[name] for name in KEYS}
