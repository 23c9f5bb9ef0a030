"""What a contract says of a guarantee of the closed loop: the file of its proof, the sentence.

    "guarantee": {"file": "guarantee.npz", "sha256": "...", "statement": "Of ..."}

The system's checker (models/control/contract/acting.py) proves it again and makes the sentence again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feature_store.errors import InputError

GUARANTEE_FILE = "guarantee.npz"
_WHERE = "contract.json, guarantee"
_KEYS = {"file", "sha256", "statement"}


@dataclass(frozen=True)
class GuaranteeSpec:
    """A guarantee of the closed loop: the file of its proof, and its sentence."""

    file: str
    sha256: str
    statement: str

    def to_json(self) -> dict[str, Any]:
        """As in contract.json."""
        return vars(self).copy()


def guarantee_spec(data: Any) -> GuaranteeSpec:
    """Reads it. Raises InputError: a key is unknown or missing, a value is of a wrong type."""
    if not isinstance(data, Mapping) or set(data) != _KEYS or not all(isinstance(one, str) for one in data.values()):
        raise InputError(f"guarantee must have texts for {', '.join(sorted(_KEYS))}, got {data!r:.300} ({_WHERE})")
    if data["file"] != GUARANTEE_FILE or not re.fullmatch("[0-9a-f]{64}", data["sha256"]):
        raise InputError(f"guarantee must name {GUARANTEE_FILE} and its SHA-256, got {data['file']!r:.100}, "
                         f"{data['sha256']!r:.100} ({_WHERE})")
    return GuaranteeSpec(**data)
