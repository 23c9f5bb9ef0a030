"""What a shadow came to, in numbers: who decided, what was measured, what the replay gives, whether it can be believed.

All of it is plain JSON: `assay shadow-report --json` prints it, page.py shows it. An interval is [mean, lower, upper].
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.control.contract.acting import load_acting
from models.control.contract.systems import environment_of
from models.tasks.control.judging import Played
from models.tasks.control.roles import roles
from models.tasks.control.shadow.intervals import apart, block_of, mean_with_ends, median_with_ends
from models.tasks.control.shadow.replay import AS_SET, FALLBACK, POLICY, Replayed
from models.tasks.control.shadow.shadow_log import OUTCOMES, FloatArray, ShadowLog
from models.tasks.control.task import ControlTask
from models.tasks.shadowed_kind import ShadowedPolicy

_NUMBER = re.compile(r"(?<!\w)-?\d[\d.,]*(e[-+]?\d+)?(?<![.,])")
GOOD_STEPS = "more good step"  # of the reasons: one of who_acts.py that follows from another
UNITS = {"violated": "share", "reward": ""}


def findings(task: ControlTask, workload: str, log: ShadowLog, policy: ShadowedPolicy,
             replayed: Replayed | str) -> dict[str, Any]:
    """Everything that the page says in numbers."""
    system, block = environment_of(task.environment), block_of(len(log.place), log.step_s)
    measured = [name for name in load_acting(system.acting).observer().measured
                if name in log.signals and _varies(log.signal(name))]
    units = {**UNITS, "cost": system.cost_unit, **{name: log.signals[name] for name in measured}}
    shown = {**log.outcomes, **{name: log.signal(name) for name in measured}}
    return {
        "task": task.name, "workload": workload, "started": log.started.isoformat(timespec="seconds"),
        "hours": log.hours, "steps": len(log.place), "step_s": log.step_s, "missing_steps":
            int(log.place[-1]) + 1 - len(log.place), "lost_records": log.lost, "impossible_values": log.impossible,
        "block_s": block * log.step_s,
        "policy": policy.version, "fallback": policy.rule,
        "versions": sorted({str(one.get("version", "")) for one in log.details}),
        "allowed_violating_share": task.objective.violating_share, "units": units, "decided": _decided(log),
        "measured": {name: mean_with_ends(values[np.isfinite(values)], block) for name, values in shown.items()},
        "replay": replayed if isinstance(replayed, str) else
            _replay(log, replayed, [name for name in measured if name not in system.columns],
                    str(roles(task, system, ())["metric"]))}


def _varies(values: FloatArray) -> bool:
    """What never changes is fixed in the controller file, or tells nothing."""
    known = values[np.isfinite(values)]
    return len(known) > 1 and bool(np.ptp(known) > 0)


def _decided(log: ShadowLog) -> dict[str, Any]:
    """Shares of the steps, and numbers of them."""
    actors = Counter(str(one.get("actor")) for one in log.details)
    unfit = [one for one in log.details if one.get("troubles") or one.get("actor") == "nobody"]
    reasons = _reasons(log.details)
    changed = Counter((str(change["control"]), str(change["reason"])) for one in log.details
                      for change in one.get("changes") or ())
    beyond = Counter(str(name) for one in log.details for name in one.get("strange") or ())
    steps = len(log.details)
    return {"actors": dict(actors), "not_by_policy": 1.0 - actors["policy"] / steps, "reasons": reasons,
            "most_often": next((reason for reason, _ in reasons if GOOD_STEPS not in reason), ""),
            "shield": [[control, why, times] for (control, why), times in changed.most_common()],
            "beyond": beyond.most_common(),
            "beyond_share": sum(bool(one.get("strange")) for one in log.details) / steps,
            "unfit": [reason for reason, _ in _reasons(unfit)][:1], "unfit_share": len(unfit) / steps}


def _reasons(details: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Why it was not the policy, without numbers, and in how many steps; the most frequent first."""
    return Counter(_NUMBER.sub("…", str(one["reason"])) for one in details if one.get("reason")).most_common()


def _replay(log: ShadowLog, replayed: Replayed, measured: list[str], metric: str) -> dict[str, Any]:
    rows, block = len(replayed.rows) - replayed.warm_up, block_of(len(replayed.rows) - replayed.warm_up, log.step_s)
    played = {who: {name: _counted(one, name, replayed) for name in OUTCOMES} for who, one in replayed.played.items()}
    was = played[AS_SET]
    told = _told(log, replayed, measured, block)
    return {
        "hours": rows * log.step_s / 3600.0, "left_out_steps": len(log.place) - rows, "block_s": block * log.step_s,
        "variations": was["cost"].shape[1], "held": list(replayed.held),
        "played": {who: {name: mean_with_ends(values, block) for name, values in one.items()}
                   for who, one in played.items()},
        "saved": {who: mean_with_ends((was["cost"] - played[who]["cost"]) / was["cost"].mean(), block)
                  for who in (POLICY, FALLBACK)},
        "more_violating": {who: mean_with_ends(played[who]["violated"] - was["violated"], block)
                           for who in (POLICY, FALLBACK)},
        "told": told, "apart": [name for name, (ours, twins) in told.items() if apart(ours, twins)],
        "decisive": [name for name in ("violated", metric) if name in told]}


def _counted(played: Played, name: str, replayed: Replayed) -> FloatArray:
    """(T, N) without the warm-up."""
    return played.series[name][replayed.warm_up:].astype(np.float64)


def _told(log: ShadowLog, replayed: Replayed, measured: list[str], block: int) -> Mapping[str, list[list[float]]]:
    """Name -> what was measured, and what the twin says, both under what was set: the violating share, and medians of
    blocks of what is measured. No cost: a controller holds it against the load that it knows, a twin against all of it.
    """
    rows, played = replayed.rows[replayed.warm_up:], replayed.played[AS_SET]
    violated = log.outcomes["violated"][rows]
    known = np.isfinite(violated)
    told = {"violated": [mean_with_ends(violated[known], block),
                         mean_with_ends(_counted(played, "violated", replayed)[known], block)]}
    for name in measured:
        ours, column = log.signal(name)[rows], list(log.signals).index(name)
        twins, known = played.observations[replayed.warm_up:, :, column].astype(np.float64), np.isfinite(ours)
        told[name] = [median_with_ends(ours[known], block), median_with_ends(twins[known], block)]
    return {name: both for name, both in told.items() if np.isfinite(both).all()}
