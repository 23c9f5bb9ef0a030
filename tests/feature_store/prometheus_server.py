"""A real Prometheus server for tests, on data that a test wrote, and a faulty one that misbehaves on request."""

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from recording.loopback import free_port

Sample = tuple[str, float, float]  # series in OpenMetrics notation, Unix time in s, value


@contextmanager
def prometheus_with(samples: Iterable[Sample], folder: Path) -> Iterator[str]:
    """Address of a Prometheus server that holds `samples`; those of a series must be together."""
    metrics = folder / "metrics.txt"
    with metrics.open("w") as file:
        family = ""
        for series, time_s, value in samples:
            if (name := series.partition("{")[0]) != family:
                family = name
                file.write(f"# TYPE {family.removesuffix('_total')} counter\n")
            file.write(f"{series} {value!r} {time_s:.3f}\n")
        file.write("# EOF\n")
    data = folder / "data"
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(metrics), str(data)]
    subprocess.run(make, check=True, capture_output=True)
    port = free_port()
    (folder / "prometheus.yml").write_text("global: {}\n")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={data}",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )
    try:
        await_ready(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def await_ready(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 30
    while True:
        try:
            with opener.open(f"{url}/-/ready", timeout=1):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


Respond = Callable[[BaseHTTPRequestHandler], None]


def reply(content: Any, status: int = 200) -> Respond:
    """Answers with JSON, or with text as it is."""
    body = (content if isinstance(content, str) else json.dumps(content)).encode()

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return respond


@contextmanager
def faulty_server(*script: Respond) -> Iterator[tuple[str, list[str]]]:
    """Address of a server that answers by `script`, its last entry again and again, and the paths asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            with suppress(BrokenPipeError, ConnectionResetError):  # the client gave up
                script[min(len(asked), len(script)) - 1](self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
