"""Agents that together never ask for more than there is to share: what follows of one agent that is proved.

    a_i = x_i min(1, C / X) + max(C - X, 0) w_i,    X = sum x_i,    sum w_i = 1:    sum a_i = C

Agent i of A sees its allotment a_i (derived_signals.py), and it is proved of its file that its target is at most a_i +
m, for every state of everything else. So one interval in which all act on one look leaves at most C + A m, whatever
they have learned. Two things are added up with that: m, what the proof leaves open, and the least limit L that an
agent keeps where its allotment is less. With X = (1 + e) C before, at most A m + A L e more than C are held after: e
-> (m + L e) A / C, which falls to m / (C / A - L) from any start. A proof over one agent and the shape of a sum, not
over A copies. No torch.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from feature_store.errors import InputError
from feature_store.finite_numbers import is_finite_number
from models.control.contract.guarantee import Shipped, judged
from models.control.contract.signals import Control
from models.verification.checker.archive import Rejected
from models.verification.closed_loop.answer import GuaranteeCheck
from models.verification.language.amounts import amount, plain

ASSUMED = ("Allotments are worked out from one look at all limits, each agent acts on that look once before the next, "
           "and none is left out: a {one} whose agent does not act keeps what it has. It rests on what is proved of "
           "the file itself, and on the shield, which keeps the ceiling for whoever acts as long as the allotment is "
           "read; a limit that an operator holds is the operator's.")
START, WITHIN = 1.0, 1e-3  # above the whole, as a share: a start; what counts as back
MOST_STEPS = 10_000  # a day of ten seconds and more
LEAST_EACH = 0.25  # of the unit, of a workload
CLEAR = 1.001  # times L that an agent has on average, at least: nearer float64 would not tell what is left above it


@dataclass(frozen=True)
class SharedLimits:
    """The guarantee of a system whose agents share `unit`.

    Attributes:
        form: of the shipped file, its `format`.
        one: who has an agent, such as function; `one` + s is also the setting that says how many there are.
        whole: what is shared, such as cluster; `whole`_`unit` is the setting that says how much there is.
        allotment: signal of it, in the control's unit.
        control: target; its `low` is L.
        step_seconds: of an interval.
    """

    form: str
    one: str
    whole: str
    allotment: str
    control: Control
    step_seconds: float

    @property
    def many(self) -> str:
        """Plural, key and setting."""
        return f"{self.one}s"

    def sizes(self, settings: Mapping[str, float | str]) -> tuple[int, float]:
        """How many share how much. settings: of the workload, none left out."""
        return int(float(settings[self.many])), float(settings[f"{self.whole}_{self.control.unit}"])

    def of_workload(self, settings: Mapping[str, float | str],
                    limits: Mapping[str, tuple[float, float]]) -> tuple[int, float]:
        """`sizes` of a workload.

        Raises:
            InputError: limits, which are the whole's and not a workload's; too little or too much for each.
        """
        if limits:
            raise InputError(f"limits: expected none, for a {self.one}'s allotment is its limit, got "
                             + ", ".join(limits))
        count, capacity = self.sizes(settings)
        if not LEAST_EACH <= capacity / count <= self.control.high:
            raise InputError(f"{self.whole}_{self.control.unit}: expected {LEAST_EACH:g} to {self.control.high:g} for "
                             f"each of {count} {self.many}, got {capacity:g}")
        return count, capacity

    def margin_of(self, properties: Sequence[Mapping[str, Any]]) -> float | None:
        """By how much a target may exceed its allotment, in every state; None: it is not proved.

        Args:
            properties: as specification.yaml has them, proved.
        """
        orders = [{"margin": 0.0, "factor": 1.0, **one["order"]} for one in properties if "order" in one]
        found = [-float(one["margin"]) for one in orders if one == {
            "upper": self.allotment, "lower": self.control.name, "factor": 1.0, "margin": one["margin"]}]
        return max(0.0, min(found)) if found else None

    def excess(self, count: int, capacity: float, margin: float) -> tuple[float, int] | None:
        """What all limits may be above the whole for ever, as a share of it, and after how many intervals that is
        reached within WITHIN from START above; None: the least limits alone are as much as the whole, or nearly."""
        fair = capacity / count
        if not fair >= CLEAR * self.control.low:
            return None
        stays, now, steps = margin / (fair - self.control.low), START, 0
        while now > stays + WITHIN and steps < MOST_STEPS:
            now, steps = (margin + self.control.low * now) / fair, steps + 1
        return None if steps == MOST_STEPS else (stays, steps)

    def statement(self, count: int, capacity: float, share: float, steps: int) -> str:
        """What is guaranteed, in words."""
        return (f"The limits of {count} {self.many} whose agents run this file stay within "
                f"{amount(capacity * (1.0 + share), self.control.unit)} together, on a {self.whole} of "
                f"{plain(capacity)}, for ever once they are, whatever the load and the {self.many}; from twice the "
                f"{self.whole} they are within {plain(100 * WITHIN)} % of that after "
                f"{math.ceil(steps * self.step_seconds)} s.")

    def guarantees(self, properties: Sequence[Mapping[str, Any]],
                   settings: Mapping[str, float | str]) -> Mapping[str, Any]:
        """See `GuaranteedSystem.guarantees`. settings: of the workload, none left out."""
        unit, began, (count, capacity) = self.control.unit, time.monotonic(), self.sizes(settings)
        one: dict[str, Any] = {
            "change": count, "change_unit": "", "status": "UNKNOWN", "statement": "", "bound": None,
            "bound_unit": unit, "steps": None, "growth": None, "leaves": 0, "seconds": 0.0,
            "reason": "No property says that a target is at most its allotment, in every state."}
        content = json.dumps({"format": self.form, self.many: count, unit: capacity}).encode()
        checked, shipped = self.check(content, properties), None
        if checked.accepted:
            found = self.excess(count, capacity, self.margin_of(properties) or 0.0)
            assert found is not None
            shipped = Shipped(content, checked)
            one |= {"status": "PROVED", "reason": "", "statement": checked.statement,
                    "bound": capacity * (1.0 + found[0]), "steps": found[1]}
        one["seconds"] = time.monotonic() - began
        words = {"change": self.many.capitalize(), "bound": "All limits at most",
                 "caption": "For ever, from any limits"}
        return {"assumed": ASSUMED.format(one=self.one), "words": words, "found": [one], "shipped": shipped}

    def check(self, content: bytes, properties: Sequence[Mapping[str, Any]]) -> GuaranteeCheck:
        """Whether a shipped guarantee follows of what is proved; never raises on a bad one."""
        return judged(content, self.form, (self.many, self.control.unit), partial(self._says, properties))

    def check_guarantee(self, content: bytes, model: bytes, properties: Sequence[Mapping[str, Any]],
                        settings: Mapping[str, float], levels: Mapping[str, Sequence[float]],
                        seconds: float) -> GuaranteeCheck:
        """See `GuaranteeChecker`: what is proved of the model says all that this needs of it."""
        return self.check(content, properties)

    def _says(self, properties: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> str:
        unit = self.control.unit
        count, capacity = document[self.many], document[unit]
        if not (isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= 1_000_000
                and is_finite_number(capacity) and capacity > 0):
            raise Rejected(f"{self.many} must be 1 to 1000000 and {unit} above 0, got {count!r:.40} and "
                           f"{capacity!r:.40}")
        margin = self.margin_of(properties)
        if margin is None:
            raise Rejected(f"{self.control.name} must be proved to be at most {self.allotment} in every state, got no "
                           "such property")
        found = self.excess(count, capacity, margin)
        if found is None:
            raise Rejected(f"a {self.one} must have clearly more than {self.control.low:g} {unit} on average, got "
                           f"{capacity:g} for {count}")
        return self.statement(count, capacity, *found)
