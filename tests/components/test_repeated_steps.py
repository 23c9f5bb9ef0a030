"""What a cluster does with the steps: one of them alone gets the signing key, the others may be started again."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
import yaml

from components.signing_key import SIGNING_KEY_VARIABLE, take_signing_key
from feature_store.errors import InputError
from models.configuration import Configuration, load_configuration
from serving.bundle import check_bundle
from serving.keys import create_key_pair, load_private_key
from serving.ledger import Ledger
from tests.components.steps import IGNORED_WARNING, Steps, prepare, project
from tests.e2e import tiny

PRIVATE = b"PRIVATE KEY"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A key as a Secret's volume shows it: a link to a file that everybody can read."""
    create_key_pair(tmp_path / "made" / "assay.key", tmp_path / "made" / "assay.pub")
    data = tmp_path / "secret" / "..data"
    data.mkdir(parents=True)
    (data / "assay.key").write_bytes((tmp_path / "made" / "assay.key").read_bytes())
    (data / "assay.key").chmod(0o644)
    link = tmp_path / "secret" / "assay.key"
    link.symlink_to("..data/assay.key")
    return link


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Configuration]:
    """An mlflow.yaml whose private key lies outside of the state folder."""
    with project(tmp_path / "project"):
        path = tmp_path / "project" / "mlflow.yaml"
        written = yaml.safe_load(path.read_text())
        written["keys"]["private"] = str(tmp_path / "run" / "assay.key")
        tiny.write_yaml(written, path)
        yield load_configuration(path)


def test_the_key_is_put_where_the_configuration_says_for_its_owner_alone(cluster: Configuration, secret: Path) -> None:
    take_signing_key(cluster, {SIGNING_KEY_VARIABLE: str(secret)})
    assert stat.S_IMODE(cluster.private_key_path.stat().st_mode) == 0o600
    load_private_key(cluster.private_key_path)


def test_without_the_variable_nothing_is_put_anywhere(cluster: Configuration) -> None:
    take_signing_key(cluster, {})
    assert not cluster.private_key_path.exists()


def test_a_key_in_the_folder_that_all_steps_share_is_refused(tmp_path: Path, secret: Path) -> None:
    with project(tmp_path / "plain") as configuration, pytest.raises(InputError, match="outside of the state folder"):
        take_signing_key(configuration, {SIGNING_KEY_VARIABLE: str(secret)})
    assert not configuration.private_key_path.exists()


def test_a_secret_without_the_file_is_named(cluster: Configuration, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does the Secret hold none"):
        take_signing_key(cluster, {SIGNING_KEY_VARIABLE: str(tmp_path / "none.key")})


def twice(steps: Steps, *names: str) -> None:
    for name in names:
        getattr(steps, name)()
        getattr(steps, name)()


@pytest.mark.filterwarnings(IGNORED_WARNING)
def test_all_steps_but_register_run_twice_and_leave_what_once_leaves_and_never_have_the_key(
    cluster: Configuration, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = prepare(tmp_path / "project", tiny.telemetry(), tiny.task())
    twice(steps, "ingest", "validate", "featurize", "audit", "pretrain", "fan_out", "gate")
    assert not cluster.private_key_path.exists() and not cluster.ledger_path.exists()

    monkeypatch.setenv(SIGNING_KEY_VARIABLE, str(secret))
    entries = steps.register()
    assert {entry["status"] for entry in entries.values()} == {"registered"}
    for entry in entries.values():
        check_bundle(Path(entry["bundle"]), cluster.public_key_path)
    monkeypatch.delenv(SIGNING_KEY_VARIABLE)
    cluster.private_key_path.unlink()  # it went with the pod

    ledger = cluster.ledger_path.read_bytes()
    twice(steps, "gate", "report")
    assert cluster.ledger_path.read_bytes() == ledger
    assert len(Ledger(cluster.ledger_path, cluster.public_key_path).verify()) >= len(entries)
    client = mlflow.MlflowClient(cluster.tracking_uri)
    for entry in entries.values():
        evidence = json.loads((steps.folder / "gated" / entry["workload"] / "evidence.json").read_text())
        for name in evidence["history"]["epochs"][0].keys() - {"epoch"}:
            history = client.get_metric_history(entry["run_id"], name)
            assert len(history) == len({point.step for point in history}), name
    assert not [path for path in tmp_path.joinpath("project").rglob("*")
                if path.is_file() and PRIVATE in path.read_bytes()]
