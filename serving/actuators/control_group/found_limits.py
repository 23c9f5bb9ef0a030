"""What stood before the first change of a target's limits, on disk, so that a killed controller's successor knows it.

Written whole before the first change and before each further one: beside what was found it says what this controller
has set or was about to set, so that a limit that somebody else has set since is told apart and left alone.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from feature_store.control_group_limits import amount
from feature_store.whole_files import read_regular, sync_folder, write_file

_MOST_BYTES = 100_000


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        found: what stood there, which is what is given back.
        ours: what this controller set last, and what it was about to set.
    """

    found: str
    ours: tuple[str, ...]

    def is_ours(self, present: str) -> bool:
        """Whether `present` is what was found or what this controller set."""
        return present == self.found or present in self.ours


@dataclass(frozen=True)
class FoundLimits:
    """Of one target.

    Attributes:
        target: which of all that ever had its name; another one is given nothing back.
        limits: by name.
    """

    target: str
    limits: Mapping[str, Limit] = field(default_factory=dict)

    def before(self, changes: Mapping[str, str], present: Mapping[str, str]) -> "FoundLimits":
        """As it must be on disk before `changes` are made to what is `present`, both by name of a limit."""
        limits = dict(self.limits)
        for name, text in changes.items():
            now, known = present[name], limits.get(name)
            if known is None or not known.is_ours(now):
                limits[name] = Limit(now, (text,))
            else:
                limits[name] = Limit(known.found, tuple(dict.fromkeys((now, text))))
        return FoundLimits(self.target, limits)

    def after(self, present: Mapping[str, str]) -> "FoundLimits":
        """With what stands once changes were made, by name of a limit: where a kernel rounds, that is ours too."""
        return FoundLimits(self.target, {
            name: replace(kept, ours=tuple(dict.fromkeys((*kept.ours, present.get(name, kept.ours[-1])))))
            for name, kept in self.limits.items()})


def read_found(path: Path) -> FoundLimits | None:
    """What a controller left at `path`; None where it left nothing.

    Raises:
        ValueError: the file is damaged.
        OSError: it cannot be read, or is no regular file.
    """
    try:
        written = json.loads(read_regular(path, _MOST_BYTES))
    except FileNotFoundError:
        return None
    try:
        limits = {name: Limit(limit["found"], tuple(limit["ours"])) for name, limit in written["limits"].items()}
        for limit in limits.values():
            for text in (limit.found, *limit.ours):
                amount(text)
        return FoundLimits(written["target"], limits)
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"not what a controller writes: {error!r}") from error


def write_found(path: Path, found: FoundLimits) -> None:
    """Writes it whole, and returns once it would survive a power cut. Raises OSError: what stood there still does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(asdict(found)))


def forget_found(path: Path) -> None:
    """Removes it, once everything has been given back. Raises OSError."""
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync_folder(path.parent)
