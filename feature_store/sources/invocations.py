"""Invocations per minute of many functions: the form of the Azure Functions Trace 2019 (Shahrad et al., ATC 2020).

A CSV file, one row a function; its columns of minutes are `1_minute`, `2_minute`, ... or `1`, `2`, ...; others are
passed over.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feature_store.errors import InputError
from feature_store.origin import UNREADABLE
from feature_store.sources.files import numbers_or_nan


def read_invocations(path: Path) -> NDArray[np.float64]:
    """Invocations per minute, (functions, minutes).

    Raises:
        InputError: no such file; fewer than two columns of minutes; gaps, or what is no number of 0 or more.
    """
    try:
        table = pd.read_csv(path)
    except UNREADABLE as error:
        raise InputError(f"traces: expected a CSV file of invocations per minute, got {error} ({path})") from error
    minutes = [name for name in table.columns if str(name).removesuffix("_minute").isdigit()]
    if len(minutes) < 2:
        raise InputError("traces: expected a column for each minute (1_minute, 2_minute, ... or 1, 2, ...), at least "
                         f"two, got {len(minutes)} ({path})")
    counts = table[minutes].apply(numbers_or_nan).to_numpy(dtype=np.float64)
    bad = ~np.isfinite(counts) | (counts < 0)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(f"traces: expected a number of 0 or more in every minute, got "
                         f"{str(table[minutes[column]].iloc[row])!r}; fill or drop a gap ({path}, line {row + 2}, "
                         f"column {minutes[column]})")
    return np.asarray(counts)
