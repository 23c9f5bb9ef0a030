"""The life of a model version: registered, champion, rolled back. What `Registry` does, without MLflow.

    register   a bundle becomes a version (serving/registration.py)
    promote    a challenger, by a person's word         rollback   to the champion before
    retire     a version, for good: also where its bundle is lost
    stop_acting, resume_acting   all controllers of a workload, by a person's word
    reviews    what a reviewer decided in the store (serving/reviews.py)
    registry_audit   the store against the ledger (serving/registry_audit.py)
    keys       of the project, rotated and revoked (serving/project_keys.py)
    open_champion, download_bundle                      what controllers and `assay` read

The store (MLflow) holds copies and pointers; what counts is elsewhere: which version is champion says
the signed ledger (serving/promotion.py), what a version contains says its signed bundle, whose digest
is in the ledger. An alias, tag or artifact that someone changed in the store changes no decision; a version
that someone deleted there is read from a copy, found by that digest (serving/version_bundles.py).
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from feature_store.errors import AssayError, RefusedError
from models.configuration import Configuration
from serving.admission import present_failures
from serving.bundle import Bundle, CheckedBundle, ProofChecker, write_folder
from serving.contract import Contract
from serving.ledger import Ledger
from serving.ledger_entry import Entry
from serving.moves import Action, Move, Standing
from serving.outcomes import Promotion, Registration, Retirement
from serving.project_keys import ProjectKeys
from serving.promotion import Aliases, Drift, Promotions
from serving.registration import Registrar
from serving.registry_audit import RegistryAudit
from serving.reviews import Reviews
from serving.specification_change import GATE, weaker_in
from serving.store import Store
from serving.version_bundles import VersionBundles


class Lifecycle:
    """Ledger, keys and a store. Construct `serving.registry.Registry`, which brings MLflow as the store."""

    def __init__(
        self,
        configuration: Configuration,
        store: Store,
        actor: str,
        clock: Callable[[], datetime],
        checker: ProofChecker | None = None,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._actor = actor
        self._clock = clock
        self._aliases = Aliases(configuration.champion_alias, configuration.challenger_alias)
        self._ledger = Ledger(
            configuration.ledger_path, configuration.public_key_path, configuration.private_key_path
        )
        self._promotions = Promotions(self._ledger, store, configuration.model_name, self._aliases)
        self._bundles = VersionBundles(configuration, store)
        self._registrar = Registrar(
            configuration, store, self._promotions, self._aliases, self._bundles, self._new_move, checker
        )
        self.registry_audit = RegistryAudit(configuration, store, self._promotions, self._aliases, self._bundles)
        self.reviews = Reviews(configuration, store, self._promotions, self._bundles, self)
        self.keys = ProjectKeys(configuration, store, self._ledger, actor, clock, checker)

    @property
    def actor(self) -> str:
        """Who is written beside every move."""
        return self._actor

    def on_behalf_of(self, actor: str) -> Self:
        """The same, with another name beside the moves of a person."""
        other = copy.copy(self)
        other._actor = actor
        return other

    def history(self, task: str | None = None, workload: str | None = None) -> tuple[Entry, ...]:
        """Verified ledger entries, oldest first.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off.
        """
        return self._promotions.history(task, workload)

    def champion(self, task: str, workload: str) -> int | None:
        """The champion's version as the ledger says, None where there is none. Raises RefusedError as `history`."""
        return self._promotions.read(task, workload).champion

    def open_champion(self, task: str, workload: str, least_head: str | None = None) -> CheckedBundle:
        """The champion's checked bundle.

        Args:
            least_head: "<sequence>:<hash>" of an entry that the ledger must hold: an older ledger is refused.

        Raises:
            RefusedError: there is no champion, its bundle does not check, or the ledger's end was cut off.
        """
        return self.open(task, workload, None, least_head)

    def open(self, task: str, workload: str, version: int | None, least_head: str | None = None) -> CheckedBundle:
        """The checked bundle of a version that passed its gates, None: of the champion. See `open_champion`."""
        standing = self._promotions.read(task, workload, least_head)
        chosen = standing.champion if version is None else version
        if chosen is None:
            raise RefusedError(
                f"workload must have a champion, got none for {task}, {workload} ({self._ledger.path}); "
                "run the train pipeline, or promote a challenger"
            )
        return self._bundles.open(task, workload, standing, chosen)

    def download_bundle(
        self, task: str, workload: str, destination: Path, version: int | None = None, least_head: str | None = None
    ) -> CheckedBundle:
        """Writes a version's checked bundle to a new folder. `version` None: the champion.

        Raises:
            RefusedError: the version is not one that passed its gates, its bundle does not check, or the ledger's
                end was cut off.
            InputError: the destination is there already.
        """
        bundle = self.open(task, workload, version, least_head)
        write_folder(bundle, destination)
        return bundle

    def is_known(self, contract: Contract | Mapping[str, Any]) -> bool:
        """Whether a version was registered or rejected before with this data, code and seed.

        Asked by a scheduled run, which registers nothing where nothing is new. It reads tags, which anyone
        can change in the store: good enough to save work, and to decide nothing else.

        Args:
            contract: the bundle's contract, or the content of its contract.json.
        """
        data = contract.to_json() if isinstance(contract, Contract) else contract
        known = self._promotions.read(data["task"], data["workload"]).known
        wanted = {key: str(data[key]) for key in ("data_version", "code_version", "seed")}
        tags = self._store.tags(self._configuration.model_name(data["task"], data["workload"]))
        return any(version in known and wanted.items() <= of_version.items() for version, of_version in tags.items())

    def register(
        self,
        folder: Path,
        *,
        champion: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        data_path: Path | None = None,
        command: str = "",
    ) -> Registration:
        """Registers a bundle as a new model version; signs it where, and only where, every gate holds.

        A bundle that passed and whose model, encoder and specification are those of a registered version, byte for
        byte, is not registered again. The model of a retired version stays challenger until a person promotes it.

        Args:
            folder: the bundle as the gate step left it. Gets its model.sig, and `champion` in its evidence.
            champion: the champion that the gates measured, {"version", "metrics", "cases"}
                (components/gate.py); None where there was no champion.
            run_id: run that the version belongs to; None: a run of its own.
            data_path: the data it was trained on, for the lineage.
            command: command line that reproduces it.

        Raises:
            RefusedError: gates.json says more than the evidence bears, the bundle contradicts itself, or
                the ledger does not verify. Nothing is registered.
            AssayError: the store or the disk failed. Nothing is registered; leftovers are cleaned up, at
                once or by the next registration.
        """
        return self._registrar.register(folder, champion=champion, run_id=run_id, data_path=data_path, command=command)

    def promote(
        self, task: str, workload: str, version: int | None = None, reason: str = "", override_gates: bool = False
    ) -> Promotion:
        """Makes a version champion by a person's word. `version` None: the challenger.

        The gates of mlflow.yaml, as it is now, are evaluated on its evidence again. In what its specification is weaker
        than the champion's is said and written into the ledger.

        Args:
            override_gates: promote although a gate does not hold any more; written into the ledger.

        Raises:
            RefusedError: there is no challenger, or the version is champion already, was rejected, is unknown to the
                ledger, its bundle does not check, or a gate does not hold.
        """
        with self._promotions.standing(task, workload) as (standing, drifts):
            chosen = standing.challenger if version is None else version
            if chosen is None:
                raise RefusedError(
                    f"workload must have a challenger to promote, got none ({task}, {workload})"
                )
            if chosen == standing.champion:
                raise RefusedError(f"version must not be champion already, got {chosen} ({task}, {workload})")
            bundle = self._bundles.open(task, workload, standing, chosen)
            failed = present_failures(bundle, self._configuration)
            if failed and not override_gates:
                raise RefusedError(
                    f"version must pass the gates of mlflow.yaml as they are now, got {'; '.join(failed)} ({task}, "
                    f"{workload}, version {chosen}); --override-gates promotes it all the same and is written into "
                    "the ledger"
                )
            notes = (*self._weaker(bundle, standing), *(f"gate overridden: {line}" for line in failed))
            made = self._move(
                "approve", task, workload, standing, chosen, "; ".join(filter(None, (reason, *notes))), drifts
            )
            return replace(made, notes=notes)

    def rollback(self, task: str, workload: str, reason: str = "", expected: int | None = None) -> Promotion:
        """Makes the champion before the present one champion again.

        Args:
            expected: version that must be the champion still, for whoever decided some time ago; None: whichever is.

        Raises:
            RefusedError: there is no champion before, its bundle does not check, or another one than `expected` is
                champion. Nothing is moved.
        """
        with self._promotions.standing(task, workload) as (standing, drifts):
            if expected is not None and standing.champion != expected:
                now = "none" if standing.champion is None else f"version {standing.champion}"
                raise RefusedError(
                    f"rollback: expected version {expected} to be the champion still, got {now} ({task}, {workload}); "
                    "nothing was moved, look at the present champion first"
                )
            version = standing.previous_champion
            if version is None:
                raise RefusedError(
                    "rollback: expected a champion before the present one, got "
                    f"{standing.champion} as its first ({task}, {workload})"
                )
            return self._move("rollback", task, workload, standing, version, reason, drifts)

    def retire(self, task: str, workload: str, version: int, reason: str = "") -> Retirement:
        """Takes a version out for good, by a person's word; of the champion, the one before it becomes champion.

        Opens no bundle: it is the way out where one is lost or no longer checks.

        Raises:
            RefusedError: the version is not one that passed its gates, or was retired before.
        """
        with self._promotions.standing(task, workload) as (standing, drifts):
            sha256 = self._bundles.registered_sha256(task, workload, standing, version)
            move = self._new_move(task, workload, standing, version, sha256, reason)("retire")
            drifts += self._promotions.record([move])
            champion = self._ledger.champion_of(task, workload)
        return Retirement(move.model, version, champion, standing.champion == version, drifts)

    def stop_acting(self, task: str, workload: str, reason: str = "") -> Entry:
        """Lets no controller of the workload act, policy or fallback, within a look of theirs at the ledger.

        Opens no bundle. It stands until `resume_acting`, whatever becomes champion meanwhile.

        Raises:
            RefusedError: acting is stopped already.
        """
        return self._switch("stop_acting", task, workload, reason)

    def resume_acting(self, task: str, workload: str, reason: str = "") -> Entry:
        """Takes a `stop_acting` back. Raises RefusedError: there is none."""
        return self._switch("resume_acting", task, workload, reason)

    def reconcile(self) -> tuple[Drift, ...]:
        """Sets every alias to what the ledger says, cleans up after killed processes; says what was off.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off.
        """
        self.clean_up()
        return self._promotions.reconcile()

    def clean_up(self) -> None:
        """Removes what registrations that died half-way have left in the store."""
        self._registrar.clean_up()

    def _switch(
        self, action: Literal["stop_acting", "resume_acting"], task: str, workload: str, reason: str
    ) -> Entry:
        with self._promotions.standing(task, workload) as (standing, _):
            sha256 = "" if standing.champion is None else standing.registered[standing.champion]
            self._promotions.record(
                [self._new_move(task, workload, standing, standing.champion or 0, sha256, reason)(action)]
            )
            return self._ledger.history(task, workload)[-1]

    def _weaker(self, bundle: Bundle, standing: Standing) -> tuple[str, ...]:
        """A line for everything in which a version promises less than the champion."""
        if standing.champion is None:
            return ()
        task, workload = bundle.contract.task, bundle.contract.workload
        try:
            champion = self._bundles.open(task, workload, standing, standing.champion)
        except AssayError as error:
            return (f"{GATE} could not be decided: champion version {standing.champion}: {error}",)
        weaknesses = weaker_in(bundle.promise, champion.promise)
        return tuple(f"weaker than version {standing.champion}: {line}" for line in weaknesses)

    def _move(
        self,
        action: Literal["approve", "rollback"],
        task: str,
        workload: str,
        standing: Standing,
        version: int,
        reason: str,
        drifts: tuple[Drift, ...],
    ) -> Promotion:
        """Moves the champion to a version whose bundle checks. The ledger is held."""
        bundle = self._bundles.open(task, workload, standing, version)
        move = self._new_move(task, workload, standing, version, bundle.sha256, reason)(action)
        lost = self._promotions.record([move])
        return Promotion(move.model, version, standing.champion, tuple(dict.fromkeys((*drifts, *lost))))

    def _new_move(
        self, task: str, workload: str, standing: Standing, version: int, sha256: str, reason: str
    ) -> Callable[[Action], Move]:
        at = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        model = self._configuration.model_name(task, workload)

        def move(action: Action) -> Move:
            return Move(
                action, at, task, workload, model, version, standing.champion, sha256,
                gates_passed=action != "reject", reason=reason, actor=self._actor,
            )  # fmt: skip

        return move
