"""Units that a user's file may come in, and their conversion to the units of the schema.

Flow: mapping.py reads a unit for each column of a user's file; sources/files.py multiplies by the factor
found here, so that everything behind it sees the schema's units alone (share, ms, MB, ...).

    factor   multiply a value in the file's unit by it to get the value in the schema's unit
"""

from feature_store.errors import InputError, nearest

# dimension -> unit -> how many of the dimension's first unit one of it is
DIMENSIONS: dict[str, dict[str, float]] = {
    "dimensionless": {"share": 1.0, "ratio": 1.0, "percent": 0.01, "permille": 0.001},
    "time": {"ms": 1.0, "ns": 1e-6, "us": 1e-3, "s": 1e3, "min": 6e4, "h": 3.6e6},
    "size": {"bytes": 1.0, "B": 1.0, "kB": 1e3, "KB": 1e3, "KiB": 2.0**10, "MB": 1e6, "MiB": 2.0**20,
             "GB": 1e9, "GiB": 2.0**30},
    "cpu": {"cores": 1.0, "millicores": 1e-3},
    "frequency": {"1/s": 1.0, "1/min": 1.0 / 60.0, "1/h": 1.0 / 3600.0},
    "count": {"count": 1.0, "rows": 1.0},
}


def conversion_factor(unit: str, target: str) -> float:
    """What a value in `unit` is multiplied by to be in `target`; 1 where the two are the same word.

    Raises:
        InputError: the unit is unknown, or it measures something else than the target's.
    """
    if unit == target:
        return 1.0
    scales = next((scales for scales in DIMENSIONS.values() if target in scales), {target: 1.0})
    if unit not in scales:
        raise InputError(f"expected a unit that converts to {target!r}, got {unit!r}; {nearest(unit, scales)} For "
                         "another one give its factor as `scale` and leave `unit` out")
    return scales[unit] / scales[target]
