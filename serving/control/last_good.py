"""The last good champion in a controller's own folder: what it starts with while the state folder is away.

    <controller's folder>/champion/bundle/       its files, as they were checked
    <controller's folder>/champion/refused/      those of one that was refused, for the sake of its fallback alone
    <controller's folder>/champion/known.json    its digest, when it was last known to be champion, why it was refused

It is kept while the ledger names it, and checked at its load as any other. A refusal (retired, revoked, does not check,
or the ledger names another one, whose bundle cannot be had) is written down first, then the copy is put aside: what was
refused does not come back while nobody can be asked, but its fallback acts, so that a restart leaves no service alone
with the limits of a controller that is gone.

Nothing here is signed but the bundle: whoever may write a controller's folder may do anything to the controller.
"""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from feature_store.errors import AssayError, InputError, RefusedError
from feature_store.finite_numbers import is_finite_number
from feature_store.whole_files import whole_folder, write_file
from serving.bundle import CheckedBundle, check_bundle
from serving.control.champion import BundleAwayError
from serving.signature import SIGNATURE_FILE

_KEYS = {"sha256", "known_at", "refused"}


class LastGood:
    """Opens what `opened` opens; at the first time also the copy of the last good one."""

    def __init__(self, opened: Callable[[], CheckedBundle], folder: Path, public_key: Path,
                 now: Callable[[], float] = time.time) -> None:
        """Args:
            opened: the champion's checked bundle; RefusedError: there is none that may act; BundleAwayError: the one
                that it names may. Any other error: nobody can be asked.
            folder: of this controller's champion alone.
            public_key: of the signer, outside of what may be away.
            now: Unix time.
        """
        self._opened, self._key, self._now = opened, public_key, now
        self._bundle, self._aside, self._known = folder / "bundle", folder / "refused", folder / "known.json"
        self._kept_sha256 = ""
        self._started, self._acting, self.age_s, self.unkept = False, "", 0.0, ""

    def __call__(self) -> CheckedBundle:
        """The champion.

        Raises:
            RefusedError: there is none that may act, or it was refused when the ledger was last asked.
            Exception: nobody can be asked, and there is no copy, or it is not the first time: then whoever asks goes on
                with what there is.
        """
        try:
            bundle = self._opened()
        except RefusedError as error:
            raise self._refused(error) from error
        except BundleAwayError as error:
            if self._is_another(error.sha256):
                raise self._refused(error) from error
            return self._away(error)
        except Exception as error:  # whatever a file system or a registry's client raises
            return self._away(error)
        self._started, self.age_s = True, 0.0
        self._keep(bundle)
        self._acting = bundle.sha256
        return bundle

    def before(self) -> CheckedBundle | None:
        """The last good one, refused or not, for its fallback alone; None: there is none that checks."""
        for folder in (self._bundle, self._aside):
            with suppress(AssayError, OSError):
                if folder.is_dir():
                    return check_bundle(folder, self._key)
        return None

    def _refused(self, error: AssayError) -> RefusedError:
        self._started, self._acting = True, ""
        self._refuse(str(error))
        left = f"; its copy cannot be removed ({self._bundle})" if self._bundle.exists() else ""  # it could come back
        return RefusedError(f"{error}{left}")

    def _is_another(self, sha256: str) -> bool:
        """Whether somebody else than the ledger's champion acts, or would act at a start."""
        if self._started:
            return sha256 != self._acting
        known = self._read()
        return known is not None and not known["refused"] and sha256 != known["sha256"]

    def _away(self, error: Exception) -> CheckedBundle:
        if self._started:
            raise error
        bundle = self._last_good(error)
        self._started, self._acting = True, bundle.sha256
        return bundle

    def _last_good(self, away: Exception) -> CheckedBundle:
        known = self._read()
        if known is not None and known["refused"]:
            raise RefusedError(f"{known['refused']}; since then: {away}") from away
        if known is None or not self._bundle.is_dir():
            raise away
        bundle = check_bundle(self._bundle, self._key)
        if bundle.sha256 != known["sha256"]:
            raise RefusedError(f"last good champion must be {known['sha256']}, got {bundle.sha256} ({self._bundle})")
        self._kept_sha256, self.age_s = bundle.sha256, max(0.0, self._now() - known["known_at"])
        return bundle

    def _keep(self, bundle: CheckedBundle) -> None:
        """Keeps it; where that fails an older one is put aside, and `unkept` says why."""
        try:
            if self._kept_sha256 != bundle.sha256 or not self._has_signature(bundle):
                self._made()
                with whole_folder(self._bundle) as new:
                    for name, content in bundle.files.items():
                        (new / name).write_bytes(content)
            self._write(bundle.sha256, "")
            self._kept_sha256, self.unkept = bundle.sha256, ""
            shutil.rmtree(self._aside, ignore_errors=True)
        except OSError as error:
            self.unkept = f"last good champion cannot be kept: {error.strerror} ({self._bundle})"
            if self._kept_sha256 != bundle.sha256:
                self._put_aside()

    def _has_signature(self, bundle: CheckedBundle) -> bool:
        """Whether the copy is there as it was signed last: the same bundle may have been signed again."""
        with suppress(FileNotFoundError):
            return (self._bundle / SIGNATURE_FILE).read_bytes() == bundle.files[SIGNATURE_FILE]
        return False

    def _refuse(self, reason: str) -> None:
        try:
            self._write(self._kept_sha256, reason)
        except OSError as error:  # a full disk: what is gone is refused too
            self.unkept = f"refusal cannot be written down: {error.strerror} ({self._known})"
        self._put_aside()
        self._kept_sha256 = ""

    def _put_aside(self) -> None:
        """So that it acts no more, also where nothing can be written: a full disk can still rename."""
        if not self._bundle.exists():
            return
        shutil.rmtree(self._aside, ignore_errors=True)
        try:
            self._bundle.rename(self._aside)
        except OSError:
            shutil.rmtree(self._bundle, ignore_errors=True)

    def _made(self) -> None:
        """Its own folder, in the controller's: that one, where it went away, is not made anew without its stops."""
        self._known.parent.mkdir(exist_ok=True)

    def _write(self, sha256: str, refused: str) -> None:
        self._made()
        write_file(self._known, json.dumps({"sha256": sha256, "known_at": self._now(), "refused": refused}))

    def _read(self) -> dict[str, Any] | None:
        try:
            data = json.loads(self._known.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise self._unusable(str(error)) from error
        usable = isinstance(data, dict) and set(data) == _KEYS and is_finite_number(data["known_at"]) and all(
            isinstance(data[key], str) for key in ("sha256", "refused"))
        if not usable:
            raise self._unusable(f"{str(data)[:60]}...")
        found: dict[str, Any] = data
        return found

    def _unusable(self, got: str) -> InputError:
        return InputError(f"last good champion must be known by a file that a controller wrote, got {got} "
                          f"({self._known}); remove its folder")
