"""Moves a champion: first the ledger, then the registry's aliases, which only follow it.

The append to the ledger is the one instant in which a promotion happens. A crash before it: nothing
happened. A crash after it: the aliases are behind, and the next `reconcile` brings them up. So ledger
and aliases cannot end up apart, whatever instant a process dies at.

    lock -> heads -> reconcile -> decide -> ledger.append -> aliases -> head tag -> unlock

The head tag of a registered model is the sequence and hash of the last ledger entry about it. It shows
    a ledger whose end was cut off        its entry is not in the ledger: refused, to readers and to writers
    a move that was interrupted           the ledger goes on after it: aliases are completed
    an alias that someone moved by hand   the ledger does not go on, but an alias differs: set back, reported
    a version that someone deleted        its alias cannot be set: reported, and nothing else waits for it

A reader asks for the head of the model that it reads; before anything is appended the heads of all models are asked
for, or a move of one workload would bury the gap that another one's entries left.

This module knows no registry: it is handed one as an `AliasStore`.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from feature_store.errors import AssayError
from serving.ledger import Ledger
from serving.ledger_entry import Entry
from serving.ledger_heads import pinned_head, registry_heads
from serving.moves import Move, Standing
from serving.review_tags import WAITS_FOR, WAITS_TAG

Role = Literal["champion", "challenger"]  # what a version is by the ledger, whatever the aliases are called


class AliasStore(Protocol):
    """What promotion needs of a model registry."""

    def alias(self, model: str, alias: str) -> int | None:
        """The version that an alias points to, None where there is none."""

    def set_alias(self, model: str, alias: str, version: int | None) -> None:
        """Points an alias to a version (None: removes it). Raises AssayError where it cannot."""

    def set_tag(self, model: str, version: int, key: str, value: str | None) -> None:
        """Writes a tag of a version (None: removes it, if it is there). Raises AssayError where it cannot."""

    def has_version(self, model: str, version: int) -> bool:
        """Whether the registry still has a version."""

    def head(self, model: str) -> str | None:
        """The head tag, None where there is none."""

    def heads(self) -> Mapping[str, str]:
        """The head tags of all of the project's models that have one, by model."""

    def set_head(self, model: str, head: str) -> None:
        """Sets the head tag."""


@dataclass(frozen=True)
class Drift:
    """A difference between ledger and registry that `reconcile` found.

    Attributes:
        cause: "interrupted" (a process died before its aliases were set) or "foreign" (someone moved it).
        repaired: whether the alias is now as expected.
        gone: the registry no longer has the expected version.
    """

    model: str
    alias: str
    found: int | None
    expected: int | None
    cause: Literal["interrupted", "foreign"]
    repaired: bool
    gone: bool = False

    def __str__(self) -> str:
        story = {"interrupted": "a move was interrupted", "foreign": "it was moved outside of the ledger"}
        done = "set right" if self.repaired else "could not be set"
        if self.gone:
            done += (f": version {self.expected} was deleted from the registry. A copy of its bundle stands for it, if "
                     f"one is left; `assay retire --version {self.expected}` takes it out for good")
        return (
            f"alias {self.alias} of {self.model} must be {named_version(self.expected)} as the ledger says, got "
            f"{named_version(self.found)}; {story[self.cause]}; {done}"
        )


@dataclass(frozen=True)
class Aliases:
    """Names of the two aliases, as mlflow.yaml has them."""

    champion: str
    challenger: str

    def of(self, role: Role | None) -> str | None:
        """The alias of what has that role; None: none has it."""
        return None if role is None else {"champion": self.champion, "challenger": self.challenger}[role]


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

    def read(self, task: str, workload: str, least_head: str | None = None) -> Standing:
        """The standing that a reader may act upon. Takes no lock, writes nothing.

        Args:
            least_head: head of an entry that the ledger must hold, as `assay history` printed it.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off.
        """
        model = self._model_name(task, workload)
        head = self._store.head(model)  # before the ledger is read, which may be growing
        seen = {} if head is None else {model: head}
        return self.ledger.standing(task, workload, (*pinned_head(least_head), *registry_heads(seen)))

    def history(self, task: str | None, workload: str | None) -> tuple[Entry, ...]:
        """Verified entries, oldest first. Raises RefusedError as `read`, for the heads of all models."""
        heads = registry_heads(self._store.heads())
        return self.ledger.history(task, workload, heads)

    @contextlib.contextmanager
    def standing(self, task: str, workload: str) -> Iterator[tuple[Standing, tuple[Drift, ...]]]:
        """Holds the ledger; yields the standing after reconciling. Make moves with `record` inside.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off.
        """
        with self.ledger.locked():
            drifts = self.reconcile(task, workload)
            yield self.ledger.standing(task, workload), drifts

    def reconcile(self, task: str | None = None, workload: str | None = None) -> tuple[Drift, ...]:
        """Makes the aliases of one task and workload equal to what the ledger says; without them, of all it knows.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off.
        """
        with self.ledger.locked():
            heads = self._store.heads()
            entries = self.ledger.verify(registry_heads(heads))
            standings = self.ledger.standings()
            last = {(entry.move.task, entry.move.workload): entry for entry in entries}
            pairs = sorted(standings) if task is None or workload is None else [(task, workload)]
            drifts: list[Drift] = []
            for pair in pairs:
                model, own = self._model_name(*pair), last.get(pair)
                head = heads.get(model)
                # a head that is there fits an entry, and begins with its number
                behind = own is not None and (head is None or int(head.partition(":")[0]) < own.sequence)
                cause: Literal["interrupted", "foreign"] = "interrupted" if behind else "foreign"
                drifts += self._follow(model, standings.get(pair, Standing()), own, cause, head)
            return tuple(drifts)

    def record(self, moves: Sequence[Move]) -> tuple[Drift, ...]:
        """Appends moves of one task and workload to the ledger and lets the aliases follow.

        Returns:
            Aliases of versions that the registry no longer has.

        Raises:
            RefusedError, InputError, AssayError: nothing was recorded; see `Ledger.append`.
            RecordedError: the moves are recorded, but an alias could not be set; the next move sets it.
        """
        with self.ledger.locked():
            last = self.ledger.append(moves, registry_heads(self._store.heads()))[-1]
            recorded = f"The move is in the ledger, entry {last.sequence}"
            try:
                standing = self.ledger.standing(last.move.task, last.move.workload)
                drifts = self._follow(last.move.model, standing, last, "interrupted", None)
            except AssayError as error:
                raise RecordedError(f"{error}. {recorded}") from error
        if lost := tuple(drift for drift in drifts if not drift.repaired and not drift.gone):
            raise RecordedError(f"{'; '.join(map(str, lost))}. {recorded}", lost)
        return tuple(drift for drift in drifts if drift.gone)

    def _follow(
        self, model: str, standing: Standing, last: Entry | None, cause: Literal["interrupted", "foreign"],
        head: str | None,
    ) -> tuple[Drift, ...]:
        """Sets the aliases of a model, and its head tag where that is not `last` yet."""
        drifts = []
        for alias, expected in (
            (self._aliases.champion, standing.champion),
            (self._aliases.challenger, standing.challenger),
        ):
            found = self._store.alias(model, alias)
            if found == expected:
                continue
            if alias == self._aliases.challenger:  # before the alias: what a crash leaves out is done once more
                self._mark_waiting(model, found, expected)
            repaired, gone = True, False
            try:
                self._store.set_alias(model, alias, expected)
            except AssayError:
                repaired, gone = False, expected is not None and self._is_gone(model, expected)
                if gone and found is not None:  # better no alias than one on a version that the ledger does not mean
                    with contextlib.suppress(AssayError):
                        self._store.set_alias(model, alias, None)
            drifts.append(Drift(model, alias, found, expected, "foreign" if gone else cause, repaired, gone))
        if last is not None and head != last.head and all(drift.repaired or drift.gone for drift in drifts):
            try:
                self._store.set_head(model, last.head)
            except AssayError:
                if not any(drift.gone for drift in drifts):  # else the model itself may be gone
                    raise
        return tuple(drifts)

    def _is_gone(self, model: str, version: int) -> bool:
        """Whether the registry says that it has no such version; one that does not answer says nothing."""
        try:
            return not self._store.has_version(model, version)
        except AssayError:
            return False

    def _mark_waiting(self, model: str, before: int | None, now: int | None) -> None:
        """The tag that tells a reviewer what the challenger waits for. It decides nothing: where it fails, an audit
        of the registry says it."""
        for version, text in ((before, None), (now, WAITS_FOR)):
            if version is not None:
                with contextlib.suppress(AssayError):
                    self._store.set_tag(model, version, WAITS_TAG, text)


def named_version(version: int | None) -> str:
    """Of an alias, in a sentence."""
    return "unset" if version is None else f"version {version}"
