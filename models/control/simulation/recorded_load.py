"""A recorded load that a twin replays: cut in time, the first part to train on.

Symbols: W windows, T steps, N applications.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

TRAINS = 0.7  # of the windows, the first ones


@dataclass(frozen=True)
class RecordedLoad:
    """parts: split -> (W,) what was recorded; window_s: length of a window."""

    parts: Mapping[str, NDArray[np.float64]]
    window_s: float

    def replayed(self, split: str, random: np.random.Generator, count: int, steps: int,
                 step_s: float | None = None) -> NDArray[np.float64]:
        """(T, N), each from a moment of its own on, round and round. step_s: length of a step; None: of a window."""
        part, passed = self.parts[split], np.arange(steps)
        begins = random.integers(len(part), size=count)
        if step_s is not None:
            passed = np.floor(passed * step_s / self.window_s).astype(int)
        return np.asarray(part[(begins + passed[:, None]) % len(part)])


def recorded_load(values: NDArray[np.float64], telemetry: "pd.DataFrame", what: str) -> RecordedLoad:
    """Cuts it.

    Args:
        values: (W,) of the telemetry's rows.
        what: it is, such as "load".

    Raises:
        InputError: there are too few windows.
    """
    if (cut := int(TRAINS * len(values))) < 1:
        raise InputError(f"{what}: expected at least 2 windows, got {len(values)}")
    return RecordedLoad({"train": values[:cut], "held_out": values[cut:]}, float(telemetry["window_s"].iloc[0]))
