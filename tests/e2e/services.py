"""The services of a cluster on loopback: PostgreSQL, an S3 API (moto), MLflow with its basic-auth over both.

A guard of the recorder ends them with the test, however that ends. PostgreSQL refuses to run as root: then it runs as
Debian's user `postgres`, in a folder of its own that this user can reach.
"""

import http.client
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import boto3
import psycopg
import pytest
import requests

from feature_store.sources import object_store
from recording.loopback import free_port
from recording.processes import Guard, Running
from tests.components.small_disk import mounted
from tests.e2e.processes import wait_until

BUCKET = "assay"
USER, PASSWORD = "assay", "wordless-3f9c"
TRIES = 3
MOST_SECONDS = 180.0  # until a server answers; MLflow migrates a fresh database
_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))  # Debian's, one folder a version
_AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups") if os.geteuid() == 0 else ()
IS_INSTALLED = bool(_PROGRAMS)


@dataclass
class Server:
    """A server that can be killed and started again with the same data."""

    name: str
    guard: Guard
    command: list[str]
    is_ready: Callable[[], bool]
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None  # that it runs in
    running: Running | None = None

    @property
    def log(self) -> Path:
        return self.guard.folder / f"{self.name}.log"

    def start(self) -> None:
        """Does nothing where it runs. Tries again where it ends: while it was away, another may have used its port."""
        for _ in range(TRIES):
            if self.running is None or not self.running.is_alive():
                self.running = self.guard.start(self.name, self.command, output=self.log, folder=self.folder,
                                                environment=self.environment)
            wait_until(lambda: not self.running.is_alive() or self.is_ready(), MOST_SECONDS, f"{self.name} answers")
            if self.running.is_alive():
                return
        raise AssertionError(self.log.read_text())

    def kill(self) -> None:
        """SIGKILL to it and all that it started."""
        assert self.running is not None
        self.guard.stop([self.running], grace_s=0)


class ObjectStore(Server):
    """moto keeps objects in memory: what it held is there again after a start, as with a store that has a disk."""

    held: Mapping[str, bytes] | None = None

    @property
    def bucket(self) -> "boto3.client":
        return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1",
                            aws_access_key_id=USER, aws_secret_access_key=PASSWORD)

    def start(self) -> None:
        super().start()
        if self.held is not None:
            self.bucket.create_bucket(Bucket=BUCKET)
            for key, content in self.held.items():
                self.bucket.put_object(Bucket=BUCKET, Key=key, Body=content)
            self.held = None

    def kill(self) -> None:
        if self.running is not None and self.running.is_alive():
            pages = self.bucket.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
            self.held = {one["Key"]: self.bucket.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read()
                         for page in pages for one in page.get("Contents", [])}
        super().kill()


@contextmanager
def killed_at(server: Server, request: int, asked: Server) -> Iterator[list[int]]:
    """Kills `server` as this process is about to send `asked` its `request`-th request, from 1.

    A connection to PostgreSQL is one request, and the content of an object that is read as telemetry.

    Yields:
        The numbers of the requests so far.
    """
    seen: list[int] = []

    def before(call: Callable[..., Any], port: Callable[..., object]) -> Callable[..., Any]:
        def asking(*arguments: Any, **options: Any) -> Any:
            if port(*arguments, **options) == asked.port:
                seen.append(len(seen) + 1)
                if seen[-1] == request:
                    server.kill()
            return call(*arguments, **options)

        return asking

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http.client.HTTPConnection, "putrequest",
                      before(http.client.HTTPConnection.putrequest, lambda connection, *_, **__: connection.port))
        patch.setattr(psycopg, "connect", before(psycopg.connect, lambda *_, **options: int(options["port"])))
        copied = before(shutil.copyfileobj, lambda *_: urlsplit(os.environ["AWS_ENDPOINT_URL"]).port)
        patch.setattr(object_store, "shutil", SimpleNamespace(copyfileobj=copied))
        yield seen


@dataclass(frozen=True)
class Services:
    """Addresses, and what a client needs in its environment."""

    database: Server
    objects: ObjectStore
    mlflow: Server
    database_url: str
    mlflow_url: str
    environment: Mapping[str, str]

    @property
    def bucket(self) -> "boto3.client":
        return self.objects.bucket


def postgresql(guard: Guard, folder: Path) -> tuple[Server, str]:
    """A fresh database server, not yet started, and its address without the password.

    Args:
        folder: an empty one that its user owns.
    """
    (folder / "password").write_text(PASSWORD)
    port, programs = free_port(), _PROGRAMS[-1]
    status = guard.call("initdb", [
        *_AS_POSTGRES, str(programs / "initdb"), "--no-sync", f"--username={USER}", "--auth=scram-sha-256",
        f"--pwfile={folder / 'password'}", "--encoding=UTF8", "--no-locale", str(folder / "data")],
        output=guard.folder / "initdb.log")
    assert status == 0, (guard.folder / "initdb.log").read_text()
    url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
    # no power cut is tried here: what was written survives a killed server without fsync too
    command = [*_AS_POSTGRES, str(programs / "postgres"), "-D", str(folder / "data"), "-h", "127.0.0.1",
               "-p", str(port), "-c", "unix_socket_directories=", "-c", "fsync=off"]
    return Server("postgresql", guard, command, lambda: _connects(url), port, folder=folder), url


def _connects(url: str) -> bool:
    try:
        psycopg.connect(url, password=PASSWORD, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def _responds(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code < 500
    except requests.ConnectionError:
        return False


@contextmanager
def database(disk_kb: int | None = None) -> Iterator[tuple[Server, str]]:
    """A started PostgreSQL alone, and its address; on a disk of this size of its own, where that can be mounted."""
    with Guard() as guard, _reachable_folder() as folder, ExitStack() as stack:
        if disk_kb is not None:
            stack.enter_context(mounted(folder := folder / "disk", disk_kb))
            _hand_over(folder)
        server, url = postgresql(guard, folder)
        server.start()
        yield server, url
        server.kill()


@contextmanager
def services() -> Iterator[Services]:
    """All of them, started."""
    with Guard() as guard, _reachable_folder() as folder:
        store, url = postgresql(guard, folder)
        store.start()
        port = free_port()
        s3 = f"http://127.0.0.1:{port}"
        objects = ObjectStore("s3", guard, [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                              lambda: _responds(s3), port)
        objects.start()
        aws = {"AWS_ENDPOINT_URL": s3, "AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD,
               "AWS_DEFAULT_REGION": "us-east-1"}
        mlflow, mlflow_url = _mlflow(guard, url, aws)
        mlflow.start()
        client = {**aws, "MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": PASSWORD, "PGPASSWORD": PASSWORD}
        made = Services(store, objects, mlflow, url, mlflow_url, client)
        made.bucket.create_bucket(Bucket=BUCKET)
        yield made
        for server in (mlflow, objects, store):  # before the folder goes
            server.kill()


def _mlflow(guard: Guard, database_url: str, aws: Mapping[str, str]) -> tuple[Server, str]:
    port = free_port()
    url = f"http://localhost:{port}"
    # the users of basic-auth in a database of their own: both have a table of migrations of the same name
    with psycopg.connect(database_url, password=PASSWORD, autocommit=True) as connection:
        for name in ("mlflow", "users"):
            connection.execute(f"create database {name}")
    with_password = database_url.replace(f"{USER}@", f"{USER}:{PASSWORD}@").removesuffix("/postgres")
    (guard.folder / "auth.ini").write_text(
        "[mlflow]\ndefault_permission = NO_PERMISSIONS\n"
        f"database_uri = {with_password}/users\nadmin_username = {USER}\nadmin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        "auth_cache_ttl_seconds = 60\n")  # else every request hashes the password anew
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", "127.0.0.1", "--port",
               str(port), "--workers", "1", "--artifacts-destination", f"s3://{BUCKET}/proxied"]
    environment = {**aws, "MLFLOW_BACKEND_STORE_URI": f"{with_password}/mlflow", "MLFLOW_FLASK_SERVER_SECRET_KEY": "k",
                   "MLFLOW_AUTH_CONFIG_PATH": str(guard.folder / "auth.ini"), "MLFLOW_DISABLE_TELEMETRY": "true",
                   "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # six processes that nobody asks for anything
    return Server("mlflow", guard, command, lambda: _responds(f"{url}/health"), port, environment), url


@contextmanager
def _reachable_folder() -> Iterator[Path]:
    """Not below pytest's, which only their owner may enter."""
    folder = Path(tempfile.mkdtemp(prefix="assay-postgresql-"))
    try:
        _hand_over(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hand_over(folder: Path) -> None:
    if _AS_POSTGRES:
        shutil.chown(folder, "postgres")
