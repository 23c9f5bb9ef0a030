"""`assay keys show` without a registry. Rotation and revocation on what real runs made: tests/e2e/test_run.py."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.command_line import app
from serving.keys import create_key_pair, create_private_key, fingerprint, load_private_key, write_public_keys

ROOT = Path(__file__).parents[2]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["keys", *arguments])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with nothing but a key pair."""
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    monkeypatch.setenv("ASSAY_CONFIG", str(ROOT / "mlflow.yaml"))
    create_key_pair(tmp_path / "keys/assay.key", tmp_path / "keys/assay.pub")
    return tmp_path


def test_one_key_is_shown_and_printed_as_it_lies_in_its_file(home: Path) -> None:
    public = home / "keys/assay.pub"
    name = fingerprint(load_private_key(home / "keys/assay.key").public_key())
    assert call("show").stdout == f"{name}  current   in no entry of the ledger  0 bundles\n"
    assert call("show", "--pem", name[:6]).stdout.encode() == public.read_bytes()
    assert not (home / "mlflow.db").exists() and not (home / "ledger").exists(), "it only looks"


def test_each_of_several_keys_is_printed_alone(home: Path) -> None:
    keys = [create_private_key(home / f"keys/{number}.key").public_key() for number in range(3)]
    write_public_keys(home / "keys/assay.pub", keys)
    shown = json.loads(call("show", "--json").stdout)["keys"]
    assert [one["fingerprint"] for one in shown] == [fingerprint(key) for key in keys]
    printed = [call("show", "--pem", one["fingerprint"]).stdout for one in shown]
    assert "".join(printed).encode() == (home / "keys/assay.pub").read_bytes()


def test_a_fingerprint_that_no_key_has_is_bad_input(home: Path) -> None:
    done = call("show", "--pem", "xyz")
    assert done.exit_code == 2 and "must be that of one key, got 'xyz'; the keys are " in done.stderr


def test_without_keys_it_says_where_they_would_be(home: Path) -> None:
    (home / "keys/assay.pub").unlink()
    done = call("show")
    assert done.exit_code == 2 and f"({home}/keys/assay.pub)" in done.stderr
