"""The last good champions in the service's own folder: what it starts with while ledger or bundles are away.

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

from feature_store.errors import RefusedError
from feature_store.whole_files import whole_folder, write_file
from serving.bundle import CheckedBundle
from serving.kept_bundles import kept_bundle
from serving.ledger import Ledger
from serving.ledger_chain import Chain, Pair
from serving.moves import Standing
from serving.state_folder import StateFolder


class LastGood:
    """Keeps champions, and the ledger that names them.

    Attributes:
        state: the folder, as whoever opens a bundle needs it.
    """

    def __init__(self, folder: Path, public_key: Path, tell: Callable[[str], None]) -> None:
        """Args:
            folder: of one service alone.
            public_key: of the signer; where the state folder may be away, outside of it.
            tell: called with a line where something cannot be kept.
        """
        self._path, self._tell, self._head, self._unkept = folder / "ledger", tell, "", ""
        self.state = StateFolder(folder, self._path, public_key)

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
            if kept_bundle(self.state.home, *pair, version).is_dir():
                return version
        raise RefusedError(f"last good version must be kept, and not be retired or rolled back, got none for "
                           f"{', '.join(pair)} ({self.state.home})")

    def keep_bundle(self, pair: Pair, version: int, bundle: CheckedBundle) -> None:
        """Keeps what is about to be served."""
        kept = kept_bundle(self.state.home, *pair, version)
        try:
            with whole_folder(kept) as new:
                for name, content in bundle.files.items():
                    (new / name).write_bytes(content)
        except OSError as error:
            self._tell(f"version {version} of {', '.join(pair)} cannot be kept: {error.strerror} ({kept})")

    def keep_ledger(self, chain: Chain, served: Mapping[Pair, str]) -> None:
        """Keeps the ledger as it was just seen, and no other versions of `served` than these ("": none)."""
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
        for pair, version in served.items():
            with suppress(OSError):
                for other in kept_bundle(self.state.home, *pair, 0).parent.iterdir():
                    if other.name != version:
                        shutil.rmtree(other, ignore_errors=True)
        if unkept and unkept != self._unkept:
            self._tell(unkept)
        self._unkept = unkept
