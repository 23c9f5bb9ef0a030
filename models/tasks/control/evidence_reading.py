"""What the sections about a policy read of its evidence, whatever is broken in it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.metrics import finite_number
from models.reporting.formatting import number
from models.reporting.reading import at, floats, items

Json = Mapping[str, Any]
# Suffixes of names that say the unit, and words that readers write otherwise.
UNIT_SUFFIXES = ("ms", "s", "rps", "cores", "mib", "gib")
ABBREVIATIONS = {"cpu": "CPU", "slo": "SLO", "io": "I/O", "kpi": "KPI"}


def interval(evidence: Json | None, name: str, key: str) -> tuple[float, float, float]:
    """Mean and both ends of a controller's figure; NaN where it is not there."""
    values = floats(items(evidence, "controllers", name, "figures", key))
    padded = np.concatenate([values, np.full(3, np.nan)])[:3]
    return float(padded[0]), float(padded[1]), float(padded[2])


def name_at(evidence: Json | None, *keys: str) -> str:
    """The text that stands there; "" where none does."""
    found = at(evidence, *keys)
    return found if isinstance(found, str) else ""


def cost_unit(evidence: Json | None) -> str:
    """"" where it is not there."""
    return name_at(evidence, "cost_unit")


def titled(name: str, unit: str = "") -> str:
    """A signal's name for readers; a suffix that says the unit gives way to brackets: p99_ms in ms -> p99 (ms)."""
    parts = name.split("_")
    if len(parts) > 1 and parts[-1] in UNIT_SUFFIXES:
        parts.pop()
    said = " ".join(ABBREVIATIONS.get(part, part) for part in parts)
    return said if unit in ("", "1", "share", "count", said) else f"{said} ({unit})"


def percent_signed(share: Any) -> str:
    """A share that may be below zero, in percent."""
    known = finite_number(share)
    return number(None) if known is None else f"{100 * known:.1f}\N{NO-BREAK SPACE}%"
