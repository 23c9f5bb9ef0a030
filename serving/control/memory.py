"""What a controller remembers across restarts: what its observer knows, when what moved, the step it is in.

One small JSON file, written whole before every action: whoever is killed at any point finds here what it was about to
do, and the step is in the log once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import orjson

from feature_store.errors import InputError
from feature_store.finite_numbers import is_finite_number
from feature_store.whole_files import write_file
from models.control.training.trajectory_log import Actor

FORMAT = "assay-controller-memory/2"
_BEFORE, _MOVED_BEFORE = "assay-controller-memory/1", "lowered_s"  # when every control's safe side was more
_KEYS = {"format", "observer", "moved_away_s", "episode", "step", "pending", "deployed"}
LARGEST = 2 ** 53  # number of an episode or step
_PENDING = {"application", "episode", "step", "actor", "observation", "targets", "detail"}


@dataclass(frozen=True)
class Memory:
    """Attributes:
    observer: what its `state` gave.
    moved_away_s: control -> seconds since it moved away from its safe side.
    episode: grows with every start of the controller.
    step: of the episode, that comes next.
    deployed: signal -> what was set when the first step of all was taken.
    pending: fields of the log's `Step` for each that is not in the log yet, for its reward is not known, oldest first.
    """

    observer: Mapping[str, float] = field(default_factory=dict)
    moved_away_s: Mapping[str, float] = field(default_factory=dict)
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
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(path, str(error)) from error
    if isinstance(data, dict) and data.get("format") == _BEFORE and _MOVED_BEFORE in data:
        data |= {"format": FORMAT, "moved_away_s": data.pop(_MOVED_BEFORE)}
    if not isinstance(data, dict) or set(data) != _KEYS or data["format"] != FORMAT:
        raise _unusable(path, f"{str(data)[:60]}...")
    pending, moved_away, deployed = data["pending"], data["moved_away_s"], data["deployed"]
    usable = (all(isinstance(one, dict) for one in (data["observer"], moved_away, deployed))
              and isinstance(pending, list) and all(_is_pending(one) for one in pending)
              and all(one is None or is_finite_number(one) for one in data["observer"].values())
              and all(is_finite_number(one) for one in deployed.values())
              and all(_is_count(data[key]) for key in ("episode", "step"))
              and all(is_finite_number(one) and one >= 0 for one in moved_away.values()))
    if not usable:
        raise _unusable(path, f"{str(data)[:60]}...")
    return Memory(data["observer"], {name: float(one) for name, one in moved_away.items()}, data["episode"],
                  data["step"], deployed, tuple(pending))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _is_pending(one: Any) -> bool:
    """Whether the log's `Step` can be made of it, but for the number of signals and controls."""
    return (isinstance(one, dict) and set(one) == _PENDING
            and isinstance(one["application"], str) and one["actor"] in get_args(Actor)
            and _is_count(one["episode"]) and _is_count(one["step"])
            and all(isinstance(one[key], list) and all(value is None or is_finite_number(value) for value in one[key])
                    for key in ("observation", "targets"))
            and isinstance(one["detail"], dict)
            and ("interval_s" not in one["detail"] or is_finite_number(one["detail"]["interval_s"])))


def _unusable(path: Path, got: str) -> InputError:
    return InputError(f"memory must be a file that a controller wrote, got {got} ({path}); remove it to begin anew: "
                      "when what moved last is then not known")
