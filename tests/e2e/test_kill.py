"""SIGKILL at each stage, and a full disk: nothing of the run lives on, nothing is half-registered, nothing is lost.

One state folder for all of it. The step cache makes each start cheap: a run goes through what earlier ones have
finished, up to the stage at which it is killed.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import mlflow
import psutil
import pytest

from pipelines.run_display import STAGES
from serving.bundle import check_bundle
from serving.ledger import Ledger
from tests.components.small_disk import fill, mounted
from tests.components.steps import IGNORED_WARNING
from tests.e2e.processes import (
    END_S,
    RUN_TIMEOUT_S,
    Project,
    finish,
    kill_command,
    new_project,
    processes_of,
    wait_until,
)

pytestmark = [pytest.mark.timeout(1800), pytest.mark.filterwarnings(IGNORED_WARNING)]

RUN = ("run", "--task", "tiny.yaml", "--telemetry", "samples.parquet")
DISK_KB = 128 * 1024
PAIR = ("tiny", "redis")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Its state folder is a small disk, where one can be mounted."""
    folder = tmp_path_factory.mktemp("kill")
    with mounted(folder / "home", DISK_KB):
        yield new_project(folder, workloads=("redis",))


def ledger(project: Project) -> Ledger:
    return Ledger(project.configuration.ledger_path, project.configuration.public_key_path)


def versions(project: Project) -> list[int]:
    uri = project.configuration.tracking_uri
    found = mlflow.MlflowClient(uri, uri).search_model_versions("name = 'assay.tiny.redis'")
    return sorted(int(version.version) for version in found)


def is_at(project: Project, name: str, stage: str) -> bool:
    """Whether the run has begun `stage`; with `register`, whether it is in the middle of a registration."""
    begun = project.run_folder(name).exists() and stage in project.started(name)
    return begun and (stage != "register" or any(project.unfinished()))


def kill_group(process: "subprocess.Popen[str]") -> None:
    """The runner and all steps, which are a group of their own; `assay run` has to notice."""
    for child in psutil.Process(process.pid).children():
        os.killpg(child.pid, signal.SIGKILL)


def killed_at(project: Project, stage: str, kill: Callable[["subprocess.Popen[str]"], None]) -> None:
    """Starts a run, kills it at `stage`, and waits until nothing of it is left."""
    name = f"killed-at-{stage}"
    process = project.start(*RUN, "--name", name)
    try:
        wait_until(lambda: is_at(project, name, stage) or process.poll() is not None, RUN_TIMEOUT_S, stage)
        assert process.poll() is None, (stage, process.communicate())
        kill(process)
        done = finish(process, END_S)
    finally:
        process.kill()
    if kill is kill_command:
        assert done.returncode == -signal.SIGKILL
    else:
        assert done.returncode == 2 and "run the same command again to resume" in done.stderr
    wait_until(lambda: not processes_of(project.run_folder(name)), END_S, f"no process is left after {stage}")
    assert "report" not in {event["step"] for event in project.events(name) if event["event"] == "end"}


def test_a_run_killed_at_any_stage_starts_again(project: Project) -> None:
    for number, stage in enumerate(STAGES):
        killed_at(project, stage, kill_group if number % 2 else kill_command)
        ledger(project).verify()

    done = project.call(*RUN, "--name", "after")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not {"ingest", "validate", "featurize", "audit", "pretrain", "finetune"} & project.started("after")

    standing = ledger(project).standing(*PAIR)
    assert standing.champion is not None and standing.champion in standing.registered
    assert sorted(standing.registered) == versions(project)
    uri = project.configuration.tracking_uri
    model = mlflow.MlflowClient(uri, uri).get_registered_model("assay.tiny.redis")
    assert int(model.aliases["champion"]) == standing.champion
    assert project.unfinished() == []
    for bundle in (project.home / "bundles" / "tiny" / "redis").iterdir():
        assert not bundle.name.startswith(".")
        check_bundle(bundle, project.configuration.public_key_path, deep=True)


def test_ctrl_c_stops_everything(project: Project) -> None:
    process = project.start(*RUN, "--name", "interrupted", "--seed", "1")
    wait_until(lambda: project.run_folder("interrupted").exists() and project.started("interrupted"), RUN_TIMEOUT_S,
               "a step has begun")
    process.send_signal(signal.SIGINT)
    assert finish(process, END_S).returncode == 130
    wait_until(lambda: not processes_of(project.run_folder("interrupted")), END_S, "no process is left")


def test_a_disk_that_fills_up_at_registration(project: Project) -> None:
    """tests/components/test_full_disk.py: with room again the same data is registered."""
    if not project.home.is_mount():
        pytest.skip("a small file system cannot be mounted here (needs root)")
    before = ledger(project).verify()
    process = project.start(*RUN, "--name", "full")
    wait_until(lambda: (project.run_folder("full").exists() and "register" in project.started("full"))
               or process.poll() is not None, RUN_TIMEOUT_S, "register")
    filler = fill(project.home)
    done = finish(process)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "disk: expected more room, got 0.0 MB free" in done.stderr
    assert "make room and run the same command again to resume" in done.stderr
    assert project.call("run", "--task", "tiny.yaml", "--telemetry", "samples.parquet").returncode == 2
    filler.unlink()
    assert ledger(project).verify() == before
    assert sorted(ledger(project).standing(*PAIR).registered) == versions(project)
    assert not processes_of(project.home)
