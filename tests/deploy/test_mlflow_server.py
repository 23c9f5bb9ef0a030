"""MLflow's server as deploy/kustomize/pipeline starts it, here on sqlite, and the registry that talks to it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests
import yaml

from deploy.manifests import HERE
from models.configuration import load_configuration
from recording.loopback import free_port
from serving.registry import Registry
from tests.components.steps import IGNORED_WARNING
from tests.serving.conftest import accept, write_bundle

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)
MOST_SECONDS = 120  # of its start, which migrates a fresh database


def command(port: int, artifacts: Path) -> list[str]:
    """The Deployment's, with a port, a name and a folder of the test's own."""
    documents = yaml.safe_load_all((HERE / "kustomize/pipeline/mlflow.yaml").read_text())
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    program, *words = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    own = {"--host": "127.0.0.1", "--port": str(port), "--artifacts-destination": str(artifacts)}
    pairs = [word.partition("=") for word in words]
    assert own.keys() <= {name for name, _, _ in pairs}
    own["--allowed-hosts"] = next(value for name, _, value in pairs if name == "--allowed-hosts") + f",localhost:{port}"
    changed = [f"{name}={own.get(name, value)}" if sign else name for name, sign, value in pairs]
    return [str(Path(sys.executable).with_name(program)), *changed]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    url = f"http://localhost:{port}"
    with (folder / "log").open("w") as log, subprocess.Popen(
            command(port, folder / "artifacts"), cwd=folder, stdout=log, stderr=log,
            env={**os.environ, "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{folder / 'mlflow.db'}"}) as process:
        try:
            until = time.monotonic() + MOST_SECONDS
            while not is_ready(url):
                assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()


def is_ready(url: str) -> bool:
    """As the Deployment's probe asks."""
    try:
        return requests.get(f"{url}/health", timeout=5).ok
    except requests.ConnectionError:
        return False


@pytest.mark.parametrize(("host", "status"), [("mlflow:5000", 200), ("mlflow.kubeflow:5000", 200), ("other", 403)])
def test_it_answers_to_its_names_in_the_cluster_alone(server: str, host: str, status: int) -> None:
    address = f"{server}/api/2.0/mlflow/experiments/search?max_results=1"
    assert requests.get(address, headers={"Host": host}, timeout=20).status_code == status


def test_a_bundle_is_registered_and_comes_back_from_it(server: str, tmp_path: Path) -> None:
    shipped = load_configuration(HERE.parent / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path / "home")})
    configuration = replace(shipped, tracking_uri=server, artifact_root="mlflow-artifacts:/assay")
    registry = Registry(configuration, checker=accept)
    assert registry.register(write_bundle(tmp_path / "bundle")).version == 1
    registry.download_bundle("performance", "redis", tmp_path / "back")
    assert (tmp_path / "back" / "model.onnx").read_bytes() == (tmp_path / "bundle" / "model.onnx").read_bytes()
