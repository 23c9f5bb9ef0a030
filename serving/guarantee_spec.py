"""What a contract says of a guarantee of the closed loop: the file of its proof, the sentence.

    "guarantee": {"file": "guarantee.npz", "sha256": "...", "statement": "Of ...",
                  "about": "Of ...", "at_most": {"core seconds of backlog": 4.2}}

`about` and `at_most` (both or neither) are there where the guarantees of two policies can be compared by numbers
(models/verification/closed_loop/answer.py). The system's checker (models/control/contract/acting.py) proves it again
and makes all of it again.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from feature_store.errors import InputError
from feature_store.finite_numbers import is_finite_number
from feature_store.names import is_sha256

GUARANTEE_FILE = "guarantee.npz"
_WHERE = "contract.json, guarantee"
_KEYS, _NUMBERS = {"file", "sha256", "statement"}, {"about", "at_most"}


@dataclass(frozen=True)
class GuaranteeSpec:
    """A guarantee of the closed loop: the file of its proof, its sentence, and what another's is compared by."""

    file: str
    sha256: str
    statement: str
    about: str = ""
    at_most: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As in contract.json."""
        return {name: value for name, value in asdict(self).items() if self.at_most or name not in _NUMBERS}


def guarantee_spec(data: Any) -> GuaranteeSpec:
    """Reads it. Raises InputError: a key is unknown or missing, a value is of a wrong type."""
    if not isinstance(data, Mapping) or set(data) not in (_KEYS, _KEYS | _NUMBERS) \
            or not all(isinstance(value, str) for name, value in data.items() if name != "at_most"):
        raise InputError(f"guarantee must have texts for {', '.join(sorted(_KEYS))}, and for about where it has "
                         f"numbers for at_most, got {data!r:.300} ({_WHERE})")
    if "at_most" in data and not _are_numbers(data["at_most"]):
        raise InputError("guarantee's at_most must be a number for each of what it counts, got "
                         f"{data['at_most']!r:.300} ({_WHERE})")
    if data["file"] != GUARANTEE_FILE or not is_sha256(data["sha256"]):
        raise InputError(f"guarantee must name {GUARANTEE_FILE} and its SHA-256, got {data['file']!r:.100}, "
                         f"{data['sha256']!r:.100} ({_WHERE})")
    return GuaranteeSpec(**data)


def _are_numbers(data: Any) -> bool:
    return isinstance(data, Mapping) and bool(data) and all(map(is_finite_number, data.values()))
