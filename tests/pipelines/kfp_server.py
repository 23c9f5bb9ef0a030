"""A small Kubeflow Pipelines API server for tests: real HTTP on loopback, stateful, the v2beta1 paths in use.

The paths, the JSON names (snake case, int64 as text) and the error bodies (grpc-gateway) are those of the
generated client (kfp_server_api 2.17.3) and of kubeflow/pipelines 2.17.0, backend/api/v2beta1/*.proto. As the
real one, it takes five cron fields as well as six, and it does not mind two recurring runs of one name.

  GET  /apis/v2beta1/healthz
  GET  POST /apis/v2beta1/experiments
  POST /apis/v2beta1/runs
  GET  /apis/v2beta1/runs/{id}
  GET  POST /apis/v2beta1/recurringruns
  GET  DELETE /apis/v2beta1/recurringruns/{id}
  POST /apis/v2beta1/recurringruns/{id}:enable, :disable
Faults: `fail_with`, `delay_s`, `page`, `token`, each on the paths that hold `fault_on`.
"""

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

PREFIX = "/apis/v2beta1"
Json = dict[str, Any]


@dataclass
class KfpState:
    """What the server holds, and how it misbehaves.

    Attributes:
        experiments, runs, recurring_runs: id to object, in the order of creation.
        requests: "METHOD /path" of every request, for assertions.
        fail_with: HTTP status to answer with instead; None for none.
        fault_on: a text that a path (with its method) must hold for the faults to strike.
        delay_s: seconds to wait before an answer.
        page: an HTML page to answer with, status 200, as a login page does.
        token: bearer token that requests must carry; None for none.
    """

    experiments: dict[str, Json] = field(default_factory=dict)
    runs: dict[str, Json] = field(default_factory=dict)
    recurring_runs: dict[str, Json] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    fail_with: int | None = None
    fault_on: str = ""
    delay_s: float = 0.0
    page: str | None = None
    token: str | None = None


class RefusedRequestError(Exception):
    """An answer other than 200: HTTP status, grpc code, message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": message, "code": code, "message": message, "details": []}


@dataclass(frozen=True)
class KfpServer:
    """A running server: its address and its state."""

    url: str
    state: KfpState


@contextmanager
def kfp_server(certificate: Path | None = None) -> Iterator[KfpServer]:
    """Serve on a free port of the loopback for the length of the block.

    Args:
        certificate: PEM file with key and certificate, to serve https.
    """
    state = KfpState()
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    # A handler that is still asleep (delay_s) must not hold the test up.
    server.daemon_threads = True
    server.block_on_close = False
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        scheme = "http" if certificate is None else "https"
        yield KfpServer(f"{scheme}://127.0.0.1:{server.server_address[1]}", state)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: KfpState
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: two would wait for each other's acknowledgement

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        """Quiet: the requests are in the state."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        path = urlsplit(self.path).path
        request = f"{self.command} {path}"
        self.state.requests.append(request)
        if self.state.fault_on in request:
            time.sleep(self.state.delay_s)
            if self.state.page is not None:
                self._send(200, self.state.page.encode(), "text/html")
                return
        try:
            answer, status = self._checked(request, path, json.loads(raw) if raw else {}), 200
        except RefusedRequestError as refused:
            answer, status = refused.body, refused.status
        self._send(status, json.dumps(answer).encode(), "application/json")

    def _checked(self, request: str, path: str, body: Json) -> Json:
        if self.state.token is not None and self.headers.get("Authorization") != f"Bearer {self.state.token}":
            raise RefusedRequestError(401, 16, "Request header error: there is no user identity header.")
        if self.state.fail_with is not None and self.state.fault_on in request:
            raise RefusedRequestError(
                self.state.fail_with, 13, "Internal server error:\n dial tcp mysql:3306: refused"
            )
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        return respond(self.state, self.command, path.removeprefix(PREFIX), query, body)

    def _send(self, status: int, content: bytes, kind: str) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client gave up waiting


def respond(state: KfpState, method: str, path: str, query: dict[str, str], body: Json) -> Json:
    """The answer to one request, without HTTP."""
    match (method, path.strip("/").split("/")):
        case ("GET", ["healthz"]):
            return {"multi_user": False, "pipeline_store": "database"}
        case ("GET", ["experiments"]):
            return _page(state.experiments, "experiments", query)
        case ("POST", ["experiments"]):
            return _store(state.experiments, "experiment_id", body)
        case ("POST", ["runs"]):
            _known(state.experiments, body.get("experiment_id", ""), "Experiment")
            return _store(state.runs, "run_id", {**body, "state": "PENDING"})
        case ("GET", ["runs", identifier]):
            return _known(state.runs, identifier, "Run")
        case ("GET", ["recurringruns"]):
            return _page(state.recurring_runs, "recurringRuns", query)
        case ("POST", ["recurringruns"]):
            return _create_recurring_run(state, body)
        case ("GET", ["recurringruns", identifier]):
            return _known(state.recurring_runs, identifier, "Job")
        case ("DELETE", ["recurringruns", identifier]):
            _known(state.recurring_runs, identifier, "Job")
            del state.recurring_runs[identifier]
            return {}
        case ("POST", ["recurringruns", action]) if found := re.fullmatch(r"(.+):(enable|disable)", action):
            run = _known(state.recurring_runs, found[1], "Job")
            run["status"] = f"{found[2].upper()}D"
            run["mode"] = found[2].upper()
            return {}
    raise RefusedRequestError(404, 5, "Not Found")


def _create_recurring_run(state: KfpState, body: Json) -> Json:
    """As apiserver/server/api_converter.go, toModelJob, checks it."""
    _known(state.experiments, body.get("experiment_id", ""), "Experiment")
    if not 1 <= int(body.get("max_concurrency", 0)) <= 10:
        raise RefusedRequestError(
            400, 3, "Max concurrency of a recurring run must be at least 1 and at most 10."
        )
    if not body.get("pipeline_spec") and not body.get("pipeline_version_reference"):
        raise RefusedRequestError(400, 3, "Cannot create a job with an empty pipeline ID")
    cron = body["trigger"].get("cron_schedule", {}).get("cron")
    if cron is not None and not cron.startswith("@") and len(cron.split()) not in (5, 6):
        raise RefusedRequestError(
            400, 3, "Schedule cron is not a supported format(https://godoc.org/github.com/robfig/cron)."
        )
    enabled = {"ENABLE": "ENABLED", "DISABLE": "DISABLED"}[body["mode"]]
    concurrency = str(body["max_concurrency"])
    return _store(
        state.recurring_runs, "recurring_run_id", {**body, "max_concurrency": concurrency, "status": enabled}
    )


def _store(objects: dict[str, Json], id_name: str, body: Json) -> Json:
    identifier = str(uuid4())
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    objects[identifier] = {**body, id_name: identifier, "created_at": now}
    return objects[identifier]


def _known(objects: dict[str, Json], identifier: str, kind: str) -> Json:
    if identifier not in objects:
        raise RefusedRequestError(404, 5, f"ResourceNotFoundError: {kind} {identifier} not found.")
    return objects[identifier]


def _page(objects: dict[str, Json], name: str, query: dict[str, str]) -> Json:
    """One page of a list: filtered by equality, by experiment, cut at page_size."""
    found = list(objects.values())
    for predicate in json.loads(query.get("filter") or "{}").get("predicates", []):
        if predicate["operation"] != 1:  # EQUALS
            raise RefusedRequestError(400, 3, "this server knows EQUALS only")
        found = [item for item in found if item.get(predicate["key"]) == predicate["stringValue"]]
    if "experiment_id" in query:
        found = [item for item in found if item["experiment_id"] == query["experiment_id"]]
    start = int(query.get("page_token") or 0)
    end = start + int(query.get("page_size") or 10)
    return {name: found[start:end], "next_page_token": str(end) if end < len(found) else ""}
