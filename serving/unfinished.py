"""Remembers work that a killed process cannot clean up itself.

A process that is about to leave things in several places (a run, artifacts, a model version) first
makes a ticket: a small file that it keeps locked until it is done. The lock dies with the process, also
by SIGKILL, so whoever finds a ticket that nobody holds knows that its work was abandoned. It is written whole
(feature_store/whole_files.py), so a power cut leaves none that cannot be read; one that is damaged all the same is set
aside, for it must not be in the way of all later work.
"""

import contextlib
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from filelock import lock_descriptor

from feature_store.whole_files import whole_file

ABOUT = {"model", "task", "workload"}  # what is to be cleaned up is found by


@contextlib.contextmanager
def ticket(folder: Path, about: Mapping[str, str]) -> Iterator[str]:
    """Holds a ticket about some work; yields its id.

    The ticket is removed when the block ends without an error. After an error it stays, released, for
    `settle` to find; remove it by `settle` once everything is cleaned up.

    Raises:
        OSError: the disk is full or the folder cannot be written; the block is not begun.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    path = folder / f"{name}.json"
    with contextlib.ExitStack() as held:
        with whole_file(path) as unseen:
            # Locked and filled before it gets the name that `settle` looks for, and held beyond that.
            file = held.enter_context(unseen.open("w"))
            lock_descriptor(file.fileno())
            json.dump(dict(about), file)
            file.flush()
        yield name
        path.unlink(missing_ok=True)


def settle(folder: Path, clean_up: Callable[[str, Mapping[str, str]], None]) -> tuple[str, ...]:
    """Hands every abandoned ticket to `clean_up(id, about)` and removes it where that succeeds.

    One that is no ticket (a damaged file) is set aside as `<id>.unreadable`, and a line on stderr names it.

    Returns:
        The ids that were settled.

    Raises:
        Exception: what `clean_up` raises; its ticket and those after it stay.
    """
    settled = []
    for path in sorted(folder.glob("[!.]*.json")):  # not what is being written, which nobody holds yet
        # Locked by its descriptor: a lock by its path would make a file anew whose holder has just removed it.
        with contextlib.suppress(FileNotFoundError), path.open("rb+") as file:
            if not lock_descriptor(file.fileno(), blocking=False):
                continue
            if os.fstat(file.fileno()).st_nlink == 0:
                continue  # its holder finished between our opening it and locking it
            about = _about(file.read())
            if about is None:
                aside = path.rename(path.with_suffix(".unreadable"))
                print(f"note: {path} must be a ticket of a registration (a JSON object of texts), got something else; "
                      f"it is set aside as {aside.name}, and what that registration left in the registry stays: see "
                      "`assay audit-registry`", file=sys.stderr)
                continue
            clean_up(path.stem, about)
            path.unlink(missing_ok=True)
            settled.append(path.stem)
    return tuple(settled)


def _about(content: bytes) -> dict[str, str] | None:
    """What a ticket holds, None where the content is that of no ticket."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    is_about = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if is_about and found.keys() >= ABOUT else None
