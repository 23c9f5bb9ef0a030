"""What is known of a metric by its name: its unit, which way is better, and between which values it can lie at all.

Flow: a kind of task puts metrics into its evidence; gates (models/gates.py, models/gate_report.py) read them by name. A
metric outside of its limits is a mistake of whoever measured it, and fails its gate. A gate about a metric that is not
listed says its unit, else its name is taken for a mistake; such a one may have any finite value. Where the unit is the
task's own ("" here), or the metric is not listed, it stands in evidence["units"][name].
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

Better = Literal["smaller", "larger"]


@dataclass(frozen=True)
class Metric:
    """A metric's unit ("": a count, or the task's own), smallest and largest value, which way is better if one is."""

    unit: str = ""
    lowest: float = -math.inf
    highest: float = math.inf
    better: Better | None = None

    def holds(self, value: float) -> bool:
        """Whether the metric can have this value."""
        return self.lowest <= value <= self.highest

    @property
    def limits(self) -> str:
        """The limits in words: "0..1", "0 or more"."""
        if math.isfinite(self.highest):
            return f"{self.lowest:g}..{self.highest:g}"
        return f"{self.lowest:g} or more" if math.isfinite(self.lowest) else "a finite number"


SHARE_UNIT = "share"
_SHARE, _COUNT = Metric(SHARE_UNIT, 0.0, 1.0, "larger"), Metric("", 0.0)


def _error(unit: str) -> Metric:
    return Metric(unit, 0.0, better="smaller")


_SQUARED, _ABSOLUTE = _error("scaled²"), _error("scaled")  # of the target's scaling: its range is 1
_RELATIVE = _error("of the measured")  # a percentage error may exceed 1

METRICS: dict[str, Metric] = {
    **dict.fromkeys(("test_accuracy", "train_accuracy", "twin_test_accuracy", "twin_train_accuracy",
                     "baseline_accuracy", "counterexample_accuracy", "twin_counterexample_accuracy"), _SHARE),
    **dict.fromkeys(("test_mse", "train_mse", "twin_test_mse", "twin_train_mse", "baseline_mse", "mean_mse"), _SQUARED),
    **dict.fromkeys(("test_mae", "train_mae", "twin_test_mae", "twin_train_mae", "baseline_mae", "parity_max_abs"),
                    _ABSOLUTE),
    **dict.fromkeys(("test_mape", "closed_form_mape", "baseline_mape"), _RELATIVE),
    **dict.fromkeys(("test_rows", "counterexamples", "parity_points", "verification_iterations"), _COUNT),
    **dict.fromkeys(("verification_seconds", "training_seconds", "twin_seconds"), _error("s")),
    "latency_us": _error("µs"),
    "similarity": Metric(),
}
# Of a controller in episodes, and of it beside the best rule; `upper` and `lower`: ends of an interval.
_VIOLATING, _REWARD = Metric(SHARE_UNIT, 0.0, 1.0, "smaller"), Metric(better="larger")
_OF_EPISODES: dict[str, Metric] = {
    **dict.fromkeys(("violating_share", "worst_tenth_violating_share"), _VIOLATING),
    "violating_share_upper": Metric(SHARE_UNIT, 0.0, better="smaller"),
    **dict.fromkeys(("mean_reward", "worst_tenth_reward"), _REWARD), "reward_deviation": _error(""),
    **dict.fromkeys(("mean_cost", "cost_deviation"), _error("")),
}
_BESIDE_RULES: dict[str, Metric] = {
    **dict.fromkeys(("cost_saved", "cost_saved_lower"), Metric(SHARE_UNIT, highest=1.0, better="larger")),
    "cost_saved_upper": Metric(SHARE_UNIT, better="larger"),
    **dict.fromkeys(("reward_gain", "reward_gain_lower"), _REWARD),
    "rule_cost": Metric("", 0.0), "rule_reward": Metric(), "rule_violating_share": Metric(SHARE_UNIT, 0.0, 1.0),
}
# `own_`: the rules tuned to the workload; `generic_`: of the policy that the workload's was fine-tuned from.
METRICS |= {**_OF_EPISODES, **_BESIDE_RULES, **{f"own_{name}": one for name, one in _BESIDE_RULES.items()},
            **{f"generic_{name}": one for name, one in {**_OF_EPISODES, **_BESIDE_RULES}.items()}}


def known_metric(name: str) -> Metric:
    """What is known of a metric; one that is not listed has no unit and no limits."""
    return METRICS.get(name, Metric())


def unit_of(name: str, evidence: Mapping[str, Any]) -> str:
    """The unit of a metric: of the table, else what the evidence says, else ""."""
    if name in METRICS and METRICS[name].unit:
        return METRICS[name].unit
    units = evidence.get("units")
    unit = units.get(name) if isinstance(units, Mapping) else None
    return unit if isinstance(unit, str) else ""


def finite_number(value: Any) -> float | None:
    """A value of a JSON file as a finite float; None: it is no number, a truth value, or none that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer that no float can hold
        return None
    return number if math.isfinite(number) else None
