"""The project's EC P-256 keys: the private one signs bundles (serving/signature.py) and ledger entries.

The private key is a PEM file that its owner alone can read; controllers get the file of public keys. After a rotation
(serving/project_keys.py) it holds several, one PEM after the other: the current one first, then the earlier ones, whose
signatures are still accepted. Only that file says which keys are accepted, never a ledger or a bundle. What is
signed is always a DSSE pre-authentication encoding, which names the type of the payload: a signature
over a ledger entry can never be passed off as one over a bundle.

DSSE: https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md
"""

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from feature_store.errors import InputError, RefusedError
from feature_store.whole_files import whole_file, write_file

_ECDSA = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True)
class PublicKeys:
    """The keys whose signatures are accepted.

    Attributes:
        path: the file that they were read from.
        by_fingerprint: at least one, the current one first.
    """

    path: Path
    by_fingerprint: dict[str, ec.EllipticCurvePublicKey]

    @property
    def current(self) -> str:
        """Fingerprint of the key that signs now."""
        return next(iter(self.by_fingerprint))

    def signer(self, signature: bytes, payload_type: str, payload: bytes) -> str | None:
        """Fingerprint of the key whose signature over this payload this is; None: of none of them."""
        return next((name for name, key in self.by_fingerprint.items()
                     if is_signed(key, signature, payload_type, payload)), None)


def create_key_pair(private_path: Path, public_path: Path) -> None:
    """Makes the key pair, or completes it: an existing private key is never overwritten.

    Safe among processes that start at once (one key wins) and after a crash at any point (the public
    key is derived from the private one again).

    Raises:
        RefusedError: the two files are not a pair, or only the public key is there: a new private key
            would make everything signed so far unverifiable.
        InputError: an existing private key can be read by others than its owner, or is not P-256.
    """
    if public_path.exists() and not private_path.exists():
        raise RefusedError(
            f"private key: expected one beside its public key, got none ({private_path}); restore it from "
            f"a backup, or move {public_path.name} away to start anew (older bundles then need the old key)"
        )
    public = create_private_key(private_path).public_key()
    if not public_path.exists():
        _write_once(public_path, public_pem(public))
        public_path.chmod(0o644)
    if fingerprint(public) not in load_public_keys(public_path).by_fingerprint:
        raise RefusedError(f"public key must belong to {private_path.name}, got another one ({public_path})")


def create_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A new private key in a file, or the one that is there already. Raises InputError as `load_private_key`."""
    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _write_once(path, pem)
    return load_private_key(path)


def load_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Reads the private key.

    Raises:
        InputError: missing, readable by others than its owner, or not an unencrypted P-256 PEM key.
    """
    data, mode = _read(path, "private key")
    if mode & 0o077:
        raise InputError(
            f"private key must be readable by its owner only, got mode {mode:04o} ({path}); chmod 600 {path}"
        )
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"private key must be an unencrypted PEM key, got {error} ({path})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError(f"private key must be EC P-256, got {type(key).__name__} ({path})")
    return key


def load_public_keys(path: Path) -> PublicKeys:
    """Reads the public keys: one PEM after the other, with any text before and between them.

    Raises:
        InputError: missing, or not P-256 PEM keys alone.
    """
    data, _ = _read(path, "public key")
    _, *blocks = re.split(b"(?=-----BEGIN )", data)
    keys = [_public_key(block, path) for block in blocks or [data]]
    return PublicKeys(path, {fingerprint(key): key for key in keys})


def write_public_keys(path: Path, keys: Sequence[ec.EllipticCurvePublicKey]) -> None:
    """Replaces the file of public keys, for everybody to read; the first one is the current one."""
    with whole_file(path, mode=0o644) as new:
        new.write_bytes(b"".join(map(public_pem, keys)))
        new.chmod(0o644)


def _public_key(data: bytes, path: Path) -> ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"public key must be a PEM key, got {error} ({path})") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError(f"public key must be EC P-256, got {type(key).__name__} ({path})")
    return key


def public_pem(key: ec.EllipticCurvePublicKey) -> bytes:
    """The key as PEM, the form that is hashed into its fingerprint."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of its PEM, in hex: the key hint of a bundle's signature."""
    return hashlib.sha256(public_pem(key)).hexdigest()


def sign_payload(key: ec.EllipticCurvePrivateKey, payload_type: str, payload: bytes) -> bytes:
    """ECDSA P-256 SHA-256 signature (DER) over the pre-authentication encoding."""
    return key.sign(_pre_authentication_encoding(payload_type, payload), _ECDSA)


def is_signed(key: ec.EllipticCurvePublicKey, signature: bytes, payload_type: str, payload: bytes) -> bool:
    """Whether `signature` is this key's over this payload of this type."""
    try:
        key.verify(signature, _pre_authentication_encoding(payload_type, payload), _ECDSA)
    except InvalidSignature:
        return False
    return True


def _pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _read(path: Path, what: str) -> tuple[bytes, int]:
    try:
        with path.open("rb") as file:
            return file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise InputError(f"{what} must be a readable file, got {error.strerror} ({path})") from error


def _write_once(path: Path, data: bytes) -> None:
    """Writes the whole file or nothing; leaves an existing one alone. Mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_file(path, data, mode=0o600, overwrite=False)
