"""OTLP over HTTP: what OpenTelemetry's own exporter sends is in the file, as one message."""

import gzip
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from systems.microservices.application.receiver import Receiver, TracesFile

GZIP = {"Content_Type": "application/x-protobuf", "Content_Encoding": "gzip"}


@pytest.fixture
def traces(tmp_path: Path) -> TracesFile:
    return TracesFile(tmp_path / "traces.otlp")


@pytest.fixture
def receiver(traces: TracesFile) -> Iterator[Receiver]:
    with Receiver(traces.keep) as one:
        yield one


def post(url: str, body: bytes, **headers: str) -> int:
    request = urllib.request.Request(url, body, {name.replace("_", "-"): text for name, text in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_exports_of_several_services_are_one_message(receiver: Receiver, traces: TracesFile) -> None:
    for name, compression in (("cart", Compression.Gzip), ("pricing", Compression.NoCompression)):
        provider = TracerProvider(resource=Resource.create({"service.name": name}))
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(receiver.url, compression=compression)))
        with provider.get_tracer("test").start_as_current_span(f"{name} works"):
            pass
        provider.shutdown()
    found = TracesData.FromString(traces.file.read_bytes()).resource_spans
    services = [value.value.string_value for one in found for value in one.resource.attributes
                if value.key == "service.name"]
    assert services == ["cart", "pricing"]
    assert [one.scope_spans[0].spans[0].name for one in found] == ["cart works", "pricing works"]


@pytest.mark.parametrize(("path", "headers", "status", "body"), [
    ("/v1/traces", {"Content_Type": "application/json"}, 415, b"no traces"),
    ("/v1/metrics", {"Content_Type": "application/x-protobuf"}, 404, b"no traces"),
    ("/v1/traces", {"Content_Type": "application/x-protobuf"}, 400, b"no traces"),
    ("/v1/traces", GZIP, 400, b"no traces"),
    ("/v1/traces", GZIP, 400, gzip.compress(b"traces", mtime=0)[:-12]),
    ("/v1/traces", GZIP, 400, gzip.compress(b"traces", mtime=0)[:10] + b"\xff" * 20),
])
def test_what_is_no_trace_is_refused_and_not_kept(
        receiver: Receiver, traces: TracesFile, path: str, headers: dict[str, str], status: int, body: bytes) -> None:
    assert post(receiver.url.replace("/v1/traces", path), body, **headers) == status
    assert not traces.file.exists()
