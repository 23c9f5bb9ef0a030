"""What a shadow's numbers mean, in sentences: one verdict, how far it can be believed, and what to do next."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from models.reporting.formatting import number, percent, titled
from models.tasks.control.evidence_reading import percent_signed
from models.tasks.control.shadow.replay import AS_SET, FALLBACK, POLICY

Found = Mapping[str, Any]
DAY_HOURS = 24.0
OFTEN = 0.05  # share of the steps
UNMEASURED = "How often the service missed its objective was measured in none of the replayed steps, or in too few"


def has_ends(interval: Sequence[float]) -> bool:
    """Whether enough steps are known for an interval (intervals.py)."""
    return all(map(math.isfinite, interval[1:]))


def span(interval: Sequence[float], low: float = -1e300) -> str:
    """A share with its interval, where it has one: 12.0 % (8.0 to 15.0 %)."""
    mean, lower, upper = (max(value, low) for value in interval)  # in this order NaN stays NaN
    if not has_ends(interval):
        return percent_signed(mean)
    return f"{percent_signed(mean)} ({100 * lower:.1f} to {percent_signed(upper)})"


def lasted(hours: float) -> str:
    """In words: 25 minutes, 3.5 hours."""
    minutes = max(60.0 * hours, 1.0)
    return number(hours, "hours") if hours >= 2.0 else number(minutes, "minute" if minutes == 1.0 else "minutes")


def named(name: str, units: Mapping[str, str]) -> str:
    """As a reader knows it, with its unit."""
    return "violating steps" if name == "violated" else titled(name, units.get(name, ""))


def verdict(found: Found) -> str:
    """The page's first sentence."""
    decided, replay = found["decided"], found["replay"]
    refused = (f"The policy could not decide in {percent(decided['not_by_policy'])} of the steps"
               + (f", most often because: {decided['most_often']}." if decided["most_often"] else "."))
    if isinstance(replay, str):
        missed = found["measured"]["violated"]
        often = "nobody could measure how often the service missed its objective"
        if math.isfinite(missed[0]):
            often = (f"the service missed its objective in {span(missed, 0.0)} of the steps"
                     + ("" if has_ends(missed) else ", which are too few for an interval"))
        return (f"In {lasted(found['hours'])} {often}. What the policy would have come to is not "
                f"known: {replay}. {refused}")
    saved, played = replay["saved"][POLICY], replay["played"]
    does = (f"saved {span(saved)} of the cost" if saved[0] >= 0
            else f"cost {span([-saved[0], -saved[2], -saved[1]])} more")
    shares = {who: percent(one["violated"][0]) for who, one in played.items()}
    believed = ""
    if why := ("The twin differs from the service" if set(replay["apart"]) & set(replay["decisive"]) else
               UNMEASURED if "violated" not in replay["told"] else ""):
        believed = f"{why}, so that this is not to be believed yet: in a replay of "
    return (f"{believed or 'In '}{lasted(replay['hours'])} the policy would have {does}, at {shares[POLICY]} of "
            f"violating steps beside {shares[AS_SET]} under what was set; its fallback alone would have saved "
            f"{span(replay['saved'][FALLBACK])} at {shares[FALLBACK]}. {refused}")


def doubts(found: Found) -> list[str]:
    """A sentence for each figure in which the twin is further from the service than their intervals, and one where what
    decides was not measured."""
    replay = found["replay"]
    if isinstance(replay, str):
        return []
    units = found["units"]
    sentences = [] if "violated" in replay["told"] else [f"{UNMEASURED}: the twin cannot be held against it."]
    for name in replay["apart"]:
        ours, twins = (percent(one[0]) if units.get(name) == "share" else number(one[0], units.get(name, ""))
                       for one in replay["told"][name])
        sentences.append(f"Under what was set the twin says {twins} for {named(name, {})}, and {ours} was measured: "
                         "they differ by more than their intervals.")
    return sentences


def next_steps(found: Found, task_path: str) -> list[str]:
    """What to do, the first thing first.

    Args:
        task_path: as the user named the task.
    """
    decided, replay, steps = found["decided"], found["replay"], []
    if found["hours"] < DAY_HOURS:
        steps.append(f"Let the shadow run on: it has watched for {lasted(found['hours'])}, and most loads have a "
                     "course of a day at least.")
    if decided["unfit_share"] > OFTEN:
        steps.append(f"See to the measurements first: in {percent(decided['unfit_share'])} of the steps nobody could "
                     f"tell what was going on ({'; '.join(decided['unfit'])}).")
    if decided["beyond_share"] > OFTEN:
        steps.append(f"Train on this service's own days: {percent(decided['beyond_share'])} of the steps were beyond "
                     f"what training saw, most often by {decided['beyond'][0][0]}. assay run --task {task_path} "
                     "--telemetry LOAD, with the load of these days.")
    if decided["not_by_policy"] > OFTEN:
        why = f": {decided['most_often']}" if decided["most_often"] else ""
        steps.append(f"See first why the policy did not decide in {percent(decided['not_by_policy'])} of the "
                     f"steps{why}.")
    if isinstance(replay, str):
        return [*steps, f"A replay is not possible ({replay}): judge by what the policy would have set, below, or let "
                        "it act on a part of the load."]
    if apart := ", ".join(named(name, {}) for name in replay["apart"] if name in replay["decisive"]):
        steps.append(f"Fit the twin again, for it differs from the service in {apart}: assay init --overwrite, or the "
                     "settings of the task file by hand. Until then do not believe what the policy would have saved.")
    if "violated" not in replay["told"]:
        steps.append(f"See first that the outcome is measured. {UNMEASURED}.")
    allowed, more = found["allowed_violating_share"], replay["more_violating"][POLICY]
    saves = replay["saved"][POLICY][1] > 0  # not where the end is NaN
    if not saves or (not more[1] <= 0 and replay["played"][POLICY]["violated"][0] > allowed):
        why = ("too few steps were replayed for an interval of what it saves" if not has_ends(replay["saved"][POLICY])
               else "it saves nothing that is more than chance" if not saves else
               f"it misses the objective more often than what is set now, and than the {percent(allowed)} allowed")
        steps.append(f"Do not let this policy act: {why}. Train it on a longer load, or for longer: assay run --task "
                     f"{task_path} --budget 4.")
    return steps or [f"Let it act: take off whoever sets the service now, then assay control --workload "
                     f"{found['workload']} --controller controller.yaml, with the --actuator that sets it."]
