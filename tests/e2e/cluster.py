"""Machines that share the services of a cluster (services.py): each has a state folder of its own, all have one key."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mlflow
import pytest

from serving.keys import create_key_pair
from serving.ledger import Ledger
from tests.e2e import tiny
from tests.e2e.processes import Project, new_project
from tests.e2e.services import BUCKET, Services, services


@dataclass(frozen=True)
class Cluster:
    """The services, and machines that use them."""

    services: Services
    folder: Path

    def machine(self, name: str, approval: str = "auto") -> Project:
        made = new_project(self.folder / name, ("redis",), approval)
        written = tiny.configuration(approval)
        written["tracking"] = {"uri": self.services.mlflow_url, "artifacts": f"s3://{BUCKET}/artifacts"}
        written["ledger"] = self.ledger_address
        written["keys"] = {"private": str(self.folder / "assay.key"), "public": str(self.folder / "assay.pub")}
        tiny.write_yaml(written, made.folder / "mlflow.yaml")
        return made

    @property
    def ledger_address(self) -> str:
        return self.services.database_url.removesuffix("/postgres") + "/mlflow"

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.ledger_address, self.folder / "assay.pub", self.folder / "assay.key")

    def aliases(self, model: str) -> dict[str, int]:
        client = mlflow.MlflowClient(self.services.mlflow_url, self.services.mlflow_url)
        return {alias: int(version) for alias, version in client.get_registered_model(model).aliases.items()}

    def objects(self, prefix: str) -> set[str]:
        listed = self.services.bucket.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return {Path(one["Key"]).name for one in listed.get("Contents", [])}


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """All services, started, and what their clients need in the environment."""
    create_key_pair(folder / "assay.key", folder / "assay.pub")
    with pytest.MonkeyPatch.context() as patch, services() as made:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        # a call that fails is tried again for 15 s, not for four minutes
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
        yield Cluster(made, folder)
