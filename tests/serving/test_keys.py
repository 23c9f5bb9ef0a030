"""The key pair: private to its owner, never overwritten, one winner among many processes."""

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from feature_store.errors import InputError, RefusedError
from serving.keys import (
    create_key_pair,
    fingerprint,
    is_signed,
    load_private_key,
    load_public_keys,
    public_pem,
    sign_payload,
)

ROOT = Path(__file__).parents[2]
PEM, PKCS8, PLAIN = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)


def test_no_private_key_is_in_the_repository() -> None:
    found = subprocess.run(["git", "grep", "-lE", "-e", "-----BEGIN ([A-Z]+ )*PRIVATE KEY-----"], cwd=ROOT,
                           capture_output=True, text=True)
    if found.returncode > 1:
        pytest.skip(f"not a checkout: {found.stderr.strip()}")
    assert found.stdout == ""


def test_the_private_key_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    create_key_pair(tmp_path / "k" / "a.key", tmp_path / "k" / "a.pub")
    assert (tmp_path / "k" / "a.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "k" / "a.pub").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in (tmp_path / "k").iterdir()) == ["a.key", "a.pub"]


def test_an_existing_pair_is_kept_and_a_lost_public_key_is_derived_again(tmp_path: Path) -> None:
    private, public = tmp_path / "a.key", tmp_path / "a.pub"
    create_key_pair(private, public)
    before = private.read_bytes(), public.read_bytes()
    create_key_pair(private, public)
    public.unlink()
    create_key_pair(private, public)
    assert (private.read_bytes(), public.read_bytes()) == before


def test_a_lost_private_key_is_not_silently_replaced(tmp_path: Path) -> None:
    create_key_pair(tmp_path / "a.key", tmp_path / "a.pub")
    (tmp_path / "a.key").unlink()
    with pytest.raises(RefusedError, match="restore it from a backup"):
        create_key_pair(tmp_path / "a.key", tmp_path / "a.pub")
    assert not (tmp_path / "a.key").exists()


def test_files_of_two_pairs_are_refused(
    keys: tuple[Path, Path], other_keys: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "a.key").write_bytes(keys[0].read_bytes())
    (tmp_path / "a.key").chmod(0o600)
    (tmp_path / "a.pub").write_bytes(other_keys[1].read_bytes())
    with pytest.raises(RefusedError, match=r"must belong to a\.key"):
        create_key_pair(tmp_path / "a.key", tmp_path / "a.pub")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_private_key_that_others_can_read_is_refused(
    keys: tuple[Path, Path], tmp_path: Path, mode: int
) -> None:
    (tmp_path / "a.key").write_bytes(keys[0].read_bytes())
    (tmp_path / "a.key").chmod(mode)
    with pytest.raises(InputError, match=f"got mode {mode:04o}.*chmod 600"):
        load_private_key(tmp_path / "a.key")


def test_keys_of_another_kind_are_refused(tmp_path: Path) -> None:
    for number, key in enumerate(
        [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)]
    ):
        private, public = tmp_path / f"{number}.key", tmp_path / f"{number}.pub"
        private.write_bytes(key.private_bytes(PEM, PKCS8, PLAIN))
        private.chmod(0o600)
        public.write_bytes(
            key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        with pytest.raises(InputError, match="must be EC P-256"):
            load_private_key(private)
        with pytest.raises(InputError, match="must be EC P-256"):
            load_public_keys(public)


def test_an_encrypted_a_broken_and_a_missing_key_are_named(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    path = tmp_path / "a.key"
    path.write_bytes(key.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"secret")))
    path.chmod(0o600)
    with pytest.raises(InputError, match="must be an unencrypted PEM key"):
        load_private_key(path)
    path.write_bytes(b"")
    for load in (load_private_key, load_public_keys):
        with pytest.raises(InputError, match="PEM key"):
            load(path)
        with pytest.raises(InputError, match="No such file"):
            load(tmp_path / "absent")


def test_a_signature_is_bound_to_key_type_and_payload(
    keys: tuple[Path, Path], other_keys: tuple[Path, Path]
) -> None:
    private = load_private_key(keys[0])
    public = private.public_key()
    signature = sign_payload(private, "text/a", b"payload")
    assert is_signed(public, signature, "text/a", b"payload")
    assert not is_signed(public, signature, "text/b", b"payload")
    assert not is_signed(public, signature, "text/a", b"payloae")
    assert not is_signed(load_private_key(other_keys[0]).public_key(), signature, "text/a", b"payload")
    for broken in (b"", signature[:-1], signature + b"\0", b"\x30\x00"):
        assert not is_signed(public, broken, "text/a", b"payload")


def test_processes_that_start_at_once_end_up_with_one_pair(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from serving.keys import create_key_pair\n"
        "folder = Path(sys.argv[1]); create_key_pair(folder / 'a.key', folder / 'a.pub')"
    )
    root = Path(__file__).parents[2]
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "keys")], cwd=root) for _ in range(4)
    ]
    assert [process.wait(timeout=60) for process in started] == [0, 0, 0, 0]
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == ["a.key", "a.pub"]
    private = load_private_key(tmp_path / "keys" / "a.key")
    assert public_pem(private.public_key()) == (tmp_path / "keys" / "a.pub").read_bytes()


def test_a_file_may_hold_several_keys_with_text_between_them(
    keys: tuple[Path, Path], other_keys: tuple[Path, Path], tmp_path: Path
) -> None:
    path = tmp_path / "a.pub"
    path.write_bytes(b"# of today\n" + keys[1].read_bytes() + b"\nof last year\n" + other_keys[1].read_bytes())
    read = load_public_keys(path)
    expected = [fingerprint(load_private_key(pair[0]).public_key()) for pair in (keys, other_keys)]
    assert (list(read.by_fingerprint), read.current) == (expected, expected[0])
    for pair, name in zip((keys, other_keys), expected, strict=True):
        signature = sign_payload(load_private_key(pair[0]), "text/a", b"payload")
        assert read.signer(signature, "text/a", b"payload") == name
        assert read.signer(signature, "text/b", b"payload") is None


@pytest.mark.parametrize("added", ["private", "cut"])
def test_a_file_with_anything_else_among_its_keys_is_refused(
    keys: tuple[Path, Path], tmp_path: Path, added: str
) -> None:
    public = keys[1].read_bytes()
    path = tmp_path / "a.pub"
    path.write_bytes(public + (keys[0].read_bytes() if added == "private" else public[: len(public) // 2]))
    with pytest.raises(InputError, match="public key must be a PEM key"):
        load_public_keys(path)


def test_the_pair_may_be_any_key_of_the_file(keys: tuple[Path, Path], other_keys: tuple[Path, Path],
                                             tmp_path: Path) -> None:
    """While keys are rotated the new one is the first of the file before it is the private key."""
    path = tmp_path / "a.pub"
    path.write_bytes(other_keys[1].read_bytes() + keys[1].read_bytes())
    create_key_pair(keys[0], path)
    path.write_bytes(other_keys[1].read_bytes())
    with pytest.raises(RefusedError, match="must belong to"):
        create_key_pair(keys[0], path)
