"""Changes of the project's signing keys, and their traces in the ledger: what `assay keys` does.

    rotate      assay.key.next -> entry rotate_key, signed with the old key -> assay.pub, the new key before the old
                -> assay.key.<old fingerprint> -> assay.key, in one rename
    revoke      entry revoke_key, signed with the current key -> assay.pub without the revoked one
    sign_again  model.sig of registered bundles that no accepted key has signed

Each is safe after a kill at any point: the same again finishes it. Only assay.pub says which keys are accepted
(serving/keys.py). The entries tell what was done; revoke_key also vouches, by the hash of the entry before it, for all
that stands below it (serving/ledger_chain.py). Not for bundles: whoever loads one that a revoked key signed refuses it
until it was signed again, and that is done to what has the digest of a registered version alone. Never to a version
that the revoked key registered after another had taken its place: revoke_key names such entries by number, for once the
key has left assay.pub nobody can tell which they were.

The ledger is held while keys change, so that nothing is appended with a key that is about to go.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from feature_store.errors import AssayError, InputError, RefusedError
from feature_store.whole_files import sync_folder, write_file
from models.configuration import Configuration
from serving.admission import sign_again
from serving.bundle import ProofChecker
from serving.kept_bundles import kept_bundle
from serving.keys import (
    create_private_key,
    fingerprint,
    load_private_key,
    load_public_keys,
    public_pem,
    write_public_keys,
)
from serving.ledger import Ledger
from serving.ledger_entry import Entry, signer_of
from serving.ledger_heads import registry_heads
from serving.moves import Action, Move
from serving.signature import SIGNATURE_FILE, read_folder, verify_files
from serving.store import Store

SHOWN_DIGITS = 12  # of a fingerprint, in names of files and in sentences
_LATE = "; signed with it after it was replaced: "  # in the reason of revoke_key, before the numbers of entries
_LATE_NUMBERS = re.compile(re.escape(_LATE) + r"([0-9]{1,18}(?:, [0-9]{1,18})*)\Z")


@dataclass(frozen=True)
class Revocation:
    """What `ProjectKeys.revoke` did.

    Attributes:
        vouched_for: number of entries below the one that vouches.
        late: entries below it that the revoked key signed after another key had taken its place: whose are they?
    """

    fingerprint: str
    vouched_for: int
    late: tuple[Entry, ...]


@dataclass(frozen=True)
class SignedAgain:
    """A registered version whose bundle no accepted key had signed; `problem` is "" where the current one has now."""

    model: str
    version: int
    problem: str


@dataclass(frozen=True)
class KeyUse:
    """A key that is accepted, or was.

    Attributes:
        state: "current", "accepted" or "revoked".
        since: UTC time of the ledger's first entry about it or by it; of a revoked one, of its revocation. "": none.
        bundles: registered versions whose copy in the state folder it signed.
        pem: "" of a revoked one.
    """

    fingerprint: str
    state: str
    since: str
    bundles: int = 0
    pem: str = ""


class ProjectKeys:
    """Changes keys, and signs again. Needs the private key."""

    def __init__(self, configuration: Configuration, store: Store, ledger: Ledger, actor: str,
                 clock: Callable[[], datetime], checker: ProofChecker | None) -> None:
        self._configuration, self._store, self._ledger = configuration, store, ledger
        self._private, self._public = configuration.private_key_path, configuration.public_key_path
        self._actor, self._clock, self._checker = actor, clock, checker

    def rotate(self) -> tuple[str, str]:
        """Puts a new private key in the place of the old one, or finishes a rotation that was interrupted.

        Returns:
            Fingerprints of the old and of the new key.

        Raises:
            InputError: there is no private key yet, or a key file cannot be read.
            RefusedError: the ledger does not verify, the private key is none of the accepted ones, or the one that lies
                ready was revoked or is the current one.
            AssayError: registry or disk failed; the same again finishes it.
        """
        with self._changing():
            old = fingerprint(load_private_key(self._private).public_key())
            following = self._private.with_name(f"{self._private.name}.next")
            key = create_private_key(following).public_key()
            new, entries = fingerprint(key), self._verified()
            if new == old or new in _revoked(entries):
                raise RefusedError(f"key to rotate to must be a new one, got {new[:SHOWN_DIGITS]} ({following}), which "
                                   f"{'is the current one' if new == old else 'was revoked'}; remove that file")
            if not any(_is(entry, "rotate_key", new) for entry in entries):
                self._append("rotate_key", new, f"takes the place of key {old[:SHOWN_DIGITS]}")
            others = load_public_keys(self._public).by_fingerprint
            write_public_keys(self._public, [key, *(other for name, other in others.items() if name != new)])
            kept = self._private.with_name(f"{self._private.name}.{old[:SHOWN_DIGITS]}")
            write_file(kept, self._private.read_bytes(), mode=0o600)
            following.replace(self._private)
            sync_folder(self._private.parent)
        return old, new

    def revoke(self, given: str, reason: str) -> Revocation:
        """Lets a key be accepted no more, for a reason that goes into the ledger. Of a revoked one it does nothing.

        Args:
            given: its fingerprint, or the beginning of it.

        Raises:
            InputError: no key, or several, begin like that.
            RefusedError: it is the current one, a rotation was interrupted, or the ledger does not verify.
            AssayError: registry or disk failed; the same again finishes it.
        """
        with self._changing():
            entries, keys = self._verified(), load_public_keys(self._public)
            revoked = find_key(given, [*keys.by_fingerprint, *_revoked(entries)])
            signing = fingerprint(load_private_key(self._private).public_key())
            if signing != keys.current:
                raise RefusedError(f"private key must be the first of {self._public}, got {signing[:SHOWN_DIGITS]} "
                                   f"({self._private}); `assay keys rotate` finishes a rotation that was interrupted")
            if revoked == signing:
                raise RefusedError(f"key to revoke must not be the current one, got {revoked[:SHOWN_DIGITS]}; first "
                                   "`assay keys rotate`")
            if revoked not in keys.by_fingerprint:
                known = _revoked(entries)[revoked]
                return Revocation(revoked, known.sequence, tuple(entries[number] for number in _late_below(known)))
            signers = [signer_of(entry, keys) for entry in entries]
            replaced = [number for number, entry in enumerate(entries)
                        if entry.move.action == "rotate_key" and signers[number] == revoked]
            after = replaced[0] if replaced else len(entries)  # the first: a thief can add others
            late = tuple(entry for entry in entries[after + 1:] if signers[entry.sequence] == revoked)
            if late:
                reason += _LATE + ", ".join(str(entry.sequence) for entry in late)
            if not entries or not _is(entries[-1], "revoke_key", revoked) or signers[-1] != signing:
                self._append("revoke_key", revoked, reason)  # else a kill came right after it
            write_public_keys(self._public, [key for name, key in keys.by_fingerprint.items() if name != revoked])
        return Revocation(revoked, len(entries), late)

    def sign_again(self) -> Iterator[SignedAgain]:
        """Signs, with the current key, every registered bundle that no accepted key has signed, wherever it lies.

        The bundle must be the one of the ledger, by its digest, its gates must hold and its proof be one. What a
        revoked key registered after it was replaced is left to a person, each time.

        Raises:
            RefusedError: the ledger does not verify.
        """
        late = [entry.move for entry in _late(self._verified()) if entry.move.action == "register"]
        doubtful = {(move.task, move.workload, move.version) for move in late}  # the model's name is what he wrote
        for pair, standing in sorted(self._ledger.standings(registry_heads(self._store.heads())).items()):
            model = self._configuration.model_name(*pair)
            for version, sha256 in sorted(standing.registered.items()):
                if (*pair, version) in doubtful:
                    yield SignedAgain(model, version, "it was registered with a revoked key after that was replaced: "
                                      "it is never signed again; `assay retire` it; if it is yours, register it anew")
                    continue
                try:
                    is_new = self._sign_copy(kept_bundle(self._configuration.home, *pair, version), sha256)
                    is_there = self._store.has_version(model, version)
                    for place in [self._store.location(model, version)] if is_there else self._store.copies(sha256):
                        is_new |= self._sign_stored(place, sha256)
                except (AssayError, OSError) as error:
                    yield SignedAgain(model, version, str(error))
                else:
                    if is_new:
                        yield SignedAgain(model, version, "")

    def _sign_copy(self, folder: Path, sha256: str) -> bool:
        return folder.is_dir() and sign_again(folder, self._configuration, sha256, self._checker)

    def _sign_stored(self, location: str, sha256: str) -> bool:
        with self._store.fetched(location) as folder:
            is_new = self._sign_copy(folder, sha256)
            if is_new:
                self._store.put_signature(location, folder / SIGNATURE_FILE)
            return is_new

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._ledger.locked():
            try:
                yield
            except OSError as error:
                raise AssayError(f"key files must be writable, got {error} ({self._private.parent}); mend that and "
                                 "repeat the command, which finishes what was begun") from error

    def _verified(self) -> tuple[Entry, ...]:
        return self._ledger.verify(registry_heads(self._store.heads()))

    def _append(self, action: Action, key: str, reason: str) -> None:
        at = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        move = Move(action, at, "", "", "", 0, None, key, True, reason, self._actor)
        self._ledger.append([move], registry_heads(self._store.heads()))


def key_uses(configuration: Configuration) -> tuple[list[KeyUse], int]:
    """The keys of the project, the current one first, and how many kept bundles no accepted key has signed.

    Raises:
        RefusedError: the ledger does not verify.
        InputError: the public keys cannot be read.
    """
    keys = load_public_keys(configuration.public_key_path)
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path)
    entries = ledger.verify()
    since: dict[str | None, str] = {}
    for entry in entries:
        began = entry.move.bundle_sha256 if entry.move.action == "rotate_key" else signer_of(entry, keys)
        since.setdefault(began, entry.move.at)
    signed: dict[str, int] = {}
    for pair, standing in ledger.standings().items():
        for version in standing.registered:
            if (kept := kept_bundle(configuration.home, *pair, version)).is_dir():
                signer = _signer_of_bundle(kept, configuration.public_key_path)
                signed[signer] = signed.get(signer, 0) + 1
    uses = [KeyUse(name, "current" if name == keys.current else "accepted", since.get(name, ""), signed.get(name, 0),
                   public_pem(key).decode("ascii")) for name, key in keys.by_fingerprint.items()]
    uses += [KeyUse(name, "revoked", entry.move.at) for name, entry in _revoked(entries).items()
             if name not in keys.by_fingerprint]
    return uses, signed.get("", 0)


def find_key(given: str, fingerprints: list[str]) -> str:
    """The one fingerprint that begins with what was given. Raises InputError: none does, or several."""
    found = sorted({name for name in fingerprints if name.startswith(given)})
    if not given or len(found) != 1:
        known = ", ".join(name[:SHOWN_DIGITS] for name in dict.fromkeys(fingerprints))
        raise InputError(f"fingerprint must be that of one key, got {given!r}; the keys are {known}")
    return found[0]


def _signer_of_bundle(folder: Path, public_key_path: Path) -> str:
    try:
        return verify_files(read_folder(folder), public_key_path, str(folder))
    except RefusedError:
        return ""


def _revoked(entries: tuple[Entry, ...]) -> dict[str, Entry]:
    return {entry.move.bundle_sha256: entry for entry in entries if entry.move.action == "revoke_key"}


def _late(entries: tuple[Entry, ...]) -> list[Entry]:
    """What revocations name as signed after its key was replaced; one that is so named itself is not believed."""
    late: set[int] = set()
    for entry in reversed(entries):
        if entry.move.action == "revoke_key" and entry.sequence not in late:
            late.update(_late_below(entry))
    return [entries[number] for number in sorted(late)]


def _late_below(revocation: Entry) -> list[int]:
    found = _LATE_NUMBERS.search(revocation.move.reason)
    numbers = [] if found is None else [int(number) for number in found[1].split(", ")]
    return [number for number in numbers if number < revocation.sequence]


def _is(entry: Entry, action: Action, key: str) -> bool:
    return (entry.move.action, entry.move.bundle_sha256) == (action, key)
