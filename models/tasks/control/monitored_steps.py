"""Drift of what a policy sees and sets: the signals and targets of its steps, against those of its first ones.

A bundle has ranges of what training saw and no distribution of it, and training saw a twin: real telemetry differs from
that from the first step on. So the reference is what the policy met when it took over: of REFERENCES the longest that
is at most half of the steps in which it acted. It grows, for an hour does not tell how a day varies (drift.py names the
features of which that holds); from 81,920 steps on it stays as it is.

    <workload>/steps.parquet     those steps: the first REFERENCES[-1], and as many of the newest; a row each
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from models.control.training.trajectory_log import Header, Step
from models.monitoring.chances import level_of
from models.monitoring.drift_finding import drift_finding
from models.monitoring.findings import Finding
from models.reporting.formatting import count
from models.tasks.monitored_kind import Watched

STEPS = "steps.parquet"
# At 15 s a step 10.7 hours to a week. The first is by measurement: of 1,280 steps, 24 stationary applications had one
# false alarm.
REFERENCES = (2_560, 5_120, 10_240, 20_480, 40_960)
LOOKS = "drift_looks"  # key of a look's memory: those in which there was a reference


def reference_length(steps: int) -> int:
    """Steps of the reference where there are so many; 0: too few for one."""
    return max((length for length in REFERENCES if 2 * length <= steps), default=0)


def drift_of_steps(watched: Watched, header: Header, new: Sequence[Step],
                   has_truth: bool) -> tuple[tuple[Finding, ...], tuple[str, ...], int]:
    """The finding where there is a reference, what is to be said beside it, and looks with a reference so far.

    Args:
        new: steps that were not counted before.
        has_truth: whether rewards show if it matters.
    """
    units = dict(header.signals)
    units |= {f"target {name}" if name in units else name: unit for name, unit in header.controls}
    acted = np.array([(*step.observation, *step.targets) for step in new if step.actor == "policy"], dtype=np.float32)
    rows = acted.reshape(-1, len(units))
    steps = pd.DataFrame(rows[np.isfinite(rows).all(axis=1)], columns=[*units])
    if watched.memory and (past := watched.past / STEPS).is_file():
        steps = pd.concat([pd.read_parquet(past), steps], ignore_index=True)
    steps = pd.concat([steps.iloc[:REFERENCES[-1]], steps.iloc[REFERENCES[-1]:].iloc[-REFERENCES[-1]:]])
    steps.to_parquet(watched.keep / STEPS)
    looks, length = int(watched.memory.get(LOOKS, 0)), reference_length(len(steps))
    if not length:
        return (), (f"drift is looked at from {2 * REFERENCES[0]:,} whole steps of the policy on, of which there are "
                    f"{len(steps):,}",), looks
    found, notes = drift_finding(steps.iloc[:length], steps.iloc[length:], units,
                                 level_of(looks + 1, watched.champions, 2), has_truth,
                                 f"the first {count(length, 'step')} of the policy")
    return (found,), notes, looks + 1
