"""What can happen to a model version, and what stands after it: the rules of promotion, as pure code.

    register | reject  ->  challenger  ->  champion | approve  ->  rollback

`Standing` is the state of one (task, workload), folded from its moves in order. The ledger refuses to
write a move that breaks a rule, and to read one: two processes that each thought they had promoted
cannot both be in it, for each move names the champion it found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from feature_store.errors import RefusedError

Action = Literal["register", "reject", "challenger", "champion", "approve", "rollback"]


@dataclass(frozen=True)
class Move:
    """What happened to one version of one registered model.

    Attributes:
        action: register (its gates held), reject (they did not), challenger, champion (by comparison),
            approve (champion by a person's word), rollback (back to the champion before).
        at: UTC time, ISO 8601.
        model: name in the registry.
        version: number in the registry; never used twice.
        previous_version: the champion before the move, None where there was none.
        bundle_sha256: digest that names the version's bundle.
        actor: who or what made the move.
    """

    action: Action
    at: str
    task: str
    workload: str
    model: str
    version: int
    previous_version: int | None
    bundle_sha256: str
    gates_passed: bool
    reason: str
    actor: str


@dataclass(frozen=True)
class Standing:
    """Where one task and workload stands.

    Attributes:
        champions: versions that became champion and were not rolled back, oldest first; the last one is
            the champion.
        challenger: the latest version that passed its gates and is not champion.
        registered: bundle digest by version, of versions whose gates held.
        rejected: versions whose gates did not hold.
    """

    champions: tuple[int, ...] = ()
    challenger: int | None = None
    registered: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    rejected: frozenset[int] = frozenset()

    @property
    def champion(self) -> int | None:
        """The standing champion's version."""
        return self.champions[-1] if self.champions else None

    @property
    def previous_champion(self) -> int | None:
        """The version that a rollback goes to."""
        return self.champions[-2] if len(self.champions) > 1 else None

    @property
    def last_version(self) -> int:
        """The largest version number ever used, 0 before the first."""
        return max((*self.registered, *self.rejected), default=0)


def after(standing: Standing, move: Move, where: str) -> Standing:
    """The standing after a move.

    Args:
        standing: the standing of the move's task and workload before it.
        where: the entry, for messages.

    Raises:
        RefusedError: the move breaks a rule.
    """
    _require(
        move.previous_version == standing.champion,
        f"previous_version must be the champion {standing.champion}",
        move.previous_version,
        where,
    )
    _require(
        move.gates_passed is (move.action != "reject"), "gates must fit the move", move.gates_passed, where
    )
    if move.action in ("register", "reject"):
        known = {*standing.registered, *standing.rejected}
        _require(move.version > 0 and move.version not in known, "version must be new", move.version, where)
        if move.action == "reject":
            return replace(standing, rejected=standing.rejected | {move.version})
        registered = {**standing.registered, move.version: move.bundle_sha256}
        return replace(standing, registered=MappingProxyType(registered))

    found = standing.registered.get(move.version)
    _require(found is not None, "version must be registered with its gates passed", move.version, where)
    _require(found == move.bundle_sha256, f"bundle must be the registered {found}", move.bundle_sha256, where)
    if move.action == "rollback":
        target = standing.previous_champion
        _require(
            move.version == target, f"rollback must go to the champion before, {target}", move.version, where
        )
        return replace(standing, champions=standing.champions[:-1])
    _require(move.version != standing.champion, "version must not be champion already", move.version, where)
    if move.action == "challenger":
        return replace(standing, challenger=move.version)
    challenger = None if standing.challenger == move.version else standing.challenger
    return replace(standing, champions=(*standing.champions, move.version), challenger=challenger)


def _require(holds: bool, rule: str, value: object, where: str) -> None:
    if not holds:
        raise RefusedError(f"{rule}, got {value} ({where})")
