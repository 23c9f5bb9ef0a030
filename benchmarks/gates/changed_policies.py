"""How often drift of a policy's signals and targets is found where nothing changes, and how soon where the load does.

The scenarios of changed_services.py under the policy of the demo (data/demo/bundle) instead of a rule. What the policy
saw and set is what its log would hold; looks come every LOOK_STEPS, with the reference of that time
(models/tasks/control/monitored_steps.py).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.gates.changed_services import CHANGE, DRAWN, SEED, STEP_S, STEPS, WARM_UP, _loads
from models.monitoring.chances import level_of
from models.monitoring.drift import drifts, references
from models.tasks.control.monitored_steps import REFERENCES, reference_length

BUNDLE = Path(__file__).resolve().parents[2] / "data/demo/bundle"
LOOK_STEPS = 80
STATIONARY = 8  # times as many applications where nothing changes
Json = dict[str, Any]


def policy_delays(scenario: str, applications: int) -> Json:
    """Minutes from the change to the first alarm, of each application that it concerns; None: there is none.

    Negative: before the change. looks: at all of them, up to the alarm.
    """
    from models.tasks.control.judging import model_acting, play
    from systems.autoscaling.simulator.simulator import Autoscaling

    environment, most = Autoscaling(traces=_loads()), applications if scenario else STATIONARY * applications
    episodes, ordinary = (environment.draw("held_out", max(DRAWN, most), STEPS, SEED, scenario=name)
                          for name in (scenario, ""))
    growth = episodes.cpu_s / ordinary.cpu_s
    episodes = replace(episodes, cpu_s=(episodes.applications.cpu_s * growth).contiguous())
    played = play(environment, episodes, STEPS - 1, model_acting((BUNDLE / "model.onnx").read_bytes()))
    concerned = np.flatnonzero(growth[-1].numpy() > (1.01 if scenario.startswith("payload") else 0.0))
    names = [*(one.name for one in environment.signals), *(one.name for one in environment.controls)]
    found: Json = {"drift": [], "by": [], "looks": 0}
    for place in concerned[:most]:
        steps = np.concatenate([played.observations[:, place], played.targets[:, place]], axis=1)
        minutes, feature, looks = _delay(pd.DataFrame(steps[WARM_UP:], columns=names))
        found["drift"].append(minutes)
        found["by"].append(feature)
        found["looks"] += looks
    return found


def _delay(steps: pd.DataFrame) -> tuple[float | None, str, int]:
    """And the feature that showed it, and looks."""
    length, looks = 0, 0
    for looks, end in enumerate(range(2 * REFERENCES[0], len(steps) + 1, LOOK_STEPS), start=1):
        if reference_length(end) != length:
            length = reference_length(end)
            known = references(steps.iloc[:length], steps.columns.tolist())
        tested = drifts(known, steps.iloc[length:end])
        if tested and tested[0].chance <= level_of(looks, 1, 2):
            return (end + WARM_UP - CHANGE) * STEP_S / 60.0, tested[0].feature, looks
    return None, "", looks
