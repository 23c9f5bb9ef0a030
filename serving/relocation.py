"""Notices that a state folder was copied or moved, and makes its database its own again.

MLflow's database holds absolute paths: of every run, model and version, where its artifacts lie. A copy of a state
folder would go on reading and writing in the original. So the database also holds where its folder lay when it was made
(a tag of the experiment), which is compared whenever it is opened; `adopt` rewrites the paths. Nothing else in a state
folder is absolute but the step cache, which names the files of earlier runs: `adopt` drops it.

Concerns a database in the state folder alone. What a tracking server holds does not move with a folder.
"""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from feature_store.errors import AssayError, InputError, RefusedError
from feature_store.file_lock import file_lock
from models.configuration import Configuration

HOME_TAG = "assay.home"
DATABASE_LOCK = "mlflow.lock"
_SQLITE = "sqlite:///"
# Where MLflow 3.17 keeps paths of artifacts.
_COLUMNS = (
    ("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"),
    ("model_versions", "source"), ("model_versions", "storage_location"),
)  # fmt: skip
_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Adoption:
    """A state folder that was made its own. paths: number of paths that were rewritten."""

    home: Path
    before: Path
    paths: int


def require_own_home(configuration: Configuration) -> None:
    """Refuses a state folder whose database says that it lies elsewhere.

    Raises:
        RefusedError: it was copied or moved.
        InputError: something else than a file has the database's name.
        AssayError: the database cannot be read.
    """
    _require_file(configuration)
    recorded = recorded_home(configuration)
    if recorded is not None and not _is_same(recorded, configuration.home):
        raise RefusedError(
            f"state folder: expected to be where its database says, {recorded}, got {configuration.home}; it was "
            "copied or moved, and would use the artifacts of the original: `assay adopt` makes it independent"
        )


def recorded_home(configuration: Configuration) -> Path | None:
    """Where the state folder lay when its database was made, None where nothing says so.

    Raises:
        AssayError: the database cannot be read.
    """
    path = _database(configuration)
    if path is None or not path.is_file():
        return None
    with _opened(path, "ro") as database:
        if not database.execute("select 1 from sqlite_master where name = 'experiment_tags'").fetchone():
            return None
        row = database.execute("select value from experiment_tags where key = ?", (HOME_TAG,)).fetchone()
        if row:
            return Path(row[0])
        row = database.execute(
            "select artifact_location from experiments where name = ?", (configuration.experiment,)).fetchone()
    # before there was a tag: from where the experiment's artifacts are, if that is where the configuration puts them
    if row is None or not _lies_in(configuration.artifact_root, configuration.home):
        return None
    below = Path(configuration.artifact_root).relative_to(configuration.home).parts
    location = Path(row[0])
    return location.parents[len(below) - 1] if location.parts[-len(below) :] == below else None


def is_unrecorded(configuration: Configuration) -> bool:
    """Whether the database lies in the state folder, has the experiment, and does not say where the folder is."""
    path = _database(configuration)
    if path is None or not path.is_file():
        return False
    with _opened(path, "ro") as database:
        if not database.execute("select 1 from sqlite_master where name = 'experiment_tags'").fetchone():
            return False
        return database.execute(
            "select 1 from experiments where name = ? and experiment_id not in "
            "(select experiment_id from experiment_tags where key = ?)", (configuration.experiment, HOME_TAG),
        ).fetchone() is not None


def adopt(configuration: Configuration) -> Adoption:
    """Makes the database of a copied or moved state folder point into the folder; all of it or nothing.

    Raises:
        InputError: there is nothing to adopt.
        AssayError: the database cannot be written.
    """
    home, path, before = configuration.home, _database(configuration), recorded_home(configuration)
    if path is None or before is None:
        raise InputError(f"state folder: expected a database of its own, got none in use ({home})")
    if before == home:
        raise InputError(f"state folder: expected a copied or moved one, got one where it was made ({home})")
    with locked_database(home), _opened(path, "rw") as database:
        rewritten = sum(
            database.execute(
                f"update {table} set {column} = ? || substr({column}, ?) "
                f"where {column} = ? or substr({column}, 1, ?) = ?",
                (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
            ).rowcount
            for table, column in _COLUMNS for old, new in ((str(before), str(home)), (f"file://{before}", f"file://{home}"))
        )
        database.execute("update experiment_tags set value = ? where key = ?", (str(home), HOME_TAG))
        database.commit()
    shutil.rmtree(home / "cache", ignore_errors=True)
    return Adoption(home, before, rewritten)


@contextlib.contextmanager
def locked_database(home: Path) -> Iterator[None]:
    """Holds a state folder's database against other processes of this project."""
    lock = file_lock(home / DATABASE_LOCK)
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise AssayError(f"registry must be writable, got {error} ({home})") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    address = f"{path.as_uri()}?mode={mode}"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS)) as database:
            yield database
    except sqlite3.Error as error:
        raise AssayError(f"database must be usable, got {error} ({path})") from error


def _require_file(configuration: Configuration) -> None:
    if not configuration.tracking_uri.startswith(_SQLITE):
        return
    path = Path(configuration.tracking_uri.removeprefix(_SQLITE))
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "something else"
        raise InputError(f"database must be a file, got {what} ({path}); move it away, or name another one in "
                         "tracking.uri of mlflow.yaml")


def _database(configuration: Configuration) -> Path | None:
    path = Path(configuration.tracking_uri.removeprefix(_SQLITE))
    is_own = configuration.tracking_uri.startswith(_SQLITE) and _lies_in(str(path), configuration.home)
    return path if is_own else None


def _lies_in(path: str, home: Path) -> bool:
    return Path(path).is_relative_to(home)


def _is_same(one: Path, other: Path) -> bool:
    """Also by another name: through a link, or mounted."""
    if one == other:
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False
