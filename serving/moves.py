"""What can happen to a model version, and what stands after it: the rules of promotion, as pure code.

    register | reject  ->  challenger  ->  champion | approve  ->  rollback
    any version that was registered    ->  retire
    a learned controller's version     ->  stage_offline, stage_online, stage_serving, stage_initialized
    all controllers of the workload    ->  stop_acting  ->  resume_acting
    the project's signing keys         ->  rotate_key, revoke_key: of no workload, and without a standing

`Standing` is the state of one (task, workload), folded from its moves in order. The ledger refuses to
write a move that breaks a rule, and to read one: two processes that each thought they had promoted
cannot both be in it, for each move names the champion it found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from feature_store.errors import RefusedError
from feature_store.names import printable
from models.control.training.lifecycle import EDGES, Stage

Action = Literal["register", "reject", "challenger", "champion", "approve", "rollback", "retire", "stage_initialized",
                 "stage_offline", "stage_online", "stage_serving", "stop_acting", "resume_acting", "rotate_key",
                 "revoke_key"]
KEY_ACTIONS: tuple[Action, ...] = ("rotate_key", "revoke_key")
STAGE = "stage_"  # of the actions that tell the lifecycle of a learned controller


@dataclass(frozen=True)
class Move:
    """What happened to one version of one registered model.

    Attributes:
        action: register (its gates held), reject (they did not), challenger, champion (by comparison),
            approve (champion by a person's word), rollback (back to the champion before), retire (taken out
            for good by a person's word; of the champion, the one before it becomes champion), stage_* (a version that
            acts entered that stage of Algorithm 5.1, models/control/training/lifecycle.py), stop_acting (no
            controller of the workload acts, whatever is champion, until resume_acting), rotate_key (a key takes the
            place of the one that signs this), revoke_key (a key is accepted no more, and what stands below is vouched
            for by this).
        at: UTC time, ISO 8601.
        model: name in the registry.
        version: number in the registry; never used twice. Of stop_acting and resume_acting the champion's, 0 and no
            digest where there is none.
        previous_version: the champion before the move, None where there was none.
        bundle_sha256: digest that names the version's bundle; of KEY_ACTIONS the key's fingerprint. Theirs are no task,
            workload and model (""), version 0 and no version before.
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
        retired: versions that were registered and taken out.
        stages: the stage of versions that entered one.
        stopped: who stopped all acting, when and why; "" where controllers may act.
        tried: by champion, how many versions could have replaced it: those registered or rejected while it was
            champion, and those that were waiting when it became champion, which a review holds to it.
    """

    champions: tuple[int, ...] = ()
    challenger: int | None = None
    registered: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    rejected: frozenset[int] = frozenset()
    retired: frozenset[int] = frozenset()
    stages: Mapping[int, Stage] = field(default_factory=lambda: MappingProxyType({}))
    stopped: str = ""
    tried: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def champion(self) -> int | None:
        """The standing champion's version."""
        return self.champions[-1] if self.champions else None

    @property
    def attempts(self) -> int:
        """Versions that could have replaced the champion, whenever it was champion."""
        return 0 if self.champion is None else self.tried.get(self.champion, 0)

    @property
    def previous_champion(self) -> int | None:
        """The version that a rollback goes to."""
        return self.champions[-2] if len(self.champions) > 1 else None

    @property
    def last_version(self) -> int:
        """The largest version number ever used, 0 before the first."""
        return max((*self.registered, *self.rejected, *self.retired), default=0)

    @property
    def known(self) -> frozenset[int]:
        """Every version number that was ever used."""
        return frozenset((*self.registered, *self.rejected, *self.retired))


def after(standing: Standing, move: Move, where: str) -> Standing:
    """The standing after a move.

    Args:
        standing: the standing of the move's task and workload before it.
        where: the entry, for messages.

    Raises:
        RefusedError: the move breaks a rule.
    """
    track = Track(standing)
    track.apply(move, where)
    return track.standing()


class Track:
    """Follows the moves of one task and workload in place: a thousand versions cost a thousand steps."""

    def __init__(self, standing: Standing) -> None:
        self._champions = list(standing.champions)
        self._challenger = standing.challenger
        self._registered = dict(standing.registered)
        self._rejected = set(standing.rejected)
        self._retired = set(standing.retired)
        self._stages = dict(standing.stages)
        self._stopped = standing.stopped
        self._tried = dict(standing.tried)

    def standing(self) -> Standing:
        """Where it stands now."""
        return Standing(tuple(self._champions), self._challenger, MappingProxyType(dict(self._registered)),
                        frozenset(self._rejected), frozenset(self._retired), MappingProxyType(dict(self._stages)),
                        self._stopped, MappingProxyType(dict(self._tried)))

    def apply(self, move: Move, where: str) -> None:
        """One move further. Raises RefusedError where it breaks a rule; nothing has changed then."""
        champion = self._champion()
        _require(move.previous_version == champion, f"previous_version must be the champion {champion}",
                 move.previous_version, where)
        _require(move.gates_passed is (move.action != "reject"), "gates must fit the move", move.gates_passed, where)
        if move.action in ("register", "reject"):
            self._enter(move, where)
            # a rejected one, too: gates see the same cases, so that those which pass are the lucky ones of all
            self._count_attempt(champion)
            return
        if move.action in ("stop_acting", "resume_acting"):
            self._switch(move, champion, where)
            return
        registered = self._registered.get(move.version)
        _require(registered is not None, "version must be registered with its gates passed", move.version, where)
        rule = f"bundle must be the registered {registered}"
        _require(registered == move.bundle_sha256, rule, move.bundle_sha256, where)
        if move.action.startswith(STAGE):
            self._enter_stage(move, where)
        elif move.action == "retire":
            self._retire(move.version)
        elif move.action == "rollback":
            target = self._champions[-2] if len(self._champions) > 1 else None
            _require(move.version == target, f"rollback must go to the champion before, {target}", move.version, where)
            self._champions.pop()
        else:
            self._raise(move, champion, where)
        if self._champion() != champion and self._challenger is not None:
            self._count_attempt(self._champion())

    def _champion(self) -> int | None:
        return self._champions[-1] if self._champions else None

    def _count_attempt(self, champion: int | None) -> None:
        if champion is not None:
            self._tried[champion] = self._tried.get(champion, 0) + 1

    def _enter(self, move: Move, where: str) -> None:
        is_new = move.version not in self._registered and move.version not in self._rejected
        is_new = is_new and move.version not in self._retired
        _require(move.version > 0 and is_new, "version must be new", move.version, where)
        if move.action == "reject":
            self._rejected.add(move.version)
        else:
            self._registered[move.version] = move.bundle_sha256

    def _switch(self, move: Move, champion: int | None, where: str) -> None:
        """All acting off or on; a statement about the workload, so that it names its champion, if there is one."""
        version, digest = (0, "") if champion is None else (champion, self._registered[champion])
        _require(move.version == version, f"version must be the champion's, {version}", move.version, where)
        _require(move.bundle_sha256 == digest, f"bundle must be the champion's {digest!r}", move.bundle_sha256, where)
        if move.action == "stop_acting":
            _require(not self._stopped, "acting must not be stopped already", f"stopped by {self._stopped}", where)
            said = " ".join(f"{move.actor}, {move.at}: {move.reason or 'no reason given'}".split())
            self._stopped = printable(said)
        else:
            _require(bool(self._stopped), "acting must be stopped to be resumed", "not stopped", where)
            self._stopped = ""

    def _enter_stage(self, move: Move, where: str) -> None:
        before, after = self._stages.get(move.version, Stage.INITIALIZED), Stage(move.action.removeprefix(STAGE))
        _require((before, after) in EDGES, f"stage must follow {before} (Algorithm 5.1)", after, where)
        self._stages[move.version] = after

    def _raise(self, move: Move, champion: int | None, where: str) -> None:
        _require(move.version != champion, "version must not be champion already", move.version, where)
        if move.action == "challenger":
            self._challenger = move.version
            return
        self._challenger = None if self._challenger == move.version else self._challenger
        self._champions.append(move.version)

    def _retire(self, version: int) -> None:
        del self._registered[version]
        self._stages.pop(version, None)
        self._retired.add(version)
        self._challenger = None if self._challenger == version else self._challenger
        left = [one for one in self._champions if one != version]
        # 1, 2, 1 without 2 is 1: nobody could roll back from a version to itself
        self._champions = [one for one, before in zip(left, [None, *left], strict=False) if one != before]


def _require(holds: bool, rule: str, value: object, where: str) -> None:
    if not holds:
        raise RefusedError(f"{rule}, got {value} ({where})")
