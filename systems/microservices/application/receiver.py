"""Takes traces by OTLP over HTTP (protobuf, gzip or not), to append them to a file: any SDK or collector can export.

    python -m systems.microservices.application.receiver traces.otlp --port 4318

Exported requests one after the other in a file are one valid message TracesData: both have the resource spans as their
only field, and protobuf joins repeated fields.
"""

import argparse
import gzip
import threading
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from recording.loopback import ADDRESS

_PATH, _TYPE = "/v1/traces", "application/x-protobuf"


class TracesFile:
    """Exported requests, one after the other.

    Attributes:
        file: what is appended to; another one from the moment at which it is set.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._one_at_a_time = threading.Lock()

    def keep(self, body: bytes) -> None:
        """Appends a checked request."""
        with self._one_at_a_time, self.file.open("ab") as file:
            file.write(body)


class Receiver(ThreadingHTTPServer):
    """Receives on loopback, as a context manager on a thread of its own.

    Attributes:
        keep: takes each checked request, on the thread of its connection.
    """

    def __init__(self, keep: Callable[[bytes], None], port: int = 0) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.keep = keep

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, name="receiver", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        """Where traces are to be exported to."""
        return f"http://{ADDRESS}:{self.server_port}{_PATH}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(self._status(body))

    def _status(self, body: bytes) -> int:
        assert isinstance(self.server, Receiver)
        if self.path != _PATH:
            return 404
        if self.headers.get("Content-Type", "").split(";")[0] != _TYPE:
            return 415
        try:
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            ExportTraceServiceRequest.FromString(body)
        except (OSError, EOFError, zlib.error, DecodeError):
            return 400
        self.server.keep(body)
        return 200

    def _answer(self, status: int) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", "0")  # an empty ExportTraceServiceResponse: everything was taken
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet: the file says what came."""


def main(arguments: list[str] | None = None) -> None:
    """Receives until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--port", type=int, default=4318)
    options = parser.parse_args(arguments)
    Receiver(TracesFile(options.file).keep, options.port).serve_forever()


if __name__ == "__main__":
    main()
