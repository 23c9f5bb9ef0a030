"""Reading evidence that may have holes: what is absent, None or of the wrong kind reads as "not there".

Flow: sections.py reads through these, so that a report can be made of whatever a broken run left behind.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.metrics import finite_number

LARGEST = 1e100  # products and differences of axis limits stay finite


def at(data: Any, *keys: str) -> Any:
    """data[key][key]...; None where any step is not there."""
    for key in keys:
        if not isinstance(data, Mapping):
            return None
        data = data.get(key)
    return data


def mapping(data: Any, *keys: str) -> Mapping[str, Any]:
    """The mapping that stands there; an empty one where none does."""
    found = at(data, *keys)
    return found if isinstance(found, Mapping) else {}


def items(data: Any, *keys: str) -> list[Any]:
    """The list that stands there; an empty one where none does (text is no list)."""
    found = at(data, *keys) if keys else data
    return list(found) if isinstance(found, Sequence | np.ndarray) and not isinstance(found, str | bytes) else []


def mappings(data: Any, *keys: str) -> list[Mapping[str, Any]]:
    """The mappings in the list that stands there."""
    return [item for item in items(data, *keys) if isinstance(item, Mapping)]


def role(entry: Mapping[str, Any]) -> Any:
    """What a version is by the ledger: "champion", "challenger" or None, of what registration wrote down of it.

    An alias is a name of mlflow.yaml. It is asked only where no role is written, as before there were roles.
    """
    return entry["role"] if "role" in entry else entry.get("alias")


def floats(values: Any) -> NDArray[np.float64]:
    """The list as (m,) float64, NaN for what is no finite number, or too large to be drawn on an axis."""
    known = [finite_number(value) for value in items(values)]
    return np.array([np.nan if value is None or abs(value) > LARGEST else value for value in known], dtype=np.float64)


def column(rows: Sequence[Mapping[str, Any]], key: str) -> NDArray[np.float64]:
    """One key of every row as (m,) float64, NaN where there is no number."""
    return floats([row.get(key) for row in rows])


def together(*series: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """The series cut to the length of the shortest that is not empty; an empty one becomes all NaN."""
    length = min((len(values) for values in series if len(values)), default=0)
    return tuple(values[:length] if len(values) else np.full(length, np.nan) for values in series)
