"""How a bundle becomes a model version: what `Registry.register` does.

    bundle folder -> sign (only where every gate holds) -> upload -> download and check -> model version -> ledger ->
    aliases

A ticket (serving/unfinished.py) remembers a registration until it is done: whatever a killed one has left in the store
is removed by the next.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from feature_store.errors import AssayError, UnavailableError
from models.configuration import Configuration
from serving.admission import let_through, require_evidence
from serving.bundle import Bundle, ProofChecker, check_bundle, open_bundle
from serving.card import gate_table, version_tags
from serving.moves import Action, Move, Standing
from serving.outcomes import Registration
from serving.promotion import Aliases, Promotions, RecordedError, Role
from serving.repeated_model import RepeatedModels
from serving.store import Store, Upload
from serving.succession import decide
from serving.unfinished import settle, ticket
from serving.version_bundles import VersionBundles

# (task, workload, standing, version, bundle_sha256, reason) -> the move of that version for each action
NewMove = Callable[[str, str, Standing, int, str, str], Callable[[Action], Move]]


class Registrar:
    """Registers bundles in a store, with the ledger of `promotions` beside it."""

    def __init__(
        self, configuration: Configuration, store: Store, promotions: Promotions, aliases: Aliases,
        bundles: VersionBundles, new_move: NewMove, checker: ProofChecker | None,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._promotions = promotions
        self._aliases = aliases
        self._bundles = bundles
        self._new_move = new_move
        self._checker = checker
        self._repeated = RepeatedModels(store, bundles)
        ledger = configuration.ledger_path
        # of this machine's processes, wherever the ledger is
        self._unfinished = (ledger.parent if isinstance(ledger, Path) else configuration.home / "ledger") / "unfinished"

    def register(
        self,
        folder: Path,
        *,
        champion: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        data_path: Path | None = None,
        command: str = "",
    ) -> Registration:
        """See `serving.lifecycle.Lifecycle.register`."""
        try:
            self.clean_up()
            if (unchanged := self._unchanged(Path(folder), champion)) is not None:
                return unchanged
            bundle = let_through(Path(folder), self._configuration, champion, self._checker)
            task, workload = bundle.contract.task, bundle.contract.workload
            model = self._configuration.model_name(task, workload)
            about = {"model": model, "task": task, "workload": workload}
            with ticket(self._unfinished, about) as name:
                upload = self._store.upload(bundle, run_id, name, data_path)
                self._check_upload(bundle, upload)
                return self._admit(bundle, champion, upload, name, command)
        except BaseException as error:
            # Best effort: on a full disk this fails as well, and the next registration finds the ticket. A service that
            # is away would be waited for once more.
            if not isinstance(error, UnavailableError):
                with contextlib.suppress(AssayError, OSError):
                    self.clean_up()
            if isinstance(error, OSError):
                raise AssayError(
                    f"registration must be written in full, got {error} ({folder}); nothing is registered, "
                    "make room and repeat"
                ) from error
            raise

    def clean_up(self) -> None:
        """Removes what registrations that died half-way have left in the store."""

        def discard(name: str, about: Mapping[str, str]) -> None:
            pair = (about["task"], about["workload"])
            with self._promotions.ledger.locked():
                self._promotions.read(*pair)  # refuses a ledger that was cut
                made = [entry.move for entry in self._promotions.ledger.history(*pair)
                        if entry.move.action in ("register", "reject")]
                self._store.discard(name, about["model"], {move.version: move.bundle_sha256 for move in made})

        settle(self._unfinished, discard)

    def _check_upload(self, bundle: Bundle, upload: Upload) -> None:
        """Reads everything back: a store can take a file and keep half of it."""
        with self._store.fetched(upload.location) as folder:
            if open_bundle(folder).files != bundle.files:
                raise AssayError(
                    f"stored bundle: expected the uploaded content, got other content ({upload.location})"
                )
            if bundle.gates.passed:
                check_bundle(folder, self._configuration.public_key_path)

    def _admit(
        self, bundle: Bundle, champion: Mapping[str, Any] | None, upload: Upload, name: str, command: str
    ) -> Registration:
        """Makes the model version, the ledger entries and the aliases, with the ledger held."""
        task, workload, passed = bundle.contract.task, bundle.contract.workload, bundle.gates.passed
        with self._promotions.standing(task, workload) as (standing, drifts):
            actions, reason = self._decide(bundle, standing, champion)
            version = self._store.create_version(
                self._configuration.model_name(task, workload),
                upload,
                version_tags(bundle, passed, reason, command, name),
                gate_table(bundle),
                above=standing.last_version,
            )
            move = self._new_move(task, workload, standing, version, bundle.sha256, reason)
            # in this order: what was repaired before, then what cannot be
            try:
                drifts += self._promotions.record([move(action) for action in actions])
            except RecordedError as error:  # the version is registered; what could not follow is said
                drifts += error.drifts
                reason += "" if error.drifts else f"; note: {error}"
            drifts = tuple(dict.fromkeys(drifts))
        role: Role | None = (
            "champion" if "champion" in actions else "challenger" if "challenger" in actions else None
        )
        return Registration(
            move(actions[-1]).model, version, upload.run_id, passed, self._aliases.of(role), reason, bundle.sha256,
            drifts, role=role,
        )  # fmt: skip

    def _decide(
        self, bundle: Bundle, standing: Standing, champion: Mapping[str, Any] | None
    ) -> tuple[list[Action], str]:
        if not bundle.gates.passed:
            failed = [gate.name for gate in bundle.gates.gates if not gate.passed]
            return ["reject"], f"gates failed: {', '.join(failed)}"

        def opened(version: int) -> Bundle:
            return self._bundles.open(bundle.contract.task, bundle.contract.workload, standing, version)

        decision = decide(bundle, standing.champion, champion, opened, self._configuration.promotion,
                          standing.attempts + 1)
        if decision.wins and (taken_out := self._taken_out(bundle)) is not None:
            version, how = taken_out
            what = f"model.onnx computes what that of version {version} did, which was {how}"
            return ["register", "challenger"], f"{decision.reason}; {what}; waits for assay promote"
        if decision.wins and self._configuration.approval == "auto":
            return ["register", "challenger", "champion"], decision.reason
        waits = "; waits for assay promote" if decision.wins else ""
        return ["register", "challenger"], decision.reason + waits

    def _unchanged(self, folder: Path, champion: Mapping[str, Any] | None) -> Registration | None:
        """The registered version that a bundle which passed is again. Raises RefusedError: its gates do not hold."""
        bundle = open_bundle(folder)
        if not bundle.gates.passed:
            return None
        require_evidence(bundle, self._configuration, champion)
        task, workload = bundle.contract.task, bundle.contract.workload
        model, standing = self._configuration.model_name(task, workload), self._promotions.read(task, workload)
        repeated = self._repeated.registered(bundle, model, standing)
        if repeated is None:
            return None
        version, other = repeated
        roles: dict[int | None, Role] = {standing.challenger: "challenger", standing.champion: "champion"}
        role = roles.get(version)
        alias = self._aliases.of(role)
        known = f"version {version}, the {alias}" if alias else f"version {version}"
        what = f"unchanged: model.onnx ({other.contract.model.sha256[:12]}) is that of {known}, byte for byte"
        reason = f"{what}; nothing is registered"
        return Registration(model, version, "", True, alias, reason, other.sha256, is_new=False, role=role)

    def _taken_out(self, bundle: Bundle) -> tuple[int, str] | None:
        """The version that a person took out and whose model the bundle brings back, and how; None: it brings none."""
        task, workload = bundle.contract.task, bundle.contract.workload
        digests: dict[int, str] = {}
        out: dict[int, str] = {}
        for move in (entry.move for entry in self._promotions.ledger.history(task, workload)):
            digests.setdefault(move.version, move.bundle_sha256)
            if move.action == "retire":
                out[move.version] = "retired"
            elif move.action == "rollback" and move.previous_version is not None:
                out[move.previous_version] = "rolled back"
            elif move.action == "approve":
                out.pop(move.version, None)
        model = self._configuration.model_name(task, workload)
        version = self._repeated.taken_out(bundle, model, {one: digests[one] for one in out}) if out else None
        return None if version is None else (version, out[version])
