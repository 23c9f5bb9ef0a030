"""The last good champions in the service's own folder: what it starts with while ledger or bundles are away.

    <folder>/kept-by-assay-serve                      marks it as the service's own: here alone it deletes
    <folder>/ledger, ledger.head                      the ledger as it was seen last, and its head
    <folder>/bundles/<task>/<workload>/<version>/     the bundle that is served, as it was checked

So the folder is a state folder, of one version a workload, and is read by the same code with the same checks. Who is
champion, retired or stopped is what the signed copy of the ledger says, and it must reach the head; a bundle must have
the digest that the ledger gives its version. An older bundle or ledger that is put back, or one that is edited, is
refused; a whole older folder, head and all, is not: whoever may write the folder may do that.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from feature_store.errors import InputError, RefusedError
from feature_store.whole_files import whole_folder, write_file
from models.configuration import Configuration
from serving.bundle import CheckedBundle
from serving.control.side_by_side import Within
from serving.control.start import WITHIN_S
from serving.kept_bundles import kept_bundle
from serving.ledger import Ledger
from serving.ledger_chain import Chain, Pair
from serving.moves import Standing
from serving.state_folder import StateFolder

_MARK = "kept-by-assay-serve"


class LastGood:
    """Keeps champions, and the ledger that names them.

    Attributes:
        state: the folder, as whoever opens a bundle needs it.
    """

    def __init__(self, folder: Path, state: Configuration | StateFolder, tell: Callable[[str], None]) -> None:
        """Args:
            folder: of one service alone; it is made where it is missing.
            state: what is followed; where it may be away, the public key lies outside of its folder.
            tell: called with a line where something cannot be kept.

        Raises:
            InputError: the folder is of the state, holds what this service has not put there, or cannot be written.
        """
        _own(folder, state)
        self._path, self._tell, self._head, self._unkept = folder / "ledger", tell, "", ""
        self._told: set[str] = set()
        self.state = StateFolder(folder, self._path, state.public_key_path)

    def standings(self) -> tuple[dict[Pair, Standing], float]:
        """Those of the copy, and seconds since the ledger was seen; none where there is no copy.

        Raises:
            RefusedError: the copy does not verify, or is older than its head.
            AssayError, OSError: it or the key cannot be read.
        """
        if not self._path.exists():
            return {}, 0.0
        standings = Ledger(self._path, self.state.public_key_path).standings()
        return standings, max(0.0, time.time() - self._path.stat().st_mtime)

    def version(self, pair: Pair, standing: Standing) -> int:
        """The version of the copy, which may be served.

        Raises:
            RefusedError: there is none, or it was retired or rolled back.
        """
        for version in reversed(standing.champions):
            if self.has(pair, version):
                return version
        raise RefusedError(f"last good version must be kept, and not be retired or rolled back, got none for "
                           f"{', '.join(pair)} ({self.state.home})")

    def has(self, pair: Pair, version: int) -> bool:
        """Whether there is a copy of it."""
        return kept_bundle(self.state.home, *pair, version).is_dir()

    def keep_bundle(self, pair: Pair, version: int, bundle: CheckedBundle) -> None:
        """Keeps what is about to be served, or is served and could not be kept; what stands in the way is told once."""
        kept = kept_bundle(self.state.home, *pair, version)
        try:
            with whole_folder(kept) as new:
                for name, content in bundle.files.items():
                    (new / name).write_bytes(content)
        except OSError as error:
            said = f"version {version} of {', '.join(pair)} cannot be kept: {error.strerror} ({kept})"
            if said not in self._told:
                self._tell(said)
            self._told.add(said)

    def keep_ledger(self, chain: Chain) -> None:
        """Keeps the ledger as it was just seen."""
        unkept = ""
        try:
            if chain.entries and (chain.entries[-1].head != self._head or not self._path.exists()):
                write_file(self._path, chain.data)
                self._head = chain.entries[-1].head
            elif chain.entries:
                os.utime(self._path)  # when it was seen
        except OSError as error:
            unkept = f"ledger cannot be kept: {error.strerror} ({self._path})"
            with suppress(OSError):  # an older one must not speak for it: it may lack a stop
                self._path.unlink()
        if unkept and unkept != self._unkept:
            self._tell(unkept)
        self._unkept = unkept

    def delete_others(self, standings: Mapping[Pair, Standing], served: Mapping[Pair, str]) -> None:
        """Deletes copies of versions that are served no more, or, once there is one of what is served, all others.

        Args:
            served: the version that is served now; "": none.
        """
        for pair, version in () if self._unkept else served.items():  # a ledger that is not kept allows no deletion
            copies, left = kept_bundle(self.state.home, *pair, 0).parent, {version}
            with suppress(OSError):
                if not version or not (copies / version).is_dir():
                    left = set(map(str, standings[pair].champions))
                for other in copies.iterdir():
                    if other.name not in left:
                        shutil.rmtree(other, ignore_errors=True)


def _own(folder: Path, state: Configuration | StateFolder) -> None:
    """Marks a folder at its first use; see `LastGood` for what it must be."""
    try:
        if (folder / _MARK).is_file():  # then nobody waits here for a state folder that hangs
            return
        Within(lambda: _require_apart(folder.resolve(), state), WITHIN_S, f"state folder {state.home}")()
        if foreign := [name for name in ("ledger", "bundles") if (folder / name).exists()]:
            raise InputError(f"--folder must be of this service alone, got one with {' and '.join(foreign)} that it "
                             f"has not put there ({folder}); name an empty folder")
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / _MARK, "assay serve keeps its last good champions here, and deletes older ones.\n")
    except OSError as error:
        raise InputError(f"--folder must be a folder that can be written, got {error.strerror} ({folder})") from error


def _require_apart(folder: Path, state: Configuration | StateFolder) -> None:
    """folder: without links. Raises InputError."""
    home = state.home.resolve()
    ledger = state.ledger_path.resolve() if isinstance(state.ledger_path, Path) else home
    if folder.is_relative_to(home) or home.is_relative_to(folder) or ledger.is_relative_to(folder):
        raise InputError(f"--folder must lie outside of the state folder and hold neither it nor the ledger, got "
                         f"{folder} (state folder {home}, ledger {state.ledger_path})")
