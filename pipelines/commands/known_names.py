"""Names of tasks and workloads that a user typed, against those that the ledger knows."""

import contextlib
from collections.abc import Iterable

from feature_store.errors import AssayError, InputError, nearest
from models.configuration import Configuration
from serving.state_folder import StateFolder


def require_in_ledger(state: Configuration | StateFolder, task: str | None, *workloads: str) -> None:
    """As `require_known`, of each, with one look at the ledger. One that is away, hangs or does not verify knows none:
    who opens the champion says it.

    Raises:
        InputError: with the nearest known name.
    """
    from serving.control.side_by_side import Within
    from serving.control.start import WITHIN_S
    from serving.ledger import Ledger

    known: Iterable[tuple[str, str]] = ()
    with contextlib.suppress(AssayError, OSError):
        known = Within(Ledger(state.ledger_path, state.public_key_path).standings, WITHIN_S,
                       f"ledger {state.ledger_path}")()
    for workload in workloads:
        require_known(known, task, workload)


def require_known(known: Iterable[tuple[str, str]], task: str | None, workload: str | None) -> None:
    """Refuses a name that no entry of the ledger has; an empty ledger knows none, and refuses none.

    Args:
        known: (task, workload) pairs of the ledger.
        task, workload: as typed; None: any.

    Raises:
        InputError: with the nearest known name.
    """
    pairs = set(known)
    tasks = {pair[0] for pair in pairs}
    if not pairs:
        return
    if task is not None and task not in tasks:
        raise InputError(f"task must be one that the ledger knows, got {task!r}; {nearest(task, tasks)} (--task)")
    workloads = {pair[1] for pair in pairs if task in (None, pair[0])}
    if workload is not None and workload not in workloads:
        of = f" of task {task!r}" if task else ""
        raise InputError(f"workload{of} must be one that the ledger knows, got {workload!r}; "
                         f"{nearest(workload, workloads)}")
