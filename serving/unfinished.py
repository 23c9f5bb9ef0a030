"""Remembers work that a killed process cannot clean up itself.

A process that is about to leave things in several places (a run, artifacts, a model version) first
makes a ticket: a small file that it keeps locked until it is done. The lock dies with the process, also
by SIGKILL, so whoever finds a ticket that nobody holds knows that its work was abandoned.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from filelock import lock_descriptor


@contextlib.contextmanager
def ticket(folder: Path, about: Mapping[str, str]) -> Iterator[str]:
    """Holds a ticket about some work; yields its id.

    The ticket is removed when the block ends without an error. After an error it stays, released, for
    `settle` to find; remove it by `settle` once everything is cleaned up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    path, unseen = folder / f"{name}.json", folder / f".{name}"
    with unseen.open("x") as file:
        # Locked and filled before it gets the name that `settle` looks for.
        lock_descriptor(file.fileno())
        json.dump(dict(about), file)
        file.flush()
        unseen.rename(path)
        yield name
        path.unlink(missing_ok=True)


def settle(folder: Path, clean_up: Callable[[str, Mapping[str, str]], None]) -> tuple[str, ...]:
    """Hands every abandoned ticket to `clean_up(id, about)` and removes it where that succeeds.

    Returns:
        The ids that were settled.
    """
    settled = []
    for path in sorted(folder.glob("*.json")):
        # Locked by its descriptor: a lock by its path would make a file anew whose holder has just removed it.
        with contextlib.suppress(FileNotFoundError), path.open("r+") as file:
            if not lock_descriptor(file.fileno(), blocking=False):
                continue
            if os.fstat(file.fileno()).st_nlink == 0:
                continue  # its holder finished between our opening it and locking it
            clean_up(path.stem, json.load(file))
            path.unlink(missing_ok=True)
            settled.append(path.stem)
    return tuple(settled)
