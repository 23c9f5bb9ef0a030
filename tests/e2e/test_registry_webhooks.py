"""MLflow's own registry webhooks, from a real server on loopback: what they tell of a registration by Assay."""

import base64
import hashlib
import hmac
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
import requests
from cryptography.fernet import Fernet
from mlflow.entities.webhook import WebhookAction, WebhookEntity, WebhookEvent

from models.configuration import load_configuration
from recording.loopback import free_port
from recording.processes import Guard
from serving.registry import Registry
from tests.components.steps import IGNORED_WARNING
from tests.e2e.processes import wait_until
from tests.e2e.services import MOST_SECONDS, Server
from tests.pipelines.webhook_receiver import Receiver, receiver
from tests.serving.conftest import ROOT, accept, write_bundle

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

SECRET = "s3cret"
EVENTS = [WebhookEvent(WebhookEntity.MODEL_VERSION, WebhookAction.CREATED),
          WebhookEvent(WebhookEntity.MODEL_VERSION_ALIAS, WebhookAction.CREATED)]


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).ok
    except requests.ConnectionError:
        return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Address of MLflow on sqlite that may post to this machine without TLS."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
               "--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.db'}",
               "--artifacts-destination", str(tmp_path / "artifacts")]
    environment = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                   "MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": Fernet.generate_key().decode(),
                   "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "https,http", "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true"}
    with Guard() as guard:
        made = Server("mlflow", guard, command, lambda: _answers(url), port, environment)
        made.start()
        yield url
        made.kill()


def _told(found: Receiver) -> dict[tuple[str, str], dict[str, str]]:
    """What was posted, by entity and alias, after its signature was checked as the recipe says."""
    told = {}
    for headers, body in found.posts:
        signed = f"{headers['X-MLflow-Delivery-Id']}.{headers['X-MLflow-Timestamp']}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
        assert hmac.compare_digest(expected, headers["X-MLflow-Signature"])
        content = json.loads(body)
        told[f"{content['entity']}.{content['action']}", content["data"].get("alias", "")] = content["data"]
    return told


def test_a_registration_is_told_with_its_version_and_aliases(tmp_path: Path, server: str) -> None:
    text = (ROOT / "mlflow.yaml").read_text()
    text = text.replace("sqlite:///mlflow.db", server).replace("artifacts: artifacts", "artifacts: mlflow-artifacts:/")
    (tmp_path / "mlflow.yaml").write_text(text)
    with receiver() as found:
        mlflow.MlflowClient(server, server).create_webhook("assay", found.url, EVENTS, secret=SECRET)
        registry = Registry(load_configuration(tmp_path / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path / "home")}),
                            checker=accept)
        registry.register(write_bundle(tmp_path / "bundle"))
        wait_until(lambda: ("model_version_alias.created", "champion") in _told(found), MOST_SECONDS,
                   "the champion's alias is told")
    told = _told(found)
    version = told["model_version.created", ""]
    alias = told["model_version_alias.created", "champion"]
    for one in (version, alias):
        assert (one["name"], one["version"]) == ("assay.performance.redis", "1")
