"""What `assay clean` takes out of a state folder: what past work left behind, by age and number.

    everything of a kind -> old enough, beyond the newest, not of a standing version -> <home>/trash/ -> deleted

All of it is renamed into the trash before the first byte is deleted, so nobody ever finds half a run or a torn log;
what a kill leaves in the trash goes with the next cleaning. Nothing is moved while a run or a monitor is at work: kfp's
cache hands it files of earlier runs. Whatever is no kind below is never touched: ledger, keys, bundles, MLflow's
database and artifacts, controllers, what monitor and notifications remember.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import Timeout

from components.progress import read_events
from feature_store.errors import AssayError
from feature_store.file_lock import file_lock
from models.configuration import Configuration
from pipelines.local_run import AT_WORK_NAME
from pipelines.run_lock import BY_HAND_NAME, LOCK_NAME, PATIENCE_S, BusyError, acquire_run_lock
from serving.ledger import Ledger

COMMAND = "assay clean"  # as the run locks name it
TRASH = "trash"
# named for a run: the newest stay, and those of standing versions
NUMBERED = {"runs": "runs/*", "reports": "reports/*"}
AGED = {
    "cached steps": "cache/*", "pretrained networks": "pretrained/*", "learners of killed runs": "learners/*",
    "checkpoints of killed runs": "checkpoints/*", "searches": "optuna/*", "logs": "logs/*",
    "logs of controllers in shadow": "shadow/*/*/steps", "looks that were broken off": "monitor/.look-*",
}
UNFINISHED = {"an earlier cleaning": f"{TRASH}/*"}
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Leftover:
    """A file or folder that may go.

    Attributes:
        kind: what it is, in the words of the tables above.
        size: bytes that it takes on the disk.
        written: when anything in it was last written, seconds since 1970.
    """

    kind: str
    path: Path
    size: int
    written: float


def leftovers(configuration: Configuration, days: float, keep: int, now: float) -> list[Leftover]:
    """What a cleaning would remove now. Writes nothing.

    Args:
        days: age from which on something goes.
        keep: number of the newest runs, and of the newest reports, that stay whatever their age.
        now: seconds since 1970.

    Raises:
        AssayError: the ledger, which says which versions stand, is away or does not verify.
    """
    home, reserved = configuration.home, _reserved(configuration)
    standing = _runs_of_standing_versions(configuration)
    found: list[Leftover] = []
    for kind, pattern in {**NUMBERED, **AGED, **UNFINISHED}.items():
        if pattern.partition("/")[0] in reserved:
            continue
        entries = sorted((_weighed(kind, path) for path in home.glob(pattern)), key=lambda one: -one.written)
        if kind in NUMBERED:
            entries = [one for one in entries[keep:] if one.path.name not in standing]
        found += [one for one in entries if kind in UNFINISHED or one.written <= now - days * _DAY_S]
    return found


def clean(configuration: Configuration, days: float, keep: int, now: float) -> list[Leftover]:
    """Removes the leftovers, and returns them. See `leftovers`.

    Raises:
        BusyError: a run or a monitor is at work in the state folder; nothing was removed.
        AssayError: also where something cannot be removed. The same command goes on.
    """
    home = configuration.home
    trash = home / TRASH
    with _nobody_at_work(home):
        try:
            trash.mkdir(exist_ok=True)
            moved = [one for one in leftovers(configuration, days, keep, now) if _moved(one.path, trash)]
            shutil.rmtree(trash)
        except OSError as error:
            raise AssayError(f"leftovers must be removable, got {error}; nothing else is harmed, and the same command "
                             f"goes on ({home})") from error
    return moved


def _reserved(configuration: Configuration) -> set[str]:
    """Folders of the state folder into which mlflow.yaml has put what must stay, whatever else lies in them."""
    paths = (configuration.ledger_path, configuration.private_key_path, configuration.public_key_path,
             configuration.artifact_root, configuration.tracking_uri.removeprefix("sqlite:///"))
    return {Path(path).relative_to(configuration.home).parts[0] for path in paths
            if Path(path).is_relative_to(configuration.home) and Path(path) != configuration.home}


def _runs_of_standing_versions(configuration: Configuration) -> set[str]:
    """Names of the runs that registered a champion, the champion before it or the version that waits."""
    standings = Ledger(configuration.ledger_path, configuration.public_key_path).standings()
    versions = {(configuration.model_name(*pair), version) for pair, standing in standings.items()
                for version in (*standing.champions[-2:], standing.challenger)}
    return {path.parent.name for path in configuration.home.glob("runs/*/events.jsonl")
            for event in read_events(path)[0] if event["event"] == "result"
            for entry in event["summary"]["entries"]
            if entry["status"] == "registered" and (entry["model"], entry["version"]) in versions}


def _weighed(kind: str, path: Path) -> Leftover:
    """With all that lies in it; links are not followed, and what goes away meanwhile weighs nothing."""
    size, written = 0, 0.0
    below = (Path(folder, name) for folder, folders, files in os.walk(path) for name in (*folders, *files))
    for one in (path, *below):
        with suppress(FileNotFoundError):
            status = one.lstat()
            size, written = size + status.st_blocks * 512, max(written, status.st_mtime)
    return Leftover(kind, path, size, written)


@contextmanager
def _nobody_at_work(home: Path) -> Iterator[None]:
    """Keeps scheduled runs and monitors out. A run by hand that begins meanwhile finds each earlier run whole, or none
    of it."""
    with ExitStack() as held:
        held.enter_context(acquire_run_lock(home / LOCK_NAME, COMMAND, PATIENCE_S))
        held.enter_context(acquire_run_lock(home / BY_HAND_NAME, COMMAND))
        for path in home.glob(f"runs/*/{AT_WORK_NAME}"):  # further runs by hand
            if not held.enter_context(_held(path)):
                raise BusyError(f"another run has not ended: {path.parent.name} ({path.parent}); wait for it to end: "
                                "nothing was removed")
        yield


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Holds a lock file for the length of the block; False: somebody else does."""
    lock = file_lock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _moved(path: Path, trash: Path) -> bool:
    """Into the trash, unless it has gone, or a controller in shadow writes to it."""
    with ExitStack() as held:
        if path.name == "steps" and not held.enter_context(_held(path.with_name("lock"))):
            return False
        with suppress(FileNotFoundError):
            path.rename(trash / secrets.token_hex(8))
            return True
    return False
