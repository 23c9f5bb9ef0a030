"""The log of a controller in shadow as arrays: what was seen, what was set by others, what would have been set.

Symbols: T steps of the log, n signals, m controls.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.control.training.trajectory_log import Step, read_log
from models.tasks.control.telemetry import longest_stretch

FloatArray = NDArray[np.float64]
OUTCOMES = ("violated", "cost", "reward")
MOST = 1e15  # of any value, in either direction: no service has more


@dataclass(frozen=True)
class ShadowLog:
    """A row a step, in order of time.

    Attributes:
        signals, controls: name -> unit.
        started: of the first step.
        step_s: between two steps.
        place: (T,) number of steps of `step_s` since the first one; where a number is left out, a step is missing.
        seen: (T, n) raw, NaN: missing. targets: (T, m) as they were set. would: (T, m) as they would have been, NaN
            where nobody decided.
        outcomes: name of OUTCOMES -> (T,), of the step's interval; NaN: not known.
        details: of each step, as the controller wrote them.
        lost: records that cannot be read.
        impossible: values of `seen`, `targets` and `outcomes` that no service has (beyond MOST; a violating share
            beyond 0 to 1); they count as not known.
    """

    signals: Mapping[str, str]
    controls: Mapping[str, str]
    started: datetime
    step_s: float
    place: NDArray[np.int64]
    seen: FloatArray
    targets: FloatArray
    would: FloatArray
    outcomes: Mapping[str, FloatArray]
    details: tuple[Mapping[str, Any], ...]
    lost: int
    impossible: int = 0

    @property
    def hours(self) -> float:
        """That were watched: without the steps that are missing."""
        return len(self.place) * self.step_s / 3600.0

    def signal(self, name: str) -> FloatArray:
        """(T,) what was seen of it."""
        return self.seen[:, list(self.signals).index(name)]

    def last(self, name: str) -> float:
        """What was seen of it last; NaN where it never was."""
        known = self.signal(name)[np.isfinite(self.signal(name))]
        return float(known[-1]) if len(known) else math.nan

    def stretch(self, load: Sequence[str], settings: Sequence[str] = ()) -> pd.DataFrame:
        """Telemetry of the longest stretch without a gap, its index the rows of the log: window_start, window_s, load.

        What is seen at a step is of the interval before it, so that a step's load is what the next one saw. Steps in
        which nobody knew what was set are gaps, and so are those under other settings than those seen last.

        Args:
            settings: signals that show one, such as the objective.
        """
        follows = np.append(np.diff(self.place) == 1, False)
        after = {name: np.append(self.signal(name)[1:], math.nan) for name in load}
        starts = pd.Timestamp(self.started) + pd.to_timedelta(self.place * self.step_s, unit="s")
        rows = pd.DataFrame({"window_start": starts, "window_s": self.step_s, **after})
        alike = np.all([self.signal(name) == self.last(name) for name in settings], axis=0)
        whole = np.isfinite(rows[list(load)]).all(axis=1) & np.isfinite(self.targets).all(axis=1)
        known = rows[follows & whole & alike]
        return longest_stretch(known) if len(known) else known


def read_shadow(folder: Path, task: str, workload: str) -> ShadowLog:
    """Reads what `assay control --shadow` wrote.

    Args:
        folder: of the shadow; the log is in its `steps`.

    Raises:
        InputError: there is no log, it has no step of the workload, or is that of a controller that acted.
    """
    read = read_log(folder / "steps")
    if read.header.task != task:
        raise InputError(f"log must be of the task {task}, got one of {read.header.task} ({folder})")
    steps = [step for step in read.steps if step.application == workload and step.detail is not None]
    if not steps:
        raise InputError(f"log must have a step of {workload}, got none of {len(read.steps)} steps ({folder})")
    if any(not (step.detail or {}).get("shadow") for step in steps):
        raise InputError(f"log must be of a shadow, got one of a controller that acted ({folder}); run `assay control "
                         "--shadow`, or name its folder (--folder)")
    usable = [step for step in steps if _is_usable(step.detail or {})]
    lost, steps = len(read.lost) + len(steps) - len(usable), usable
    details = tuple(step.detail or {} for step in steps)
    lasted = [float(one["interval_s"]) for one in details if one.get("interval_s")]
    step_s = float(np.median(lasted)) if lasted else math.nan
    if not 0 < step_s < math.inf:
        raise InputError(f"log must have two steps at least, got {len(steps)} ({folder}); let the shadow run on")
    controls = [name for name, _ in read.header.controls]
    would = [[float((one.get("targets") or {}).get(name, math.nan)) for name in controls] for one in details]
    at = [datetime.fromisoformat(str(one["at"])) for one in details]
    written = {name: np.array([getattr(step, name) for step in steps], dtype=np.float64)
               for name in ("observation", "targets", *OUTCOMES)}
    known = {name: _possible(name, values) for name, values in written.items()}
    impossible = sum(int((np.isnan(known[name]) & ~np.isnan(values)).sum()) for name, values in written.items())
    return ShadowLog(
        dict(read.header.signals), dict(read.header.controls), at[0], step_s, _places(steps, at, step_s),
        known["observation"], known["targets"], np.array(would), {name: known[name] for name in OUTCOMES}, details,
        lost, impossible)


def _possible(name: str, values: FloatArray) -> FloatArray:
    """The values, with NaN for those that no service has."""
    low, high = (0.0, 1.0) if name == "violated" else (-MOST, MOST)
    return np.where((values >= low) & (values <= high), values, np.nan)


def _is_usable(detail: Mapping[str, Any]) -> bool:
    """Whether a controller could have written it: what is not so is lost alone."""
    try:
        targets, changes = detail.get("targets") or {}, detail.get("changes") or ()
        return (datetime.fromisoformat(str(detail["at"])).tzinfo is not None
                and 0 < float(detail.get("interval_s") or 1.0) <= MOST
                and all(abs(float(value)) <= MOST for value in targets.values())
                and all(str(one["control"]) and str(one["reason"]) for one in changes)
                and all(isinstance(one, str) for one in (*(detail.get("strange") or ()), detail.get("reason") or ""))
                and isinstance(detail.get("troubles") or (), list | tuple))
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def _places(steps: Sequence[Step], at: Sequence[datetime], step_s: float) -> NDArray[np.int64]:
    """(T,) on the grid of each start: a restart may begin between two steps of the run before."""
    places: list[int] = []
    first, offset = 0, 0
    for row, step in enumerate(steps):
        if row and step.episode != steps[row - 1].episode:
            first, offset = row, max(places[-1] + 1, round((at[row] - at[0]).total_seconds() / step_s))
        since = offset + round((at[row] - at[first]).total_seconds() / step_s)
        places.append(max(since, places[-1] + 1) if places else 0)
    return np.array(places, dtype=np.int64)
