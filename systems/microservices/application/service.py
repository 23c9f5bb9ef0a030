"""One small service of the application, any of them: its kernel, what it calls, and its traces.

A program of its own: `python -m systems.microservices.application.service NAME PORT FOLDER`. FOLDER/addresses.json
says where the others answer, FOLDER/traces holds the address that takes OTLP. A call is a CLIENT span of the caller
(PRODUCER where nobody waits for its answer) with the attribute peer.service, and a SERVER span of the service called.
Redis, MariaDB and nginx have no SDK: what there is of them are the spans of their callers, as OpenTelemetry's semantic
conventions have it for databases; nginx's caller is the load generator.
"""

import contextvars
import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from recording.loopback import ADDRESS
from systems.microservices.application.calls import Calls
from systems.microservices.application.graph import SERVICES
from systems.microservices.application.kernels import KERNELS
from systems.microservices.application.settings import EXPORT_EVERY_S

_THREADS = 64


class ApplicationService:
    """Answers the operations of one service."""

    def __init__(self, name: str, folder: Path) -> None:
        provider = TracerProvider(resource=Resource.create({"service.name": name}))
        exporter = OTLPSpanExporter((folder / "traces").read_text(), compression=Compression.Gzip)
        provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000 * EXPORT_EVERY_S))
        self.tracer = provider.get_tracer("assay")
        self._service = SERVICES[name]
        self._kernel = KERNELS[self._service.kernel](folder)
        self._calls = Calls(json.loads((folder / "addresses.json").read_text()), self.tracer)
        self._threads = ThreadPoolExecutor(_THREADS)

    def answer(self, operation: str) -> bytes:
        """Does the operation's work. Raises OSError where one of its calls failed."""
        work = self._service.operations[operation]
        for target in work.background:
            self._begin(target, SpanKind.PRODUCER)
        self._kernel(work.amount)
        for first, *others in work.stages:
            begun = [self._begin(target, SpanKind.CLIENT) for target in others]
            self._calls.call(first)
            for one in begun:
                one.result()
        return b"-" * (1024 * work.answer_kib)

    def _begin(self, target: str, kind: SpanKind) -> Future[None]:
        """Calls from another thread, as a part of the same trace."""
        return self._threads.submit(contextvars.copy_context().run, self._calls.call, target, kind)


def handler(service: ApplicationService) -> type[BaseHTTPRequestHandler]:
    """What http.server makes for each connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body leave together
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            operation = self.path.strip("/")
            with service.tracer.start_as_current_span(
                    operation, context=extract(self.headers), kind=SpanKind.SERVER) as span:
                try:
                    status, body = 200, service.answer(operation)
                except OSError as error:
                    status, body = 502, b""
                    span.set_status(Status(StatusCode.ERROR, str(error)))
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Its traces are its log."""

    return Handler


class _Server(ThreadingHTTPServer):
    request_queue_size = 256


def main(name: str, port: str, folder: str) -> None:
    """Serves until it is ended."""
    _Server((ADDRESS, int(port)), handler(ApplicationService(name, Path(folder)))).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
