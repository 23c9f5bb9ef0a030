"""Rules and policies where they were not trained, and at several shares of violations, by steps and by requests.

Flash crowds (six times the load at once) and ramps (ten times in five minutes), each every 70 minutes, and half the
objective. Nothing is trained or tuned for these: the settings and policies are those of the load.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.markdown import table
from systems.autoscaling.benchmarks.fronts import Front
from systems.autoscaling.simulator.arrivals import pattern
from systems.autoscaling.simulator.simulator import Autoscaling

SHARES = (0.005, 0.01, 0.02)
COUNTED = {"violated": "steps", "violated_requests": "requests"}
AS_TRAINED = "as trained"
CASES = ("flash crowds", "ramps", "half the objective")
_PERIOD, _PERIODS = 70, 20  # minutes
_RAMP_TIMES, _RAMP_MINUTES, _HIGH_MINUTES = 10.0, 5, 20


def ramps(minutes: int) -> NDArray[np.float64]:
    """(minutes,) one rise of ten times in five minutes, that stays for twenty and goes in ten; about 1 in the mean."""
    low = 1.0 / 3.0
    knots = np.cumsum([0, 20, _RAMP_MINUTES, _HIGH_MINUTES, 10])
    return np.interp(np.arange(minutes), knots, np.array([1.0, 1.0, _RAMP_TIMES, _RAMP_TIMES, 1.0]) * low)


def cases(environment: Autoscaling, traces: NDArray[np.float64] | None) -> dict[str, Autoscaling]:
    """Name -> environment.

    Args:
        environment: of the load.
        traces: its series, as it was made of them.
    """
    pool = environment.applications

    def under(shape: NDArray[np.float64]) -> Autoscaling:
        days = np.tile(shape, _PERIODS)[None]
        return Autoscaling(pool, np.concatenate([days, np.roll(days, 1, axis=1)]))

    found = under(pattern("flash_crowd", _PERIOD)), under(ramps(_PERIOD)), Autoscaling(
        replace(pool, slo_s=0.5 * pool.slo_s), traces)
    return dict(zip(CASES, found, strict=True))


def costs(front: Front) -> dict[str, dict[str, float]]:
    """steps or requests -> share, as a text -> cost; NaN outside of the front."""
    return {counted: {f"{share:g}": front.at(share, by=by) for share in SHARES} for by, counted in COUNTED.items()}


def cases_table(results: Mapping[str, Any]) -> str:
    """A load, a case and a way of counting a row: the best rule's cost, and the policy's saving at each share."""
    rows = [[entry["load"], case, counted, *(_cell(own, counted, f"{share:g}") for share in SHARES)]
            for entry in results["entries"] for case, own in entry.get("cases", {}).items()
            for counted in COUNTED.values()]
    header = ["load", "case", "violations counted by", *(f"at {100 * share:g} %" for share in SHARES)]
    return table(header, rows, range(3, len(header)))


def _cell(own: Mapping[str, Any], counted: str, share: str) -> str:
    found = {name: cost for name, one in own["rules"].items() if (cost := one[counted][share]) is not None}
    policies = _known(one[counted][share] for one in own["policies"])
    if not found or not policies:
        return "outside of the fronts"
    best = min(found, key=lambda name: found[name])
    saved = 1.0 - np.mean(policies) / found[best]
    missing = f", {len(policies)} of {len(own['policies'])} seeds" if len(policies) < len(own["policies"]) else ""
    return f"{np.mean(policies):.2f} for {found[best]:.2f} of {best}: {100 * saved:+.0f} %{missing}"


def _known(costs_of_seeds: Iterable[float | None]) -> Sequence[float]:
    return [cost for cost in costs_of_seeds if cost is not None]
