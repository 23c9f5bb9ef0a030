"""Agents that together never ask for more than the cluster: what follows of one agent that is proved.

    a_i = x_i min(1, C / X) + max(C - X, 0) w_i,    X = sum x_i,    sum w_i = 1:    sum a_i = C

Agent i of A sees its allotment a_i, and it is proved of its file that its target is at most a_i + m, for every state of
everything else. So one interval in which all act on one look leaves at most C + A m, whatever they have learned. Two
things are added up with that: m, what the proof leaves open, and the least limit L that a function keeps where its
allotment is less. With X = (1 + e) C before, at most A m + A L e more than C are held after: e -> (m + L e) A / C,
which falls to m / (C / A - L) from any start. A proof over one agent and the shape of a sum, not over A copies. No
torch.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from feature_store.finite_numbers import is_finite_number
from models.control.contract.guarantee import Judged, Shipped, judged
from models.verification.checker.archive import Rejected
from models.verification.language.amounts import amount, plain
from systems.shared_cluster.interface import CONTROLS, LEAST_CORES, STEP_SECONDS

FORMAT = "assay-cluster-limits/1"
ASSUMED = ("Allotments are worked out from one look at all limits, each agent acts on that look once before the next, "
           "and none is left out: a function whose agent does not act keeps what it has. It rests on what is proved of "
           "the file itself, and on the shield, which keeps the ceiling for whoever acts as long as the allotment is "
           "read; a limit that an operator holds is the operator's.")
WORDS = {"change": "Functions", "bound": "All limits at most", "caption": "For ever, from any limits"}
START, WITHIN = 1.0, 1e-3  # above the cluster, as a share: a start; what counts as back
MOST_STEPS = 10_000  # a day and more
_TARGET, _ALLOTMENT = CONTROLS[0].name, "allotment_cores"


def margin_of(properties: Sequence[Mapping[str, Any]]) -> float | None:
    """By how many cores a target may exceed its allotment, in every state; None: it is not proved.

    Args:
        properties: as specification.yaml has them, proved.
    """
    orders = [{"margin": 0.0, "factor": 1.0, **one["order"]} for one in properties if "order" in one]
    found = [-float(one["margin"]) for one in orders if one == {
        "upper": _ALLOTMENT, "lower": _TARGET, "factor": 1.0, "margin": one["margin"]}]
    return max(0.0, min(found)) if found else None


def excess(functions: int, cores: float, margin: float) -> tuple[float, int] | None:
    """What all limits may be above the cluster for ever, as a share of it, and after how many intervals that is
    reached within WITHIN from START above; None: the least limits alone are as much as the cluster, or nearly."""
    fair = cores / functions
    if fair <= LEAST_CORES:
        return None
    stays, now, steps = margin / (fair - LEAST_CORES), START, 0
    while now > stays + WITHIN and steps < MOST_STEPS:
        now, steps = (margin + LEAST_CORES * now) / fair, steps + 1
    return None if steps == MOST_STEPS else (stays, steps)


def statement(functions: int, cores: float, share: float, steps: int) -> str:
    """What is guaranteed, in words."""
    return (f"The limits of {functions} functions whose agents run this file stay within "
            f"{amount(cores * (1.0 + share), 'cores')} together, on a cluster of {plain(cores)}, for ever once they "
            f"are, whatever the load and the functions; from twice the cluster they are within {plain(100 * WITHIN)} % "
            f"of that after {math.ceil(steps * STEP_SECONDS)} s.")


def guarantees(properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str]) -> Mapping[str, Any]:
    """See `GuaranteedSystem.guarantees`. settings: of the workload, none left out."""
    began, functions, cores = time.monotonic(), int(float(settings["functions"])), float(settings["cluster_cores"])
    one: dict[str, Any] = {"change": functions, "change_unit": "", "status": "UNKNOWN", "statement": "", "bound": None,
                           "bound_unit": "cores", "steps": None, "growth": None, "leaves": 0,
                           "reason": "No property says that a target is at most its allotment, in every state.",
                           "seconds": 0.0}
    content = json.dumps({"format": FORMAT, "functions": functions, "cores": cores}).encode()
    checked, shipped = check(content, properties), None
    if checked.accepted:
        found = excess(functions, cores, margin_of(properties) or 0.0)
        assert found is not None
        shipped = Shipped(content, checked.statement)
        one |= {"status": "PROVED", "reason": "", "statement": checked.statement, "bound": cores * (1.0 + found[0]),
                "steps": found[1]}
    one["seconds"] = time.monotonic() - began
    return {"assumed": ASSUMED, "words": WORDS, "found": [one], "shipped": shipped}


def check(content: bytes, properties: Sequence[Mapping[str, Any]]) -> Judged:
    """Whether a shipped guarantee follows of what is proved; never raises on a bad one."""
    return judged(content, FORMAT, ("functions", "cores"), partial(_says, properties))


def _says(properties: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> str:
    functions, cores = document["functions"], document["cores"]
    if not (isinstance(functions, int) and not isinstance(functions, bool) and 1 <= functions <= 1_000_000
            and is_finite_number(cores) and cores > 0):
        raise Rejected(f"functions must be 1 to 1000000 and cores above 0, got {functions!r:.40} and {cores!r:.40}")
    margin = margin_of(properties)
    if margin is None:
        raise Rejected(f"{_TARGET} must be proved to be at most {_ALLOTMENT} in every state, got no such property")
    found = excess(functions, cores, margin)
    if found is None:
        raise Rejected(f"a function must have more than {LEAST_CORES:g} cores on average, got {cores:g} for "
                       f"{functions}")
    return statement(functions, cores, *found)
