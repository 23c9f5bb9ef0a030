"""What the sections about a policy read of its evidence, whatever is broken in it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.metrics import finite_number
from models.reporting.formatting import number
from models.reporting.reading import at, floats, items

Json = Mapping[str, Any]


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


def percent_signed(share: Any) -> str:
    """A share that may be below zero, in percent."""
    known = finite_number(share)
    return number(None) if known is None else f"{100 * known:.1f}\N{NO-BREAK SPACE}%"
