"""Which policy may decide: the champion of a ledger, followed while it acts, or the one bundle of a folder.

Between two steps a new champion takes the place of the old one, after all that a bundle is checked for. A champion that
was retired, rolled back to none, or does not check may not decide from then on, nor one that the ledger no longer
names, though its successor's bundle cannot be had. A ledger that cannot be reached changes nothing: the last good
policy goes on, and its age says for how long.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from feature_store.errors import AssayError, RefusedError
from models.configuration import Configuration
from serving.bundle import CheckedBundle, check_bundle
from serving.contract import Contract
from serving.control.parts import Model
from serving.control.seen_ledger import SeenLedger
from serving.kept_bundles import kept_bundle
from serving.moves import Standing
from serving.polling import poll_in_thread
from serving.seen_spec import SeenSpec
from serving.session import Predictor
from serving.state_folder import StateFolder

_NAME = 12  # characters of a digest


class BundleAwayError(AssayError):
    """The ledger can be read and names a champion, whose bundle cannot be had here.

    Attributes:
        sha256: digest of the bundle that the ledger names. Only whoever has this very one may go on with it.
    """

    def __init__(self, message: str, sha256: str) -> None:
        super().__init__(message)
        self.sha256 = sha256


class Champion:
    """Implements `Models`: follows what `opened` opens. Threads may share it."""

    def __init__(self, opened: Callable[[], CheckedBundle], clock: Callable[[], float] = time.monotonic,
                 age_s: Callable[[], float] = lambda: 0.0,
                 before: Callable[[], CheckedBundle | None] = lambda: None) -> None:
        """Opens it for the first time.

        Args:
            opened: the champion's checked bundle.
            clock: seconds, never going back.
            age_s: of what was opened: since it was last known to be the champion.
            before: the last good one, whose fallback acts where there is no champion now; None: there is none.

        Raises:
            AssayError: there is none that may act.
        """
        self._opened, self._clock, self._lock = opened, clock, threading.Lock()
        self._refused, self.unreachable = "", ""
        try:
            bundle = opened()
        except AssayError as error:
            if (last := before()) is None:
                raise
            bundle, self._refused = last, f"champion: {error}"
        self._contract, self._predictor, self._sha256 = bundle.contract, Predictor(bundle), bundle.sha256
        self._known_at = clock() - age_s()

    @property
    def contract(self) -> Contract:
        """Of the first champion; no other with other inputs or outputs takes its place."""
        return self._contract

    def current(self) -> Model:
        """See `Models`."""
        with self._lock:
            return Model(self._predictor, self._refused, self._sha256[:_NAME], self._clock() - self._known_at)

    def poll(self) -> None:
        """Looks once who is champion now."""
        try:
            bundle = self._opened()
            predictor = None if bundle.sha256 == self._sha256 else self._successor(bundle)
        except RefusedError as error:
            self._refuse(error)
            return
        except BundleAwayError as error:
            if error.sha256 != self._sha256:
                self._refuse(error)
                return
            self.unreachable = str(error)
            return
        except Exception as error:  # whatever a registry's client raises: the last good policy goes on
            self.unreachable = " ".join(f"{type(error).__name__}: {error}".split())
            return
        with self._lock:
            if predictor is not None:
                self._predictor, self._sha256 = predictor, bundle.sha256
            self._refused, self._known_at, self.unreachable = "", self._clock(), ""

    def follow(self, every_s: float, stopped: threading.Event) -> threading.Thread:
        """Polls in a thread of its own until `stopped`: a registry that hangs delays no step."""
        return poll_in_thread(self.poll, every_s, stopped, "champion")

    def _refuse(self, error: AssayError) -> None:
        with self._lock:
            self._refused, self._known_at, self.unreachable = f"champion: {error}", self._clock(), ""

    def _successor(self, bundle: CheckedBundle) -> Predictor:
        old, new = self._contract, bundle.contract
        if _fits(old) != _fits(new):
            raise RefusedError("champion must have the inputs, outputs, units, ranges and settings of the one before, "
                               f"got other ones ({new.task}, {new.workload}, bundle {bundle.sha256[:_NAME]}); start "
                               "the controller again")
        return Predictor(bundle)


def champion_of_ledger(state: Configuration | StateFolder, task: str, workload: str,
                       ledger: SeenLedger | None = None) -> CheckedBundle:
    """The champion's checked bundle, as the signed ledger names it, from the copy in the state folder.

    MLflow is asked, and imported (170 MB), only where that copy is not there, and only by who has an mlflow.yaml.

    Args:
        ledger: the state folder's, by who looks at it again and again; None: it is looked at for the first time.

    Raises:
        RefusedError: there is no champion, its bundle does not check, or the ledger was cut or is an older one.
        BundleAwayError: there is one, and neither a copy of its bundle nor an mlflow.yaml, or MLflow does not answer.
        AssayError: there is no ledger; where there was one, its folder is away.
    """
    ledger = ledger or SeenLedger(state)
    standing = ledger.standings().get((task, workload), Standing())
    version = standing.champion
    if version is None:
        raise RefusedError(f"workload must have a champion, got none for {task}, {workload} ({ledger.path})")
    sha256 = standing.registered[version]
    try:
        return open_version(state, task, workload, version, sha256)
    except RefusedError:
        raise
    except Exception as error:  # whatever a file system or MLflow's client raises: what the ledger says is known
        raise BundleAwayError(str(error), sha256) from error


def open_version(state: Configuration | StateFolder, task: str, workload: str, version: int,
                 sha256: str) -> CheckedBundle:
    """A version's checked bundle, as `champion_of_ledger`. sha256: its digest in the ledger.

    Raises:
        RefusedError: it does not check, or is another one.
        AssayError: it cannot be had.
    """
    kept = kept_bundle(state.home, task, workload, version)
    if kept.is_dir():
        bundle = check_bundle(kept, state.public_key_path)
    elif isinstance(state, StateFolder):
        raise AssayError(f"bundle of version {version} must be in the state folder, got none ({kept}); copy it there")
    else:
        from serving.registry import Registry

        try:
            bundle = Registry(state).open(task, workload, version)
        except AssayError as error:  # what cannot be had there may still be kept by whoever asks: it is not refused
            raise AssayError(f"bundle of version {version} must be in the state folder or in MLflow, got none "
                             f"({kept}), and of MLflow: {error}") from error
    if bundle.sha256 != sha256:
        raise RefusedError(f"bundle of version {version} must be {sha256} as the ledger says, got {bundle.sha256} "
                           f"({bundle.folder})")
    return bundle


def _fits(contract: Contract) -> tuple[Any, ...]:
    """What a controller was made of, so that another champion has to have it too; what training saw may differ."""
    columns = [(item.name, item.unit, item.physical_minimum, item.physical_maximum) for item in contract.inputs]
    columns += [(item.name, item.unit, item.physical_minimum, item.physical_maximum) for item in contract.outputs]
    safe = None if contract.fallback is None else contract.fallback.safe_ranges
    driving = contract.driving and replace(contract.driving, seen=SeenSpec())
    return contract.task, contract.workload, driving, safe, columns
