"""One entry of the promotion ledger: its line in the file, its hash, its signature, and what holds the next one to it.

    hash       SHA-256 of the entry's canonical JSON without hash and signature; it covers previous_hash,
               so that no entry can be changed, removed, inserted or reordered without breaking the chain
    signature  by one of the project's keys, over the same bytes as a DSSE payload of a type of its own
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass, fields
from typing import Any, get_args

from cryptography.hazmat.primitives.asymmetric import ec

from feature_store.errors import InputError, RefusedError
from feature_store.names import check_task_name, check_workload_name, is_sha256
from feature_store.strict_json import parse_json
from serving.canonical import canonical_json
from serving.keys import PublicKeys, sign_payload
from serving.moves import KEY_ACTIONS, Action, Move

GENESIS = "0" * 64
PAYLOAD_TYPE = "application/vnd.assay.ledger-entry+json"


@dataclass(frozen=True)
class Entry:
    """A move in its place in the chain."""

    sequence: int
    move: Move
    previous_hash: str
    hash: str
    signature: str

    @property
    def head(self) -> str:
        """The ledger's end up to here, as others remember it: "<sequence>:<hash>"."""
        return f"{self.sequence}:{self.hash}"

    @property
    def line(self) -> bytes:
        """The entry in the file, with its end of line."""
        return canonical_json(self.to_json()) + b"\n"

    def to_json(self) -> dict[str, Any]:
        """One flat object: the line in the file."""
        return {**_body(self.sequence, self.move, self.previous_hash), "hash": self.hash,
                "signature": self.signature}  # fmt: skip


_MOVE_KEYS = tuple(item.name for item in fields(Move))
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*_MOVE_KEYS, "previous_hash", "hash", "signature"), (str,)),
    "sequence": (int,),
    "version": (int,),
    "previous_version": (int, type(None)),
    "gates_passed": (bool,),
}


def sign_entry(key: ec.EllipticCurvePrivateKey, move: Move, sequence: int, previous_hash: str) -> Entry:
    """The entry of a move that follows the entry with `previous_hash`."""
    payload = canonical_json(_body(sequence, move, previous_hash))
    signature = base64.b64encode(sign_payload(key, PAYLOAD_TYPE, payload)).decode("ascii")
    return Entry(sequence, move, previous_hash, hashlib.sha256(payload).hexdigest(), signature)


def parse_entry(line: bytes, where: str) -> Entry:
    """Reads a line of the file. Raises RefusedError where it is not exactly what `Entry.to_json` gives."""
    data = parse_json(line, where)
    if data.keys() != _TYPES.keys():
        raise RefusedError(
            f"ledger entry must hold {', '.join(sorted(_TYPES))}, got {sorted(data)} ({where})"
        )
    for key, kinds in _TYPES.items():
        if type(data[key]) not in kinds:
            raise RefusedError(f"{key} must be {kinds[0].__name__}, got {data[key]!r} ({where})")
    if data["action"] not in get_args(Action):
        raise RefusedError(
            f"action must be one of {', '.join(get_args(Action))}, got {data['action']!r} ({where})"
        )
    move = Move(**{key: data[key] for key in _MOVE_KEYS})
    entry = Entry(data["sequence"], move, data["previous_hash"], data["hash"], data["signature"])
    if canonical_json(data) != line:
        raise RefusedError(f"ledger entry must be canonical JSON, got other spacing or order ({where})")
    try:
        check_move(move, where)
    except InputError as error:
        raise RefusedError(str(error)) from error
    return entry


def check_move(move: Move, where: str) -> None:
    """Raises InputError where a name is none that a folder and a model can have, or a key's fingerprint is none."""
    if move.action in KEY_ACTIONS:
        said = (move.task, move.workload, move.model, move.version, move.previous_version, move.gates_passed)
        if said != ("", "", "", 0, None, True) or not is_sha256(move.bundle_sha256):
            raise InputError(f"entry about a key must name its fingerprint and no model, got {said}, "
                             f"{move.bundle_sha256!r} ({where})")
        return
    check_task_name(move.task, where)
    check_workload_name(move.workload, where)


def check_link(entry: Entry, number: int, previous_hash: str, where: str) -> None:
    """Raises RefusedError unless the entry is number `number`, follows `previous_hash` and has its own hash."""
    if entry.sequence != number:
        raise RefusedError(f"sequence must be {number}, got {entry.sequence} ({where}); entries were moved")
    if entry.previous_hash != previous_hash:
        raise RefusedError(f"previous_hash must be {previous_hash}, got {entry.previous_hash} ({where})")
    if entry.hash != hashlib.sha256(_payload(entry)).hexdigest():
        raise RefusedError(f"hash must be that of the entry, got another ({where}); the entry was changed")


def check_signature(entry: Entry, keys: PublicKeys, where: str) -> None:
    """Raises RefusedError unless the entry is signed with one of the keys."""
    if signer_of(entry, keys) is None:
        raise RefusedError(f"ledger entry must be signed with the project's key, it is not ({where}); after `assay "
                           f"keys rotate` or `revoke` copy the project's file of public keys to {keys.path}")


def signer_of(entry: Entry, keys: PublicKeys) -> str | None:
    """Fingerprint of the key that signed the entry; None: none of them."""
    try:
        signature = base64.b64decode(entry.signature, validate=True)
    except (binascii.Error, ValueError):
        return None
    return keys.signer(signature, PAYLOAD_TYPE, _payload(entry))


def _payload(entry: Entry) -> bytes:
    return canonical_json(_body(entry.sequence, entry.move, entry.previous_hash))


def _body(sequence: int, move: Move, previous_hash: str) -> dict[str, Any]:
    return {"sequence": sequence, **vars(move), "previous_hash": previous_hash}
