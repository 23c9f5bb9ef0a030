"""What `assay clean` takes out of a state folder: what past work left behind, by age and number.

    everything of a kind -> old enough, beyond the newest, not of a standing version -> <home>/trash/ -> deleted

All of it is renamed into the trash before the first byte is deleted, so nobody ever finds half a run or a torn log;
what a kill leaves in the trash goes with the next cleaning. Nothing is moved while a run or a monitor is at work: kfp's
cache hands it files of earlier runs. Whatever is no kind below, or is not named as Assay names it, is never touched:
ledger, keys, bundles, MLflow's database and artifacts, controllers, what monitor and notifications remember, and what
others keep in the same folder. No link is followed.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from components.progress import read_events
from feature_store.errors import AssayError, InputError
from models.configuration import Configuration
from pipelines.run_folders import (
    AT_WORK_NAME,
    TRASH,
    held,
    is_no_file,
    is_reached_without_links,
    is_run,
    moved_to_trash,
    runs_held,
)
from pipelines.run_lock import BY_HAND_NAME, LOCK_NAME, PATIENCE_S, BusyError, acquire_run_lock
from serving.ledger import Ledger

COMMAND = "assay clean"  # as the run locks name it
_HEX = "[0-9a-f]"
# named for a run: the newest stay, and those of standing versions
NUMBERED = {"runs": ("runs/*",), "reports": ("reports/*",)}
AGED = {
    "cached steps": (f"cache/{_HEX * 64}.json", "cache/.kfp_cache_*.tmp"),
    "pretrained networks": (f"pretrained/{_HEX * 32}",),
    "learners of killed runs": (f"learners/{_HEX * 32}",), "checkpoints of killed runs": (f"checkpoints/{_HEX * 32}",),
    "searches": (f"optuna/{_HEX * 16}.log",),
    "logs": ("logs/ui.log", "logs/notifications.log", "logs/schedule-*.log"),
    "logs of controllers in shadow": ("shadow/*/*/steps",), "looks that were broken off": ("monitor/.look-*",),
}
UNFINISHED = {"an earlier cleaning": (f"{TRASH}/{_HEX * 16}",)}
_KINDS = {**NUMBERED, **AGED, **UNFINISHED}
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
        InputError: nothing in the folder is Assay's, or its trash is a link.
        AssayError: the ledger, which says which versions stand, is away or does not verify.
    """
    _require_state_folder(configuration)
    home, above_kept = configuration.home, _at_or_above(_kept_places(configuration))
    staying = _runs_that_stay(configuration)
    found: list[Leftover] = []
    for kind, patterns in _KINDS.items():
        if _identity(_folder_of(kind, home)) in above_kept:
            continue
        paths = (path for pattern in patterns for path in home.glob(pattern) if _is_ours(kind, path, home))
        entries = sorted((_weighed(kind, path) for path in paths), key=lambda one: -one.written)
        if kind in NUMBERED:
            entries = [one for one in entries[keep:] if one.path.name not in staying]
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
    _require_state_folder(configuration)  # before locks are made in it
    try:
        with _nobody_at_work(home):
            trash.mkdir(exist_ok=True)
            moved = [one for one in leftovers(configuration, days, keep, now) if _moved(one, trash, configuration)]
            for path in trash.glob(_HEX * 16):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            with suppress(OSError):  # something of somebody else's lies there
                trash.rmdir()
    except OSError as error:
        raise AssayError(f"leftovers must be removable, got {error}; nothing else is harmed, and the same command "
                         f"goes on ({home})") from error
    return moved


def linked_folders(configuration: Configuration) -> list[Path]:
    """Folders that a cleaning leaves alone because they are links: what they lead to may be anybody's."""
    folders = {_folder_of(kind, configuration.home) for kind in _KINDS}
    return sorted(folder for folder in folders if folder.is_symlink())


def _folder_of(kind: str, home: Path) -> Path:
    return home / _KINDS[kind][0].partition("/")[0]


def _require_state_folder(configuration: Configuration) -> None:
    """Refuses a folder in which Assay has left no trace, such as another project's that ASSAY_HOME names by mistake."""
    home = configuration.home
    kept = [path for path in _kept_places(configuration) if path.is_file()]
    if not (_identity(home) in _at_or_above(kept) or any(is_run(path) for path in home.glob("runs/*"))
            or any(home.glob("bundles/*/*/*/contract.json"))):
        raise InputError("state folder: expected one in which Assay has worked, got one without a ledger, keys, a "
                         f"database, bundles or runs of its own ({home}); check ASSAY_HOME")
    if (home / TRASH).is_symlink() or _identity(home / TRASH) in _at_or_above(_kept_places(configuration)):
        raise InputError(f"trash: expected a folder for leftovers alone, got a link or the place of a ledger, keys or "
                         f"MLflow's files ({home / TRASH}); move it away")


def _kept_places(configuration: Configuration) -> list[Path]:
    """Ledger, keys, MLflow's database and artifacts, as far as they are files or folders."""
    database = re.sub(r"^sqlite(\+\w+)?:///", "", configuration.tracking_uri).partition("?")[0]
    artifacts = configuration.artifact_root
    if artifacts.startswith("file:"):
        artifacts = url2pathname(urlsplit(artifacts).path)
    places = (configuration.ledger_path, configuration.private_key_path, configuration.public_key_path, database,
              artifacts)
    return [Path(place) for place in places if Path(place).is_absolute()]  # no address is


def _at_or_above(places: Iterable[Path]) -> set[tuple[int, int] | None]:
    """Identities of places and of all folders above them, by whatever name: through links, `..` or mounts."""
    ways = (way for place in places for way in (place, Path(os.path.realpath(place))))
    return {_identity(path) for way in ways for path in (way, *way.parents)} - {None}


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None: there is none."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _is_ours(kind: str, path: Path, home: Path) -> bool:
    """Whether Assay made it: no link, below none, and for a run or a report with the files that it writes."""
    if not is_reached_without_links(path, home):
        return False
    return {"runs": is_run, "reports": _is_report}.get(kind, Path.exists)(path)


def _is_report(path: Path) -> bool:
    """Nothing but pages is in it (components/report.py)."""
    with suppress(OSError):
        pages = list(path.iterdir())
        return bool(pages) and all(page.suffix == ".html" and page.is_file() for page in pages)
    return False


def _runs_that_stay(configuration: Configuration) -> set[str]:
    """Names of the runs that registered a champion, the champion before it or the version that waits, and of those that
    do not say what they registered."""
    standings = Ledger(configuration.ledger_path, configuration.public_key_path).standings()
    versions = {(configuration.model_name(*pair), version) for pair, standing in standings.items()
                for version in (*standing.champions[-2:], standing.challenger)}
    return {run.name for run in configuration.home.glob("runs/*") if _may_have_registered(run, versions)}


def _may_have_registered(run: Path, versions: set[tuple[str, int | None]]) -> bool:
    events = run / "events.jsonl"
    if is_no_file(events) or is_no_file(run / AT_WORK_NAME):
        return True
    try:
        return any(entry["status"] == "registered" and (entry["model"], entry["version"]) in versions
                   for event in read_events(events, strict=True)[0] if event["event"] == "result"
                   for entry in event["summary"]["entries"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return True


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
    with ExitStack() as locks:
        locks.enter_context(acquire_run_lock(home / LOCK_NAME, COMMAND, PATIENCE_S))
        locks.enter_context(acquire_run_lock(home / BY_HAND_NAME, COMMAND))
        other = locks.enter_context(runs_held(home))  # further runs by hand
        if other is not None:
            raise BusyError(f"another run has not ended: {other.name} ({other}); wait for it to end: nothing was "
                            "removed")
        yield


def _moved(one: Leftover, trash: Path, configuration: Configuration) -> bool:
    """Into the trash, unless it has gone, a controller in shadow writes to it, it is on another disk, or by now a link
    leads through it or what must stay lies in it."""
    with ExitStack() as locks:
        if one.path.name == "steps":
            lock = one.path.with_name("lock")
            if is_no_file(lock) or not locks.enter_context(held(lock)):
                return False
        if not _is_ours(one.kind, one.path, configuration.home):
            return False
        if _identity(one.path) in _at_or_above(_kept_places(configuration)):
            return False
        return moved_to_trash(one.path, trash) is not None
