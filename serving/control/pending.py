"""Steps that wait for their outcome, and which of them a measurement is of.

A step lasts from its observation to the next one. What is measured at an observation is of the interval that ends where
its newest sample was taken: where that is old, most of it lies in the interval before. So by the age of the newest
sample, in intervals and rounded, an outcome is that of the step so many steps further back (`steps_behind`). That is
right to half an interval at best, and a query over a window longer than a step mixes several steps whatever its age.

An interval that differs from what was to be by more than IRREGULAR is marked so in the log, and has no reward:
training takes all steps to be equally long.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.control.training.trajectory_log import Mark, Step

Pending = Mapping[str, Any]  # fields of the log's `Step`; detail has `interval_s` once it is over

IRREGULAR = 0.2  # share of the interval that was to be
KEPT = 8  # steps that wait while the log cannot be written; older ones are lost
MOST_BEHIND = 4  # steps: what is older than that is no outcome of any


def steps_behind(age_s: float, interval_s: float) -> int:
    """How many steps before the last one a measurement is of; 0 where its age is not known."""
    if not (math.isfinite(age_s) and age_s > 0 and interval_s > 0):
        return 0
    return math.floor(age_s / interval_s + 0.5)


@dataclass(frozen=True)
class Settled:
    """What becomes of the steps that wait.

    Attributes:
        without: whose outcome will not come any more.
        of: whose outcome the measurement is; None: of none.
        after: the step after that; None: the present one.
        waiting: those that wait on.
    """

    without: tuple[Pending, ...]
    of: Pending | None
    after: Pending | None
    waiting: tuple[Pending, ...]


def settled(waiting: tuple[Pending, ...], behind: int) -> Settled:
    """Holds a measurement against the steps that wait, oldest first."""
    at = len(waiting) - 1 - behind
    if at < 0 or behind > MOST_BEHIND:
        # of a step that is in the log already, or too old
        old = max(0, len(waiting) - 1 - MOST_BEHIND)
        return Settled(waiting[:old], None, None, waiting[old:])
    rest = waiting[at + 1:]
    return Settled(waiting[:at], waiting[at], rest[0] if rest else None, rest)


def lasted(waiting: tuple[Pending, ...], interval_s: float) -> tuple[Pending, ...]:
    """The last of them is over, after so long; one that was over already stays as it is."""
    if not waiting or "interval_s" in waiting[-1]["detail"]:
        return waiting
    last = {**waiting[-1], "detail": {**waiting[-1]["detail"], "interval_s": round(interval_s, 3)}}
    return (*waiting[:-1], last)


def logged(pending: Pending, outcome: Mapping[str, float], due_s: float) -> Step:
    """The log's record of a step; without an outcome, or after an irregular interval, its reward is not known.

    Args:
        due_s: seconds that it was to last.
    """
    interval_s = pending["detail"].get("interval_s")
    mark: Mark = "missing"
    if outcome and interval_s is not None and abs(interval_s - due_s) > IRREGULAR * due_s:
        outcome, mark = {}, "irregular"
    reward, cost, violation, violated = (outcome.get(key, math.nan)
                                         for key in ("reward", "cost", "violation", "violated"))
    observation, targets = (tuple(math.nan if value is None else float(value) for value in pending[key])
                            for key in ("observation", "targets"))
    return Step(pending["application"], pending["episode"], pending["step"], pending["actor"], observation, targets,
                reward, cost, violation, violated, "measured" if math.isfinite(reward) else mark, pending["detail"])


def left(waiting: tuple[Pending, ...], last: Step | None) -> tuple[Pending, ...]:
    """Those of a controller before that are not in its log yet. last: of the log."""
    return tuple(one for one in waiting
                 if last is None or (one["episode"], one["step"]) > (last.episode, last.step))
