"""Finds the bundle of a registered version and checks that it is the one in the ledger.

    the registry's version  ->  artifacts that a deleted version left in the store  ->  the copy in the state folder

The next place is asked where the one before has nothing to give; where it gives something else than was registered,
that is refused and not passed over. Whatever is refused here has a way out, which the message names. Where a place does
not answer and no other has the bundle, it is not known to be lost: that is no refusal, but an UnavailableError.
"""

import contextlib

from feature_store.errors import AssayError, InputError, RefusedError, UnavailableError
from models.configuration import Configuration
from serving.bundle import Bundle, CheckedBundle, check_bundle, open_bundle
from serving.kept_bundles import kept_bundle
from serving.moves import Standing
from serving.store import Store


class VersionBundles:
    """The bundles of all versions of all workloads."""

    def __init__(self, configuration: Configuration, store: Store) -> None:
        self._configuration = configuration
        self._store = store

    def open(self, task: str, workload: str, standing: Standing, version: int) -> CheckedBundle:
        """A version's bundle, checked: signature, content, and that it is the one in the ledger.

        Raises:
            RefusedError: the version did not pass its gates or was retired, or its bundle is lost or another one.
            UnavailableError: the store does not answer, and there is no copy.
        """
        sha256 = self.registered_sha256(task, workload, standing, version)
        try:
            return self.open_digest(task, workload, version, sha256)
        except (RefusedError, InputError) as error:
            raise RefusedError(
                f"{error}; put the bundle back from a backup, or take the version out with `assay retire --task {task} "
                f"--workload {workload} --version {version}`"
            ) from error

    def registered_sha256(self, task: str, workload: str, standing: Standing, version: int) -> str:
        """The digest under which a version was registered. Raises RefusedError: it is none that may be served."""
        if version not in standing.registered:
            known = "it was rejected" if version in standing.rejected else "the ledger does not know it"
            known = "it was retired" if version in standing.retired else known
            model = self._configuration.model_name(task, workload)
            raise RefusedError(f"version must have passed its gates, got {version} of {model}; {known}")
        return standing.registered[version]

    def open_digest(self, task: str, workload: str, version: int, sha256: str) -> CheckedBundle:
        """The checked bundle that a version, retired or not, was registered with. Raises AssayError: there is none."""
        bundle = self._checked_bundle(task, workload, version, sha256)
        self._require_registered(bundle, task, workload, version, sha256)
        return bundle

    def examine(self, task: str, workload: str, version: int, sha256: str, is_signed: bool) -> tuple[Bundle, bytes]:
        """What lies at a version's own place in the registry, copies left aside.

        Args:
            is_signed: False of a version whose gates did not hold.

        Returns:
            The bundle that it was registered with, and the registry's own copy of its ONNX file.

        Raises:
            AssayError: it is gone, does not check, or is another one.
        """
        location = self._store.location(self._configuration.model_name(task, workload), version)
        with self._store.fetched(location) as folder:
            opened = check_bundle(folder, self._configuration.public_key_path) if is_signed else open_bundle(folder)
        self._require_registered(opened, task, workload, version, sha256)
        return opened, self._store.served_model(location)

    def examine_kept(self, task: str, workload: str, version: int, sha256: str) -> None:
        """Raises AssayError where a version's copy in the state folder is there and is not what was registered."""
        kept = kept_bundle(self._configuration.home, task, workload, version)
        if kept.is_dir():
            bundle = check_bundle(kept, self._configuration.public_key_path)
            self._require_registered(bundle, task, workload, version, sha256)

    def _require_registered(self, bundle: Bundle, task: str, workload: str, version: int, sha256: str) -> None:
        model = self._configuration.model_name(task, workload)
        if bundle.sha256 != sha256:
            raise RefusedError(
                f"bundle of {model} version {version} must be {sha256} as the ledger says, got {bundle.sha256}; its "
                f"artifacts were exchanged ({bundle.folder})"
            )
        if (bundle.contract.task, bundle.contract.workload) != (task, workload):
            actual = f"{bundle.contract.task}, {bundle.contract.workload}"
            raise RefusedError(f"bundle of {model} must be for {task}, {workload}, got one for {actual}")

    def _checked_bundle(self, task: str, workload: str, version: int, sha256: str) -> CheckedBundle:
        key, model = self._configuration.public_key_path, self._configuration.model_name(task, workload)
        try:
            with self._store.fetched(self._store.location(model, version)) as folder:
                return check_bundle(folder, key)
        except RefusedError:
            raise
        except AssayError as error:
            gone = error
        for location in self._store.copies(sha256):
            with contextlib.suppress(AssayError), self._store.fetched(location) as folder:
                bundle = check_bundle(folder, key)
                if bundle.sha256 == sha256:
                    return bundle
        kept = kept_bundle(self._configuration.home, task, workload, version)
        if kept.is_dir():
            return check_bundle(kept, key)
        if isinstance(gone, UnavailableError):
            raise gone  # it may be whole
        raise RefusedError(
            f"bundle of {model} version {version} must be in the registry or kept in {kept}, got neither ({gone})"
        ) from gone
