"""Signs a bundle folder in the OpenSSF Model Signing format and verifies it, in two ways.

`model.sig` is a Sigstore bundle (JSON): a DSSE envelope over an in-toto statement that lists every
other file of the folder with its SHA-256. Anyone can check it without this project:

    model_signing verify key FOLDER --signature FOLDER/model.sig --public_key PUB

where PUB holds the one key that signed it: `assay keys show --pem FINGERPRINT`.

`verify_files` needs `cryptography` alone and is what controllers use; `verify_with_library` asks the
model-signing package (94 MB of dependencies). The first is never more lenient than the second; it is
stricter where the format leaves room: one signature, SHA-256 only, no ignored paths but the signature
itself, plain file names. tests/serving/test_signature.py holds the two against each other.

Formats: https://github.com/sigstore/model-transparency, https://in-toto.io/Statement/v1, DSSE 1.0.
"""

import base64
import binascii
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, MissingToolError, RefusedError
from feature_store.names import is_sha256
from feature_store.strict_json import parse_json
from feature_store.whole_files import whole_file
from serving.keys import is_signed, load_private_key, load_public_keys, public_pem

SIGNATURE_FILE = "model.sig"

_BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "https://model_signing/signature/v1.0"
# No leading dot: the library leaves .gitignore and its like out of the signature by default.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
# What the library's own command leaves out. Harmless here: the file names must match exactly.
_IGNORED = (SIGNATURE_FILE, ".git", ".gitattributes", ".github", ".gitignore")
# A planted folder must not fill a controller's memory; a real one has eight files and a few megabytes.
_MOST_FILES, _MOST_BYTES = 32, 256 * 2**20


def read_folder(folder: Path) -> dict[str, bytes]:
    """Reads every file of a flat folder once, so that what is checked is what is used.

    Raises:
        InputError: the folder is not there or cannot be read.
        RefusedError: it holds a sub-folder, a symbolic link, a special file, a name that is not plain,
            more than 32 files, or more than 256 MiB in all.
    """
    files, left = dict[str, bytes](), _MOST_BYTES
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_FILES + 1))
        if len(names) > _MOST_FILES:
            raise RefusedError(f"folder must hold up to {_MOST_FILES} files, got more ({folder})")
        for name in names:
            files[name] = _read_plain_file(Path(folder), name, left)
            left -= len(files[name])
        return files
    except OSError as error:
        raise InputError(f"bundle must be a readable folder, got {error.strerror} ({folder})") from error


def _read_plain_file(folder: Path, name: str, most_bytes: int) -> bytes:
    if not _PLAIN_NAME.fullmatch(name):
        raise RefusedError(
            f"file name must be plain, got {name!r} ({folder}); nothing signed has such a name"
        )
    # Looked at before it is opened: opening a pipe would wait for its writer.
    if not stat.S_ISREG((folder / name).lstat().st_mode):
        raise RefusedError(f"{name} must be a regular file, got a link, folder or special file ({folder})")
    descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise RefusedError(f"{name} must be a file, and all of them together up to 256 MiB, got "
                               f"{status.st_size} bytes ({folder})")
        return file.read(most_bytes + 1)


def sign_folder(folder: Path, private_key_path: Path) -> Path:
    """Signs all files of the folder and writes model.sig into it, replacing an older one.

    Returns:
        The path of the signature.

    Raises:
        RefusedError: the folder holds something that a signature would not cover.
        InputError: the key is unusable.
        MissingToolError: the model-signing package is not installed.
    """
    read_folder(folder)
    load_private_key(private_key_path)  # for its error messages: the library's are bare
    hashing, signing, _ = _library()
    # Beside the folder until it is whole: what lies in the folder is signed.
    with whole_file(folder / SIGNATURE_FILE, folder=folder.parent) as new:
        config = hashing.Config().set_ignored_paths(paths=[Path(SIGNATURE_FILE)], ignore_git_paths=False)
        signer = signing.Config().use_elliptic_key_signer(private_key=private_key_path)
        signer.set_hashing_config(config).sign(folder, new)
    return folder / SIGNATURE_FILE


def verify_with_library(folder: Path, public_key_path: Path) -> None:
    """Verifies the folder with the model-signing package, which takes one key at a time.

    Raises:
        RefusedError: the library does not accept it.
        MissingToolError: the library is not installed.
    """
    hashing, _, verifying = _library()
    folder = folder.resolve()
    config = hashing.Config().set_ignored_paths(paths=[Path(SIGNATURE_FILE)], ignore_git_paths=False)
    errors: list[Exception] = []
    with tempfile.NamedTemporaryFile(prefix="assay-key-", suffix=".pub") as file:
        for key in load_public_keys(public_key_path).by_fingerprint.values():
            Path(file.name).write_bytes(public_pem(key))
            verifier = verifying.Config().use_elliptic_key_verifier(public_key=Path(file.name))
            try:
                verifier.set_hashing_config(config).verify(folder, folder / SIGNATURE_FILE)
                return
            except Exception as error:  # the library raises whatever its parsers raise
                errors.append(error)
    raise RefusedError(
        f"signature must verify, got {type(errors[0]).__name__}: {errors[0] or 'no further word'} ({folder})"
    ) from errors[0]


def verify_files(files: Mapping[str, bytes], public_key_path: Path, where: str) -> str:
    """Verifies files that were read by `read_folder`, with `cryptography` alone.

    Args:
        files: content by name, the signature among them.
        public_key_path: PEM file of the keys one of which the files must be signed with.
        where: the folder's name for messages.

    Returns:
        Fingerprint of the key that signed them.

    Raises:
        RefusedError: there is no signature, it is malformed, of another key, or does not cover exactly
            these files with this content.
        InputError: the public key is unusable.
    """
    if SIGNATURE_FILE not in files:
        raise RefusedError(
            f"bundle must be signed, got no {SIGNATURE_FILE} ({where}); "
            "an unsigned bundle is one that the gates did not let through"
        )
    payload, signer = _signed_payload(files[SIGNATURE_FILE], public_key_path, f"{where}/{SIGNATURE_FILE}")
    signed = _signed_digests(payload, where)
    actual = {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != SIGNATURE_FILE}
    if added := sorted(set(actual) - set(signed)):
        raise RefusedError(f"files: expected signed ones only, got {', '.join(added)} unsigned ({where})")
    if removed := sorted(set(signed) - set(actual)):
        raise RefusedError(f"signed files: expected all of them, missing {', '.join(removed)} ({where})")
    if changed := sorted(name for name in actual if actual[name] != signed[name]):
        raise RefusedError(f"files: expected them as they were signed, got {', '.join(changed)} changed ({where})")
    return signer


def _signed_payload(data: bytes, public_key_path: Path, where: str) -> tuple[bytes, str]:
    """The payload of the envelope, once its signature is found to be that of the key which it names; and that key."""
    keys = load_public_keys(public_key_path).by_fingerprint
    bundle = parse_json(data, where)
    _shape(bundle, {"mediaType": str, "verificationMaterial": dict, "dsseEnvelope": dict}, where)
    material, envelope = bundle["verificationMaterial"], bundle["dsseEnvelope"]
    _shape(material, {"publicKey": dict, "tlogEntries": list}, where)
    _shape(material["publicKey"], {"hint": str}, where)
    _shape(envelope, {"payload": str, "payloadType": str, "signatures": list}, where)
    _require(bundle["mediaType"] == _BUNDLE_TYPE, "media type", bundle["mediaType"], where)
    _require(envelope["payloadType"] == _PAYLOAD_TYPE, "payload type", envelope["payloadType"], where)
    # A second signature could be anyone's: one reader may look at the first, another at the last.
    _require(len(envelope["signatures"]) == 1, "number of signatures", len(envelope["signatures"]), where)
    _shape(envelope["signatures"][0], {"sig": str, "keyid": str}, where)
    signer = material["publicKey"]["hint"]
    if signer not in keys:
        raise RefusedError(
            f"bundle must be signed with {public_key_path.name}, got another key, {signer[:12]!r} ({where}); after "
            f"`assay keys rotate` copy the project's file of public keys to {public_key_path}, after `assay keys "
            "revoke` get a bundle that was signed again"
        )
    payload = _from_base64(envelope["payload"], where)
    if not is_signed(keys[signer], _from_base64(envelope["signatures"][0]["sig"], where), _PAYLOAD_TYPE, payload):
        raise RefusedError(
            f"signature must be {public_key_path.name}'s over its payload, it is not ({where})"
        )
    return payload, signer


def _signed_digests(payload: bytes, where: str) -> dict[str, str]:
    """File name to hex SHA-256, from a payload whose signature holds."""
    statement = parse_json(payload, where)
    _shape(statement, {"_type": str, "subject": list, "predicateType": str, "predicate": dict}, where)
    _require(statement["_type"] == _STATEMENT_TYPE, "statement type", statement["_type"], where)
    _require(statement["predicateType"] == _PREDICATE_TYPE, "predicate", statement["predicateType"], where)
    predicate = statement["predicate"]
    _shape(predicate, {"serialization": dict, "resources": list}, where)
    serialization = predicate["serialization"]
    _shape(
        serialization, {"method": str, "hash_type": str, "allow_symlinks": bool, "ignore_paths": list}, where
    )
    scheme = [serialization[key] for key in ("method", "hash_type", "allow_symlinks")]
    _require(scheme == ["files", "sha256", False], "serialization", serialization, where)
    _require(
        all(path in _IGNORED for path in serialization["ignore_paths"]), "ignored paths", serialization, where
    )
    digests: dict[str, str] = {}
    for resource in predicate["resources"]:
        _shape(resource, {"name": str, "algorithm": str, "digest": str}, where)
        name, digest = resource["name"], resource["digest"]
        _require(bool(_PLAIN_NAME.fullmatch(name)) and name != SIGNATURE_FILE, "file name", name, where)
        _require(name not in digests, "file name given once", name, where)
        _require(resource["algorithm"] == "sha256", "hash algorithm", resource["algorithm"], where)
        _require(is_sha256(digest), "digest", digest, where)
        digests[name] = digest
    root = hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests.values())).hexdigest()
    subjects = statement["subject"]
    is_one = len(subjects) == 1 and isinstance(subjects[0], dict)
    _require(is_one and subjects[0].get("digest") == {"sha256": root}, "subject", subjects, where)
    return digests


def _shape(value: Any, keys: Mapping[str, type], where: str) -> None:
    """Exactly these keys with values of exactly these types."""
    is_shaped = isinstance(value, dict) and set(value) == set(keys)
    if not is_shaped or any(type(value[key]) is not kind for key, kind in keys.items()):
        raise RefusedError(f"signature must hold {', '.join(keys)}, got {_short(value)} ({where})")


def _require(holds: bool, what: str, value: Any, where: str) -> None:
    if not holds:
        raise RefusedError(f"{what} must be that of an Assay signature, got {_short(value)} ({where})")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."


def _from_base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(f"signature must be base64, got {error} ({where})") from error


def _library() -> tuple[Any, Any, Any]:
    try:
        from model_signing import hashing, signing, verifying
    except ImportError as error:
        raise MissingToolError(
            f"model-signing must be installed, got {error}; pip install model-signing pyOpenSSL"
        ) from error
    return hashing, signing, verifying
