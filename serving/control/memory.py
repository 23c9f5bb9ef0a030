"""What a controller remembers across restarts: what its observer knows, when it lowered what, the step it is in.

One small JSON file, written whole before every action: whoever is killed at any point finds here what it was about to
do, and the step is in the log once.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from feature_store.errors import InputError
from feature_store.whole_files import write_file

FORMAT = "assay-controller-memory/1"
_KEYS = {"format", "observer", "lowered_s", "episode", "step", "pending", "deployed"}
_PENDING = {"application", "episode", "step", "actor", "observation", "targets", "detail"}


@dataclass(frozen=True)
class Memory:
    """Attributes:
    observer: what its `state` gave.
    lowered_s: control -> seconds since it was lowered.
    episode: grows with every start of the controller.
    step: of the episode, that comes next.
    deployed: signal -> what was set when the first step of all was taken.
    pending: fields of the log's `Step` for each that is not in the log yet, for its reward is not known, oldest first.
    """

    observer: Mapping[str, float] = field(default_factory=dict)
    lowered_s: Mapping[str, float] = field(default_factory=dict)
    episode: int = 0
    step: int = 0
    deployed: Mapping[str, float] = field(default_factory=dict)
    pending: tuple[Mapping[str, Any], ...] = ()

    def write(self, path: Path) -> None:
        """Raises OSError where the disk is full or the folder cannot be written; what was there stays."""
        write_file(path, orjson.dumps({"format": FORMAT, **vars(self)}))  # NaN becomes null


def read_memory(path: Path) -> Memory | None:
    """What was written; None where there is nothing yet.

    Raises:
        InputError: it is no such file.
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unusable(path, str(error)) from error
    if not isinstance(data, dict) or set(data) != _KEYS or data["format"] != FORMAT:
        raise _unusable(path, f"{str(data)[:60]}...")
    pending = data["pending"]
    lowered, numbers = data["lowered_s"], (data["episode"], data["step"])
    deployed = data["deployed"]
    usable = (isinstance(data["observer"], dict) and isinstance(lowered, dict) and isinstance(deployed, dict)
              and isinstance(pending, list) and all(isinstance(one, dict) and set(one) == _PENDING for one in pending)
              and all(isinstance(one, (int, float)) and math.isfinite(one) for one in deployed.values())
              and all(type(number) is int and number >= 0 for number in numbers)
              and all(isinstance(one, (int, float)) and math.isfinite(one) and one >= 0 for one in lowered.values()))
    if not usable:
        raise _unusable(path, f"{str(data)[:60]}...")
    return Memory(data["observer"], {name: float(one) for name, one in lowered.items()}, *numbers, deployed,
                  tuple(pending))


def _unusable(path: Path, got: str) -> InputError:
    return InputError(f"memory must be a file that a controller wrote, got {got} ({path}); remove it to begin anew: "
                      "when what was raised or lowered last is then not known")
