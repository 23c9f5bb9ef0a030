"""A whole run against what a cluster has: MLflow over HTTP with basic-auth on PostgreSQL, artifacts and telemetry in an
object store, the ledger in a table. Then what happens where one of them goes away (in each step of a run:
test_killed_services.py), and where several act at once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from feature_store.errors import AssayError, SourceError
from feature_store.sources.data_set import version_of
from feature_store.sources.object_store import as_local
from serving.registry import Registry
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.processes import Project, finish, wait_until
from tests.e2e.services import BUCKET, IS_INSTALLED
from tests.serving.conftest import accept, write_bundle

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings(IGNORED_WARNING),
              pytest.mark.skipif(not IS_INSTALLED, reason="needs Debian's postgresql")]

TELEMETRY = f"s3://{BUCKET}/telemetry/samples.parquet"
REGISTER = """
import os, sys, time
from pathlib import Path
from models.configuration import load_configuration
from serving.registry import Registry
from tests.serving.conftest import accept
configuration, bundle, start = sys.argv[1:]
registry = Registry(load_configuration(Path(configuration)), checker=accept)
print("ready", flush=True)
while not Path(start).exists():
    time.sleep(0.01)
made = registry.register(Path(bundle))
print(made.version, made.alias, flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def trained(cluster: Cluster) -> tuple[Project, "subprocess.CompletedProcess[str]"]:
    project = cluster.machine("trained")
    cluster.services.bucket.upload_file(str(project.folder / "samples.parquet"), BUCKET, "telemetry/samples.parquet")
    (project.folder / "samples.parquet").unlink()
    return project, project.call("run", "--task", "tiny.yaml", "--telemetry", TELEMETRY, "--name", "first", "--json")


def test_a_whole_run_ends_with_a_champion(cluster: Cluster, trained: Any) -> None:
    project, done = trained
    assert done.returncode == 0, done.stdout + done.stderr
    (entry,) = json.loads(done.stdout)["entries"]
    assert (entry["status"], entry["verdict"]) == ("registered", "PROVED")
    assert (entry["version"], entry["alias"]) == (1, "champion")
    assert [one.move.action for one in cluster.ledger.verify()] == ["register", "challenger", "champion"]
    assert cluster.aliases("assay.tiny.redis")["champion"] == 1
    assert not list(project.home.rglob("promotions.jsonl*")), "the ledger is in the database alone"


def test_the_bundle_is_in_the_object_store_and_comes_back(cluster: Cluster, trained: Any, tmp_path: Path) -> None:
    assert {"contract.json", "proof.npz", "model.onnx", "model.sig"} <= cluster.objects("artifacts/")
    stranger = cluster.machine("stranger")  # has no copy
    Registry(stranger.configuration).download_bundle("tiny", "redis", tmp_path / "back")
    kept = trained[0].home / "bundles/tiny/redis/1"
    assert (tmp_path / "back/model.onnx").read_bytes() == (kept / "model.onnx").read_bytes()


def test_the_run_names_its_telemetry_by_address(trained: Any) -> None:
    source = json.loads(next((trained[0].run_folder("first") / "outputs").rglob("source.json")).read_text())
    assert source["telemetry"] == "samples.parquet"
    request = json.loads((trained[0].run_folder("first") / "request.json").read_text())
    assert request["arguments"]["telemetry"] == TELEMETRY


def test_an_object_that_is_not_there_is_one_line(cluster: Cluster) -> None:
    with pytest.raises(SourceError, match=r"telemetry must be an object that can be read.*s3://assay/none\.parquet"):
        with as_local(f"s3://{BUCKET}/none.parquet"):
            pass


def test_a_folder_of_the_store_is_a_data_set(cluster: Cluster, tmp_path: Path) -> None:
    """Its paths name the workloads; its version follows names, sizes and times, without a look into the objects. In a
    run each shard reads its own part.
    """
    table, folder, versions = tiny.telemetry(), f"s3://{BUCKET}/parts/", []
    for name, rows in table.groupby("workload"):
        rows.drop(columns="workload").to_parquet(tmp_path / "part.parquet", index=False)
        cluster.services.bucket.upload_file(str(tmp_path / "part.parquet"), BUCKET, f"parts/workload={name}/0.parquet")
        versions += [version_of(folder), version_of(folder)]
    assert versions[0] == versions[1] != versions[2] == versions[3]
    project = cluster.machine("folder")
    tiny.write_yaml(tiny.task(), project.folder / "tiny.yaml")
    done = project.call("validate", "--task", "tiny.yaml", "--telemetry", folder, "--json")
    found = {one["name"]: (one["rows"], one["fits"]) for one in json.loads(done.stdout)["workloads"]}
    assert found == {"nginx": (300, True), "redis": (300, True)}, done.stderr
    done = project.call("run", "--task", "tiny.yaml", "--telemetry", folder, "--name", "apart", "--shards", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = project.run_folder("apart") / "outputs"
    read = [json.loads(path.read_text()) for path in outputs.rglob("samples/source.json")]
    assert sorted((list(one["workloads"]), one["others"]) for one in read) == [
        (["nginx"], ["redis"]), (["redis"], ["nginx"])]
    with pytest.raises(SourceError, match=r"telemetry must be a folder .*s3://assay/none/"):
        version_of(f"s3://{BUCKET}/none/")


def test_an_error_about_an_object_names_the_object(cluster: Cluster) -> None:
    cluster.services.bucket.put_object(Bucket=BUCKET, Key="bad.parquet", Body=b"no table")
    with pytest.raises(AssayError, match=r"got bad content \(s3://assay/bad\.parquet\)"), as_local(
            f"s3://{BUCKET}/bad.parquet") as local:
        raise AssayError(f"got bad content ({local})")


def test_a_wrong_password_is_one_clear_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = cluster.machine("wrong")
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_PASSWORD", "wordful")
        done = machine.call("history")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "$MLFLOW_TRACKING_PASSWORD" in done.stderr and "401" in done.stderr
    with monkeypatch.context() as patch:
        patch.setenv("PGPASSWORD", "wordful")
        done = machine.call("history")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert 'password authentication failed for user "assay"' in done.stderr


def bundles(folder: Path, count: int) -> list[Path]:
    """Equal ones in pairs: what two runs of one schedule make."""
    return [write_bundle(folder / str(number), slope=10.0 + number // 2, test_mse=1.0 - 0.1 * (number // 2))
            for number in range(count)]


def start_registration(machine: Project, bundle: Path, start: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", REGISTER, str(machine.folder / "mlflow.yaml"), str(bundle),
                                str(start)], cwd=tiny.ROOT, env={**os.environ, "ASSAY_HOME": str(machine.home)},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n", process.communicate()
    return process


def test_four_machines_that_register_at_once_leave_one_champion_and_a_whole_ledger(cluster: Cluster, tmp_path: Path
                                                                                  ) -> None:
    """Two pairs of equal bundles, as two runs of one schedule make them."""
    machines = [cluster.machine(f"at-once-{number}") for number in range(4)]
    started = [start_registration(machine, bundle, tmp_path / "go")
               for machine, bundle in zip(machines, bundles(tmp_path, 4), strict=True)]
    (tmp_path / "go").touch()
    for process in started:
        done = finish(process)
        assert done.returncode == 0, done.stderr
    standing = cluster.ledger.standing("performance", "redis")
    assert standing.champion is not None
    assert cluster.aliases("assay.performance.redis")["champion"] == standing.champion
    assert Registry(machines[0].configuration).registry_audit.audit() == ()
    assert all(machine.unfinished() == [] for machine in machines)


def test_a_reviewer_and_a_schedule_that_promote_at_once_make_one_move(cluster: Cluster, tmp_path: Path) -> None:
    """The second finds that it is champion already."""
    reviewer, schedule = (cluster.machine(name, "manual") for name in ("reviewer", "schedule"))
    registry = Registry(reviewer.configuration, checker=accept)
    made = registry.register(write_bundle(tmp_path / "bundle", workload="nginx"))
    assert made.alias == "challenger"
    client = mlflow.MlflowClient(cluster.services.mlflow_url, cluster.services.mlflow_url)
    client.set_model_version_tag("assay.performance.nginx", "1", "assay.review", "approve")
    both = [reviewer.start("promote", "--task", "performance", "--workload", "nginx"),
            schedule.start("promote", "--pending")]
    by_hand, pending = (finish(process) for process in both)
    assert by_hand.returncode in (0, 1), by_hand.stderr
    assert pending.returncode in (0, 1), pending.stderr
    actions = [one.move.action for one in cluster.ledger.history("performance", "nginx")]
    assert actions == ["register", "challenger", "approve"]
    assert cluster.aliases("assay.performance.nginx") == {"champion": 1}


class TestAway:
    """Services that are killed, the object store last: what it held is in memory."""

    @pytest.fixture(autouse=True)
    def _back(self, cluster: Cluster) -> Iterator[None]:
        yield
        for server in (cluster.services.database, cluster.services.mlflow):
            server.start()

    def test_mlflow_killed_during_a_registration_is_waited_for(self, cluster: Cluster, tmp_path: Path) -> None:
        machine = cluster.machine("waits")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "7")  # MLflow's own
            process = start_registration(machine, write_bundle(tmp_path / "bundle", workload="mysql"), tmp_path / "go")
        (tmp_path / "go").touch()
        wait_until(lambda: machine.unfinished() or process.poll() is not None, 60, "the registration has begun")
        cluster.services.mlflow.kill()
        cluster.services.mlflow.start()
        done = finish(process)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "1 champion", done.stderr
        assert len(cluster.ledger.history("performance", "mysql")) == 3 and machine.unfinished() == []

    def test_mlflow_that_stays_away_is_one_line_and_the_next_run_carries_on(
            self, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        machine, bundle = cluster.machine("gives-up"), write_bundle(tmp_path / "bundle", workload="groonga")
        registry = Registry(machine.configuration, checker=accept)
        killed_at(registry, "create_version", cluster.services.mlflow.kill)
        with pytest.raises(AssayError, match=r"registry must .*(Connection refused|Max retries exceeded)") as caught:
            registry.register(bundle)
        assert "\n" not in str(caught.value) and len(machine.unfinished()) == 1
        assert cluster.ledger.history("performance", "groonga") == ()
        cluster.services.mlflow.start()
        assert Registry(machine.configuration, checker=accept).register(bundle).alias == "champion"
        assert machine.unfinished() == []

    def test_postgresql_killed_after_the_ledgers_entry_leaves_aliases_behind(
            self, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        machine, bundle = cluster.machine("no-database"), write_bundle(tmp_path / "bundle", workload="search")
        registry = Registry(machine.configuration, checker=accept)
        killed_at(registry, "set_alias", cluster.services.database.kill)
        made = registry.register(bundle)
        assert made.version == 1 and "The move is in the ledger, entry" in made.reason
        cluster.services.database.start()
        assert cluster.ledger.champion_of("performance", "search") == 1
        assert {drift.alias for drift in Registry(machine.configuration).reconcile()} == {"champion"}
        assert cluster.aliases("assay.performance.search") == {"champion": 1}

    def test_a_promotion_without_the_database_moves_nothing(
            self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        machine = cluster.machine("promotes")
        before, registry = cluster.ledger.verify(), Registry(machine.configuration, checker=accept)
        version = cluster.ledger.standing("performance", "redis").challenger
        killed_at(registry, "location", cluster.services.database.kill)
        with pytest.raises(AssayError) as caught:
            registry.promote("performance", "redis", version)
        assert "\n" not in str(caught.value)
        cluster.services.database.start()
        assert cluster.ledger.verify() == before

    def test_without_the_object_store_nothing_is_registered(self, cluster: Cluster, tmp_path: Path) -> None:
        machine, bundle = cluster.machine("no-objects"), write_bundle(tmp_path / "bundle", workload="nginx", slope=3.0)
        registry, before = Registry(machine.configuration, checker=accept), cluster.ledger.verify()
        cluster.services.objects.kill()
        with pytest.raises(AssayError) as caught:
            registry.register(bundle)
        assert "\n" not in str(caught.value) and "registry must give a bundle" in str(caught.value)
        assert cluster.ledger.verify() == before


def killed_at(registry: Registry, method: str, kill: Any) -> None:
    """Kills a server as the registry is about to call its store's `method` for the first time."""
    store, calls = registry._store, list[int]()
    call = getattr(store, method)

    def killing(*arguments: Any, **options: Any) -> Any:
        if not calls:
            calls.append(1)
            kill()
        return call(*arguments, **options)

    setattr(store, method, killing)
