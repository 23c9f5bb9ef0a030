"""Each service killed in the middle of each step: a line that names it, and once it is back the step goes on as if
nothing had been. docs/reference/faults.md says what a user sees of it.

The steps are called in this process (tests/components/steps.py), so that a service can die between two requests of one
step; their state is a machine's that keeps no bundles, so that nothing but the services holds what they need.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import mlflow
import pytest

from components.progress import PROGRESS_VARIABLE
from components.report import run_report
from feature_store.errors import AssayError
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.registry import Registry
from tests.components.small_disk import fill
from tests.components.steps import IGNORED_WARNING, Steps
from tests.e2e import tiny
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.processes import RUN_TIMEOUT_S, Project, finish, wait_until
from tests.e2e.services import BUCKET, IS_INSTALLED, PASSWORD, database, killed_at
from tests.serving.test_ledger import move

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings(IGNORED_WARNING),
              pytest.mark.skipif(not IS_INSTALLED, reason="needs Debian's postgresql")]

TELEMETRY = f"s3://{BUCKET}/telemetry/samples.parquet"
STEPS = ("ingest", "gate", "register", "pages", "report")
# (killed, step) -> at whose request, and the how many-th of it: in the middle of what the step asks. Where nothing is
# named the step asks nothing of the service.
MIDDLE = {
    ("objects", "ingest"): ("objects", 1), ("objects", "gate"): ("objects", 8),
    ("objects", "register"): ("objects", 55),  # of 62: the champion is read, to be compared with
    ("objects", "pages"): ("objects", 1),
    ("mlflow", "gate"): ("mlflow", 3), ("mlflow", "register"): ("mlflow", 19), ("mlflow", "pages"): ("mlflow", 2),
    ("database", "gate"): ("database", 2), ("database", "register"): ("database", 5),
    ("database", "pages"): ("mlflow", 2),
}
SERVICES = ("objects", "mlflow", "database")
DISK_KB = 128 * 1024
MOST_SECONDS = 60.0  # for one call that is tried again once; pyarrow alone gives up after 7 s


@dataclass(frozen=True)
class Machine:
    """A run's steps against the cluster's services, and what they have left there."""

    cluster: Cluster
    project: Project
    steps: Steps

    def call(self, step: str, scheduled: bool = False) -> str:
        """Why the step did not do its work; "" where it did."""
        for kept in (self.project.home / "bundles", self.steps.folder / ("samples" if step == "ingest" else "page")):
            shutil.rmtree(kept, ignore_errors=True)
        at = self.steps.folder.joinpath
        try:
            if step == "report":
                run_report(self.steps.task_yaml, "here", at("features"), at("gated"), at("registered"), [at("pages")],
                           at("page"))
            elif step == "register":
                (entry,) = self.steps.register(scheduled).values()
                return str(entry["message"]) if entry["status"] == "error" else ""
            else:
                getattr(self.steps, step)()
        except AssayError as error:
            return str(error)
        return ""

    def is_whole(self) -> bool:
        """One champion, which the ledger names too; a version for each registration in it, whole; nothing else."""
        ledger, model = self.cluster.ledger, "assay.tiny.redis"
        standing = ledger.standing("tiny", "redis")
        uri = self.cluster.services.mlflow_url
        versions = mlflow.MlflowClient(uri, uri).search_model_versions(f"name = '{model}'")
        ledger.verify()
        return (Registry(self.project.configuration).registry_audit.audit() == () and self.project.unfinished() == []
                and self.cluster.aliases(model)["champion"] == standing.champion
                and {int(version.version) for version in versions} == {*standing.known})

    def pages(self) -> list[bool]:
        """Whether each version's MLflow run has its page."""
        uri = self.cluster.services.mlflow_url
        client = mlflow.MlflowClient(uri, uri)
        return ["redis.html" in {item.path for item in client.list_artifacts(version.run_id)}
                for version in client.search_model_versions("name = 'assay.tiny.redis'")]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With a champion, so that the gate has one to compare with."""
    with running_cluster(tmp_path_factory.mktemp("killed")) as cluster, pytest.MonkeyPatch.context() as patch:
        project = cluster.machine("machine")
        samples, key = project.folder / "samples.parquet", TELEMETRY.removeprefix(f"s3://{BUCKET}/")
        cluster.services.bucket.upload_file(str(samples), BUCKET, key)
        for name in ("ASSAY_HOME", "ASSAY_CONFIG"):
            patch.setenv(name, project.environment[name])
        patch.setenv(PROGRESS_VARIABLE, str(project.folder / "events.jsonl"))
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        steps = Steps(project.folder / "champion", tiny.task(("redis",)), TELEMETRY, ("redis",))
        made = Machine(cluster, project, steps)
        made.steps.train()
        assert made.steps.gate() is True
        assert made.steps.register()["redis"]["alias"] == "champion"
        made.steps.report()
        yield made


@pytest.fixture(scope="module", params=SERVICES)
def run(machine: Machine, request: pytest.FixtureRequest) -> tuple[str, Machine]:
    """The service to kill, and a run of its own, trained and not yet gated."""
    seed = 1 + SERVICES.index(request.param)
    steps = replace(machine.steps, folder=machine.project.folder / request.param, seed=seed)
    steps.train()
    return request.param, replace(machine, steps=steps)


@pytest.mark.parametrize("step", STEPS)
def test_a_service_that_is_killed_in_a_step_is_one_line_and_the_step_goes_on_when_it_is_back(
        run: tuple[str, Machine], step: str) -> None:
    name, machine = run
    asked, number = MIDDLE.get((name, step), (name, 1))
    server, asked_server = (getattr(machine.cluster.services, service) for service in (name, asked))
    before, began = machine.cluster.ledger.verify(), time.monotonic()
    with killed_at(server, number, asked_server) as requests:
        message = machine.call(step)
    seconds = time.monotonic() - began
    server.start()
    if (name, step) not in MIDDLE:
        assert requests == [] and message == ""
        return
    assert len(requests) >= number and message and "\n" not in message and seconds < MOST_SECONDS
    assert asked != "mlflow" or len(requests) == number + 1, "it is tried again once, as its variable says, and no more"
    assert str(asked_server.port) in message, "it says where"
    assert machine.cluster.ledger.verify() == before
    for again in STEPS[1:STEPS.index(step) + 1] or (step,):  # the same command; what is before comes from the cache
        assert machine.call(again, scheduled=name == "mlflow") == ""
    assert machine.is_whole()
    assert step != "pages" or all(machine.pages())


def test_a_command_whose_services_are_all_killed_goes_on_when_it_is_given_again(machine: Machine) -> None:
    project, services = machine.project, machine.cluster.services
    command = ("run", "--task", "tiny.yaml", "--telemetry", TELEMETRY, "--seed", "7")
    process = project.start(*command, "--name", "killed")
    wait_until(lambda: process.poll() is not None or (project.run_folder("killed").exists()
                                                      and "finetune" in project.started("killed")), RUN_TIMEOUT_S,
               "the telemetry has been read")
    servers = (services.mlflow, services.objects, services.database)
    for server in servers:
        server.kill()
    done = finish(process)
    for server in reversed(servers):
        server.start()
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stdout + done.stderr
    for said in (services.mlflow_url, "step gate", "the same command goes on once it answers"):
        assert said in done.stderr
    done = project.call(*command, "--name", "again")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finetune" not in project.started("again"), "from the cache"
    assert machine.is_whole() and all(machine.pages())


def test_a_full_disk_under_postgresql_is_one_line_and_with_room_the_ledger_goes_on(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    create_key_pair(tmp_path / "assay.key", tmp_path / "assay.pub")
    with database(disk_kb=DISK_KB) as (server, url):
        assert server.folder is not None
        if not server.folder.is_mount():
            pytest.skip("a small file system cannot be mounted here (needs root)")
        ledger = Ledger(url, tmp_path / "assay.pub", tmp_path / "assay.key")
        ledger.append([move("register", 1)])
        filler = fill(server.folder)
        with pytest.raises(AssayError, match=r"ledger must be written.*No space left.*127\.0\.0\.1") as caught:
            for version in range(2, 100):
                ledger.append([replace(move("register", version), reason="x" * 8000)])
        assert "\n" not in str(caught.value)
        filler.unlink()
        before = len(ledger.verify())
        ledger.append([move("register", 100)])
        assert len(ledger.verify()) == before + 1
