"""The task of a controller that was not told one: its bundle's, or that of the one champion of its workload."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from feature_store.errors import AssayError, InputError
from models.configuration import Configuration
from serving.bundle import open_bundle
from serving.control.side_by_side import Within
from serving.ledger import Ledger
from serving.state_folder import StateFolder


def task_of_bundle(folder: Path) -> str:
    """As its contract says; whoever acts checks the bundle. Raises AssayError: it cannot be opened."""
    return open_bundle(folder).contract.task


def task_of_workload(state: Configuration | StateFolder, workload: str, folder: Path | None, within_s: float) -> str:
    """The task whose champion would act.

    Args:
        state: where the ledger is; while that is away, or knows no such workload, what controllers have kept says it.
        folder: of this controller, where it is not in the state folder.
        within_s: seconds in which the ledger has to answer; else it is away.

    Raises:
        InputError: there are several, or nobody can say.
        AssayError: the ledger cannot be read, or does not verify, and no controller has kept anything.
    """
    try:
        standings = Within(Ledger(state.ledger_path, state.public_key_path).standings, within_s,
                           f"ledger {state.ledger_path}")()
    except AssayError:
        if not (kept := list(_kept(state.home, workload, folder))):
            raise
        return _one(kept, workload)
    known = {task: standing for (task, name), standing in standings.items() if name == workload}
    acting = [task for task, standing in known.items() if standing.champion is not None]
    return _one(acting or known or _kept(state.home, workload, folder), workload)


def _kept(home: Path, workload: str, folder: Path | None) -> Iterable[str]:
    """Tasks of the last good champions in controllers' folders."""
    places = sorted(home.glob(f"controllers/*/{workload}")) if folder is None else [folder]
    for place in places:
        for name in ("bundle", "refused"):
            with suppress(AssayError, OSError):
                yield task_of_bundle(place / "champion" / name)


def _one(tasks: Iterable[str], workload: str) -> str:
    found = sorted(set(tasks))
    if len(found) != 1:
        got = f"one of {', '.join(found)}" if found else "none that can be known"
        raise InputError(f"task must be given (--task), for workload {workload!r} may be of {got}")
    return found[0]
