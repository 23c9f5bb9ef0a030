"""Moves a champion: first the ledger, then the registry's aliases, which only follow it.

The append to the ledger is the one instant in which a promotion happens. A crash before it: nothing
happened. A crash after it: the aliases are behind, and the next `reconcile` brings them up. So ledger
and aliases cannot end up apart, whatever instant a process dies at.

    lock -> reconcile -> decide -> ledger.append -> aliases -> head tag -> unlock

The head tag of a registered model is the sequence and hash of the last ledger entry about it. It shows
    a ledger whose end was cut off        its entry is not in the ledger: refused
    a move that was interrupted           the ledger goes on after it: aliases are completed
    an alias that someone moved by hand   the ledger does not go on, but an alias differs: set back, reported

This module knows no registry: it is handed one as an `AliasStore`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from feature_store.errors import AssayError, RefusedError
from serving.ledger import Entry, Ledger
from serving.moves import Move, Standing


class AliasStore(Protocol):
    """What promotion needs of a model registry."""

    def alias(self, model: str, alias: str) -> int | None:
        """The version that an alias points to, None where there is none."""

    def set_alias(self, model: str, alias: str, version: int | None) -> None:
        """Points an alias to a version (None: removes it). Raises AssayError where it cannot."""

    def head(self, model: str) -> str | None:
        """The head tag, None where there is none."""

    def set_head(self, model: str, head: str) -> None:
        """Sets the head tag."""


@dataclass(frozen=True)
class Drift:
    """A difference between ledger and registry that `reconcile` found.

    Attributes:
        cause: "interrupted" (a process died before its aliases were set) or "foreign" (someone moved it).
        repaired: False where the registry no longer has the version.
    """

    model: str
    alias: str
    found: int | None
    expected: int | None
    cause: Literal["interrupted", "foreign"]
    repaired: bool

    def __str__(self) -> str:
        story = {"interrupted": "a move was interrupted", "foreign": "it was moved outside of the ledger"}
        done = "set right" if self.repaired else "could not be set: that version is gone from the registry"
        return (
            f"alias {self.alias} of {self.model} must be {_named(self.expected)} as the ledger says, got "
            f"{_named(self.found)}; {story[self.cause]}; {done}"
        )


@dataclass(frozen=True)
class Aliases:
    """Names of the two aliases."""

    champion: str
    challenger: str


class RecordedError(AssayError):
    """Moves stand in the ledger, but an alias could not follow; the next move sets it."""

    def __init__(self, message: str, drifts: tuple[Drift, ...] = ()) -> None:
        super().__init__(message)
        self.drifts = drifts


class Promotions:
    """The ledger and the aliases that follow it."""

    def __init__(
        self, ledger: Ledger, store: AliasStore, model_name: Callable[[str, str], str], aliases: Aliases
    ) -> None:
        self.ledger = ledger
        self._store = store
        self._model_name = model_name
        self._aliases = aliases

    @contextlib.contextmanager
    def standing(self, task: str, workload: str) -> Iterator[tuple[Standing, tuple[Drift, ...]]]:
        """Holds the ledger; yields the standing after reconciling. Make moves with `record` inside.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off.
        """
        with self.ledger.locked():
            drifts = self.reconcile(task, workload)
            yield self.ledger.standing(task, workload), drifts

    def reconcile(self, task: str, workload: str) -> tuple[Drift, ...]:
        """Makes the aliases of one task and workload equal to what the ledger says.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off.
        """
        with self.ledger.locked():
            entries = self.ledger.verify()
            pair = (task, workload)
            own = [entry for entry in entries if (entry.move.task, entry.move.workload) == pair]
            model = self._model_name(task, workload)
            seen = self._seen(model, entries)
            cause: Literal["interrupted", "foreign"] = "foreign"
            if own and (seen is None or seen < own[-1].sequence):
                cause = "interrupted"
            return self._follow(model, self.ledger.standing(task, workload), own[-1] if own else None, cause)

    def record(self, moves: Sequence[Move]) -> None:
        """Appends moves of one task and workload to the ledger and lets the aliases follow.

        Raises:
            RefusedError, InputError, AssayError: nothing was recorded; see `Ledger.append`.
            RecordedError: the moves are recorded, but an alias could not be set; the next move sets it.
        """
        with self.ledger.locked():
            last = self.ledger.append(moves)[-1]
            task, workload = last.move.task, last.move.workload
            recorded = f"The move is in the ledger, entry {last.sequence}"
            try:
                drifts = self._follow(last.move.model, self.ledger.standing(task, workload), last, "interrupted")
            except AssayError as error:
                raise RecordedError(f"{error}. {recorded}") from error
        if lost := tuple(drift for drift in drifts if not drift.repaired):
            raise RecordedError(f"{'; '.join(map(str, lost))}. {recorded}", lost)

    def _seen(self, model: str, entries: Sequence[Entry]) -> int | None:
        """Sequence of the last entry that the registry saw; it must still be in the ledger."""
        head = self._store.head(model)
        if head is None:
            return None
        sequence = next((entry.sequence for entry in entries if entry.head == head), None)
        if sequence is None:
            raise RefusedError(
                f"ledger must hold entry {head!r} that the registry saw for {model}, got {len(entries)} "
                f"entries without it ({self.ledger.path}); its end was cut off or it was replaced: restore "
                "it from a backup. Where there is none, delete the model's head tag to accept the loss"
            )
        return sequence

    def _follow(
        self, model: str, standing: Standing, last: Entry | None, cause: Literal["interrupted", "foreign"]
    ) -> tuple[Drift, ...]:
        drifts = []
        for alias, expected in (
            (self._aliases.champion, standing.champion),
            (self._aliases.challenger, standing.challenger),
        ):
            found = self._store.alias(model, alias)
            if found == expected:
                continue
            try:
                self._store.set_alias(model, alias, expected)
                repaired = True
            except AssayError:
                repaired = False
            drifts.append(Drift(model, alias, found, expected, cause, repaired))
        if last is not None and self._store.head(model) != last.head and all(d.repaired for d in drifts):
            self._store.set_head(model, last.head)
        return tuple(drifts)


def _named(version: int | None) -> str:
    return "unset" if version is None else f"version {version}"
