"""MLflow as the store: what is in its database and folders after a move, a crash, a full disk."""

import contextlib
import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from feature_store.errors import AssayError, InputError, RefusedError
from models.configuration import Configuration, load_configuration
from serving.bundle import check_bundle
from serving.keys import load_private_key
from serving.ledger import Ledger
from serving.registry import MlflowStore, Registry, _is_kept
from serving.registry_audit import Healing
from serving.relocation import require_own_home
from serving.session import Predictor
from tests.serving.measured import measured_champion

# mlflow 3.17 on sqlalchemy 2.1: https://github.com/mlflow/mlflow sets lazy="noload" on its own tables.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")

ROOT = Path(__file__).parents[2]
MODEL = "assay.performance.redis"
PAIR = ("performance", "redis")
ROW = {"psi_cpu_some": 0.2, "psi_io_full": 0.5, "connections": 8.0}
Writer = Callable[..., Path]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with an initialised database: making one takes a second."""
    home = tmp_path_factory.mktemp("template") / "home"
    Registry(load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(home)}))
    return home


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """MLflow's default is a database in the working directory: none of ours may end up there."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    yield
    assert list((tmp_path / "cwd").iterdir()) == []


@pytest.fixture
def state(template: Path, configuration: Configuration) -> Configuration:
    shutil.copytree(template, configuration.home)
    return configuration


Opener = Callable[[Configuration], Registry]


@pytest.fixture
def opened(checker: Any) -> Opener:
    """Opens a registry that takes the certificates of these tests for proofs."""
    return lambda configuration: Registry(configuration, actor="ann", checker=checker)


@pytest.fixture
def registry(state: Configuration, opened: Opener) -> Registry:
    return opened(state)


@pytest.fixture
def client(state: Configuration) -> mlflow.MlflowClient:
    return mlflow.MlflowClient(state.tracking_uri, state.tracking_uri)


@pytest.fixture
def write(bundle_writer: Writer, tmp_path: Path) -> Writer:
    folders = iter(tmp_path / f"bundle{number}" for number in range(100))
    return lambda **options: bundle_writer(next(folders), **options)


def two_champions(registry: Registry, write: Writer) -> None:
    registry.register(write())
    champion = measured_champion(1, 2.0)
    registry.register(write(slope=9.0, champion=champion), champion=champion)


def by_alias(client: mlflow.MlflowClient, alias: str, model: str = MODEL) -> int | None:
    try:
        return int(client.get_model_version_by_alias(model, alias).version)
    except MlflowException:
        return None


def versions(client: mlflow.MlflowClient) -> list[int]:
    return sorted(int(item.version) for item in client.search_model_versions())


def test_a_version_holds_bundle_signature_tags_evidence_and_lineage(
    registry: Registry, client: mlflow.MlflowClient, write: Writer, state: Configuration
) -> None:
    before = mlflow.get_tracking_uri()
    folder = write()
    # what no gate asks for may be anything; MLflow gets what a float holds
    found = json.loads((folder / "evidence.json").read_text())
    found["metrics"] |= {"enormous": 10**400, "word": "NaN", "none": math.nan, "yes": True}
    (folder / "evidence.json").write_text(json.dumps(found))
    done = registry.register(folder, data_path=Path("/data/redis.parquet"), command="assay run --seed 7")
    assert mlflow.get_tracking_uri() == before, "MLflow's global state is left as it was"
    assert (done.model, done.version, done.alias) == (MODEL, 1, "champion")
    assert by_alias(client, "champion") == 1
    assert by_alias(client, "challenger") is None

    version = client.get_model_version(MODEL, "1")
    assert version.tags["verdict"] == "PROVED"
    assert version.tags["bundle_sha256"] == done.bundle_sha256
    assert version.tags["reproduce"] == "assay run --seed 7"
    assert "| parity | yes |" in version.description
    stored = Path(client.get_model_version_download_uri(MODEL, "1"))
    info = mlflow.models.Model.load(stored)
    assert info.signature.inputs.input_names() == list(ROW)
    assert info.signature.outputs.input_names() == ["latency_ms"]
    assert info.flavors["onnx"]["providers"] == ["CPUExecutionProvider"]
    assert check_bundle(stored / "bundle", state.public_key_path, library=True).sha256 == done.bundle_sha256
    assert (stored / "input_example.json").exists()

    run = client.get_run(done.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "performance.redis version 1"
    assert run.data.metrics["test_mse"] == 1.0
    assert not {"enormous", "word", "none", "yes"} & set(run.data.metrics)
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("performance.redis", "d1")
    assert json.loads(data.dataset.source) == {"uri": "/data/redis.parquet"}
    assert client.get_registered_model(MODEL).tags["assay.ledger_head"] == registry.history()[-1].head


def test_mlflows_own_copy_of_the_model_answers_the_same(
    registry: Registry, write: Writer, client: Any
) -> None:
    registry.register(write())
    path = client.get_model_version_download_uri(MODEL, "1")
    table = pd.DataFrame([dict(reversed(ROW.items()))])  # by name, in whatever order
    answer = mlflow.pyfunc.load_model(path).predict(table)["latency_ms"]
    predictor = Predictor(registry.open_champion(*PAIR))
    assert predictor.predict(ROW).value == pytest.approx(float(answer[0]), rel=1e-6)


def test_a_predictor_comes_from_the_registry_checked(
    registry: Registry, state: Configuration, write: Writer
) -> None:
    with pytest.raises(RefusedError, match="must have a champion"):
        Predictor.from_registry(state, *PAIR)
    folder = write()
    registry.register(folder)
    expected = Predictor.from_folder(folder, state.public_key_path, task="performance", workload="redis").predict(ROW)
    assert Predictor.from_registry(state, *PAIR).predict(ROW) == expected


def test_a_rejected_version_is_kept_with_its_evidence_and_without_a_signature(
    registry: Registry, client: mlflow.MlflowClient, write: Writer
) -> None:
    done = registry.register(write(status="UNKNOWN"))
    assert done.alias is None
    assert client.get_model_version(MODEL, "1").tags["gates_passed"] == "false"
    names = {
        path.name for path in (Path(client.get_model_version_download_uri(MODEL, "1")) / "bundle").iterdir()
    }
    assert "evidence.json" in names
    assert "model.sig" not in names


def test_a_given_run_is_used_and_left_open(
    registry: Registry, client: mlflow.MlflowClient, state: Configuration, write: Writer
) -> None:
    run = client.create_run(client.create_experiment("other", state.artifact_root))
    assert registry.register(write(), run_id=run.info.run_id).run_id == run.info.run_id
    after = client.get_run(run.info.run_id).info
    assert (after.status, after.run_name) == ("RUNNING", run.info.run_name)
    assert client.get_model_version(MODEL, "1").run_id == run.info.run_id


def test_rollback_and_promotion_move_the_alias(
    registry: Registry, client: mlflow.MlflowClient, write: Writer
) -> None:
    two_champions(registry, write)
    assert by_alias(client, "champion") == 2
    assert registry.rollback(*PAIR).version == 1
    assert by_alias(client, "champion") == 1
    registry.promote(*PAIR, version=2)
    assert by_alias(client, "champion") == 2


def test_what_is_moved_or_deleted_by_hand_in_mlflow_is_set_right_or_reported(
    registry: Registry, client: mlflow.MlflowClient, write: Writer
) -> None:
    two_champions(registry, write)
    client.set_registered_model_alias(MODEL, "champion", "1")
    client.set_registered_model_alias(MODEL, "challenger", "1")
    assert {(d.alias, d.found, d.expected) for d in registry.reconcile()} == {
        ("champion", 1, 2),
        ("challenger", 1, None),
    }
    assert (by_alias(client, "champion"), by_alias(client, "challenger")) == (2, None)
    sha256, location = registry.open_champion(*PAIR).sha256, client.get_model_version_download_uri(MODEL, "2")
    client.delete_model_version(MODEL, "2")
    (drift,) = registry.reconcile()
    assert (drift.found, drift.expected, drift.repaired, drift.gone) == (None, 2, False, True)
    assert registry.open_champion(*PAIR).sha256 == sha256, "by what the version left, found by its digest"
    shutil.rmtree(location)
    with pytest.raises(RefusedError, match=r"got neither .*registry must have version 2.*assay retire"):
        registry.open_champion(*PAIR)
    assert registry.rollback(*PAIR).version == 1
    assert by_alias(client, "champion") == 1
    assert registry.reconcile() == ()


def test_what_was_changed_by_hand_on_mlflows_pages_is_found_and_set_right(
    registry: Registry, opened: Opener, state: Configuration, client: mlflow.MlflowClient, write: Writer
) -> None:
    two_champions(registry, write)
    registry.register(write(status="REFUTED"), champion=measured_champion(2, 1.0))
    assert registry.registry_audit.audit() == ()
    client.delete_registered_model_alias(MODEL, "champion")
    client.set_registered_model_alias(MODEL, "production", "3")
    client.delete_registered_model_tag(MODEL, "assay.ledger_head")
    client.set_model_version_tag(MODEL, "3", "verdict", "PROVED")
    client.delete_model_version_tag(MODEL, "2", "seed")
    client.update_model_version(MODEL, "3", "all gates passed")
    with pytest.warns(FutureWarning):
        client.transition_model_version_stage(MODEL, "3", "Production")
    client.create_model_version(MODEL, client.get_model_version_download_uri(MODEL, "3"))
    served = Path(client.get_model_version_download_uri(MODEL, "2")) / "model.onnx"
    served.write_bytes((Path(client.get_model_version_download_uri(MODEL, "1")) / "model.onnx").read_bytes())

    audit = opened(state).registry_audit  # another process, which has not read the head tags yet
    pointers = [(None, "alias champion"), (3, "alias production"), (3, "stage Production"),
                (None, "tag assay.ledger_head")]
    lost = [(2, "model that MLflow serves"), (4, "version")]
    found = [(one.version, one.what) for one in audit.audit()]
    assert sorted(found, key=str) == sorted(
        [*pointers, *lost, (2, "tag seed"), (3, "tag verdict"), (3, "description")], key=str)
    healing = audit.heal()
    assert [(one.version, one.what) for one in healing.left] == lost and len(healing.healed) == 7
    assert (by_alias(client, "champion"), by_alias(client, "production")) == (2, None)
    assert audit.heal() == Healing((), healing.left), "safe to repeat"


def test_a_reviewer_decides_by_a_tag_in_mlflow(
    opened: Opener, state: Configuration, client: mlflow.MlflowClient, write: Writer
) -> None:
    registry = opened(replace(state, approval="manual"))
    registry.register(write())
    tags = client.get_model_version(MODEL, "1").tags
    assert (tags["verdict"], tags["gates"], tags["decision"]) == (
        "PROVED", "8 of 8", "no champion yet; waits for assay promote")
    assert tags["waits_for"] == "a review: set the tag assay.review to approve or reject"
    client.set_model_version_tag(MODEL, "1", "assay.review", "approve")
    client.set_model_version_tag(MODEL, "1", "assay.review.by", "bob")
    assert [review.outcome for review in registry.reviews.carry_out()] == ["approved"]
    assert by_alias(client, "champion") == 1 and registry.history()[-1].move.actor.startswith("bob, in the registry")
    tags = client.get_model_version(MODEL, "1").tags
    assert tags["assay.review.done"] == "approved, bob: champion now"
    assert not {"assay.review", "assay.review.by", "waits_for"} & tags.keys()
    assert registry.reviews.carry_out() == () and registry.registry_audit.audit() == ()


def test_the_private_key_is_in_its_file_alone(
    registry: Registry, state: Configuration, write: Writer, capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not in an artifact, the database, the ledger, a copy or what is printed: not as PEM, not as bytes."""
    caplog.set_level("DEBUG")
    folder = write()
    registry.register(folder)
    pem = state.private_key_path.read_bytes()
    number = load_private_key(state.private_key_path).private_numbers().private_value
    secrets = (b"PRIVATE KEY", pem.splitlines()[2], number.to_bytes(32, "big"),
               f"{number:x}".encode(), str(number).encode())
    holders = {path for root in (state.home, folder) for path in root.rglob("*") if path.is_file()
               if any(secret in path.read_bytes() for secret in secrets)}
    assert holders == {state.private_key_path}
    printed = "".join((*capfd.readouterr(), caplog.text)).encode()
    assert not [secret for secret in secrets if secret in printed]


def test_the_heads_of_all_of_the_projects_models_are_listed_page_by_page(
    registry: Registry, client: mlflow.MlflowClient, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for workload in ("redis", "nginx", "mysql"):
        registry.register(write(workload=workload, status="UNKNOWN"))
    for name in ("other.performance.redis", "assay.performance", "zebra"):  # of someone who shares the server
        client.create_registered_model(name, tags={"assay.ledger_head": "99:x"})
    client.create_registered_model("assay.performance.solr")
    monkeypatch.setattr("serving.registry._PAGE", 1)
    assert registry._store.heads() == {
        entry.move.model: entry.head for entry in registry.history()  # type: ignore[attr-defined]
    }


def test_a_scheduled_run_finds_what_is_registered_already(registry: Registry, write: Writer) -> None:
    folder = write()
    contract = json.loads((folder / "contract.json").read_text())
    assert not registry.is_known(contract)
    registry.register(folder)
    assert registry.is_known(contract)
    assert not registry.is_known({**contract, "data_version": "d2"})


def test_version_numbers_are_not_used_twice_after_the_model_was_deleted(
    registry: Registry, client: mlflow.MlflowClient, write: Writer
) -> None:
    two_champions(registry, write)
    client.delete_registered_model(MODEL)
    done = registry.register(write(slope=8.0, test_mse=0.5), champion=measured_champion(2, 1.0))
    assert (done.version, done.alias) == (3, "champion"), "what the champion promised is read from its artifacts"
    assert by_alias(client, "champion") == 3
    assert versions(client) == [3]


def test_a_kill_while_used_numbers_are_passed_over_leaves_no_version_under_one(
    registry: Registry, client: mlflow.MlflowClient, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_champions(registry, write)
    client.delete_registered_model(MODEL)
    delete, calls = mlflow.MlflowClient.delete_model_version, []

    def killed(self: mlflow.MlflowClient, *args: Any) -> None:
        calls.append(args)
        if len(calls) == 1:
            raise KeyboardInterrupt
        delete(self, *args)

    monkeypatch.setattr(mlflow.MlflowClient, "delete_model_version", killed)
    with pytest.raises(KeyboardInterrupt):
        registry.register(write(slope=8.0, test_mse=0.5), champion=measured_champion(2, 1.0))
    assert versions(client) == []


def test_tampered_artifacts_in_mlflow_are_refused(
    registry: Registry, client: mlflow.MlflowClient, state: Configuration, write: Writer
) -> None:
    registry.register(write())
    model = Path(client.get_model_version_download_uri(MODEL, "1")) / "bundle" / "model.onnx"
    data = bytearray(model.read_bytes())
    data[100] ^= 1
    model.write_bytes(data)
    with pytest.raises(RefusedError, match=r"got model\.onnx changed"):
        Predictor.from_registry(state, *PAIR)
    shutil.rmtree(model.parent)
    with pytest.raises(AssayError, match="registry must give a bundle"):
        Predictor.from_registry(state, *PAIR)


def nothing_registered(client: mlflow.MlflowClient, state: Configuration) -> None:
    assert versions(client) == []
    experiments = [item.experiment_id for item in client.search_experiments()]
    assert client.search_logged_models(experiments) == []
    assert [run.info.status for run in client.search_runs(experiments)] in ([], ["FAILED"])
    models = Path(state.artifact_root) / "models"
    left = list(models.iterdir()) if models.exists() else []
    assert left == []
    assert not state.ledger_path.exists()
    assert list((state.ledger_path.parent / "unfinished").iterdir()) == []


def test_a_full_disk_in_the_artifact_write_registers_nothing(
    registry: Registry,
    client: mlflow.MlflowClient,
    state: Configuration,
    write: Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep = LocalArtifactRepository.log_artifacts

    def full(self: Any, local_dir: str, artifact_path: str | None = None) -> None:
        keep(self, local_dir, artifact_path)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalArtifactRepository, "log_artifacts", full)
        with pytest.raises(AssayError, match="No space left on device"):
            registry.register(write())
    nothing_registered(client, state)
    assert registry.register(write()).version == 1


@contextlib.contextmanager
def small_disk(folder: Path, size_kb: int) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "assay-test", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk takes root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # sqlite holds its file


def test_a_disk_that_fills_up_under_the_artifacts_registers_nothing(
    registry: Registry, client: mlflow.MlflowClient, state: Configuration, write: Writer
) -> None:
    folder, again = write(), write()
    with small_disk(Path(state.artifact_root), 16):
        with pytest.raises(AssayError, match="No space left on device"):
            registry.register(folder)
        nothing_registered(client, state)
        assert (
            sum(path.stat().st_size for path in Path(state.artifact_root).rglob("*") if path.is_file()) == 0
        )
    assert registry.register(again).version == 1


def test_a_disk_that_fills_up_under_everything_registers_nothing(
    template: Path, tmp_path: Path, write: Writer, opened: Opener
) -> None:
    """Database, ledger, keys and artifacts on one disk, with ever more room: each point fails cleanly."""
    folder = write()
    outcomes = set()
    for room_kb in (0, 16, 48, 96, 2048):
        home = tmp_path / f"home{room_kb}"
        configuration = load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(home)})
        with small_disk(home, 8192):
            shutil.copytree(template, home, dirs_exist_ok=True)
            filler = home / "filler"
            filler.write_bytes(b"\0" * (shutil.disk_usage(home).free - room_kb * 1024))
            try:
                opened(configuration).register(folder)
                outcomes.add("registered")
            except AssayError as error:
                assert "space" in str(error) or "full" in str(error)
                outcomes.add("refused")
            filler.unlink()
            registry = opened(configuration)
            registry.reconcile()
            client = mlflow.MlflowClient(configuration.tracking_uri, configuration.tracking_uri)
            assert (versions(client) == [1]) == (registry.champion(*PAIR) == 1)
            assert by_alias(client, "champion") == registry.champion(*PAIR)
            registry.register(folder)
    assert outcomes == {"registered", "refused"}


REGISTER = """
import sys, time
from pathlib import Path
from models.configuration import load_configuration
from serving import registry
home, folder, stop_in = sys.argv[1:4]
configuration = load_configuration(Path("mlflow.yaml"), {"ASSAY_HOME": home})
class Accepted:
    accepted, reason = True, ""
opened = registry.Registry(configuration, actor=folder, checker=lambda *arguments: Accepted)
def stop(*arguments, **options):
    print("stopped", flush=True)
    time.sleep(120)
if stop_in == "flavor":
    registry._log_flavor = stop
elif stop_in == "version":
    make = registry.MlflowStore.create_version
    registry.MlflowStore.create_version = lambda *a, **o: (make(*a, **o), stop())
elif stop_in == "alias":
    registry.MlflowStore.set_alias = stop
print("ready", flush=True)
if stop_in == "wait":
    sys.stdin.readline()
print(opened.register(Path(folder)).version)
"""


def start(home: Path, folder: Path, stop_in: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    arguments = [sys.executable, "-c", REGISTER, str(home), str(folder), stop_in]
    return subprocess.Popen(arguments, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("stop_in", ["flavor", "version", "alias"])
def test_a_registration_that_is_killed_is_gone_or_completed(
    state: Configuration, client: mlflow.MlflowClient, write: Writer, opened: Opener, stop_in: str
) -> None:
    with start(state.home, write(), stop_in) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "stopped\n"]
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    registry = opened(state)
    drifts = registry.reconcile()
    if stop_in == "alias":
        assert [(drift.cause, drift.expected) for drift in drifts] == [("interrupted", 1)]
        assert registry.champion(*PAIR) == by_alias(client, "champion") == 1
        registry.open_champion(*PAIR)
    else:
        assert drifts == ()
        nothing_registered(client, state)
    assert registry.register(write(slope=9.0, test_mse=0.5)).alias == "champion"


def test_processes_that_start_at_once_on_a_fresh_state_leave_one_champion(
    configuration: Configuration, write: Writer
) -> None:
    """Two pipelines: migrations, key pair, experiment and promotion all at once."""
    mses = [1.0, 0.8]
    started = [start(configuration.home, write(test_mse=mse, slope=mse), "wait") for mse in mses]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    numbers = []
    for process in started:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        numbers.append(int(output))
    assert sorted(numbers) == [1, 2]
    registry = Registry(configuration)
    assert registry.reconcile() == ()
    assert registry.champion(*PAIR) == numbers[1], "the one with the lower error, whoever came first"
    assert len(registry.history()) in (5, 6)
    client = mlflow.MlflowClient(configuration.tracking_uri, configuration.tracking_uri)
    assert by_alias(client, "champion") == numbers[1]
    Ledger(configuration.ledger_path, configuration.public_key_path).verify()


def test_a_folder_in_the_databases_place_is_named(configuration: Configuration) -> None:
    path = configuration.home / "mlflow.db"
    path.mkdir(parents=True)
    for ask in (MlflowStore, require_own_home):
        with pytest.raises(InputError) as caught:
            ask(configuration)
        assert str(caught.value) == (f"database must be a file, got a folder ({path}); move it away, or name another "
                                     "one in tracking.uri of mlflow.yaml")


def test_a_server_that_cannot_be_reached_is_named(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(AssayError, match=r"registry must be reachable, got .*127\.0\.0\.1"):
        MlflowStore(replace(configuration, tracking_uri="http://127.0.0.1:9"))


@pytest.mark.parametrize(("number", "digest", "kept"), [
    ("1", "a" * 64, True), ("1", "b" * 64, False), ("2", "a" * 64, False), ("1", None, True), ("1", "edited", True)])
def test_what_the_ledger_knows_is_discarded_only_where_its_digest_says_that_it_is_another(
        number: str, digest: str | None, kept: bool) -> None:
    tags = {} if digest is None else {"bundle_sha256": digest}
    assert _is_kept(SimpleNamespace(version=number, tags=tags), {1: "a" * 64}) is kept
