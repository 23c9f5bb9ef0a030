"""Input that only a step can refuse, through the real command: exit code 2, one line, nothing registered."""

import json
import time
from pathlib import Path

import pytest

from recording.loopback import free_port
from tests.e2e import tiny
from tests.e2e.processes import Project, new_project, processes_of
from tests.feature_store.sources.recorded import metric_map

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = new_project(tmp_path_factory.mktemp("bad"))
    (project.folder / "empty.parquet").touch()
    tiny.write_yaml(metric_map(time.time() - 3600), project.folder / "map.yaml")
    return project


def no_model_is_left(project: Project) -> bool:
    return not list(project.home.rglob("*.onnx")) and not project.configuration.ledger_path.exists()


def test_an_empty_file(project: Project) -> None:
    done = project.call("run", "--task", "tiny.yaml", "--telemetry", "empty.parquet", "--name", "empty")
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: telemetry file must hold a table, got an empty file (")
    assert f"step ingest; log: {project.run_folder('empty') / 'kfp.log'})" in line
    assert "ingest: FAILED" in done.stdout and no_model_is_left(project)


def test_a_prometheus_server_that_is_down(project: Project) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = project.call("run", "--task", "tiny.yaml", "--telemetry", url, "--mapping", "map.yaml", "--name", "down",
                        "--json")
    assert done.returncode == 2, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["exit_code"] == 2
    assert f"server must answer, got ConnectionError after 4 tries ({url}, query_range)" in document["error"]
    assert no_model_is_left(project) and processes_of(project.home) == []


def test_a_state_folder_that_cannot_be_made(project: Project, tmp_path: Path) -> None:
    """A file stands where the folder should."""
    (tmp_path / "home").write_text("")
    other = new_project(tmp_path, workloads=("redis",))
    done = other.call("run", "--task", "tiny.yaml", "--telemetry", "samples.parquet")
    assert done.returncode == 2 and done.stderr.startswith("error: run: expected a folder that can be written")
    assert "Traceback" not in done.stderr
