"""The same spans as protobuf, as OTLP JSON, over HTTP and as a table are read as the same requests."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from feature_store.errors import InputError, SourceError
from systems.microservices.traces.otlp import UNNAMED, read_spans
from systems.microservices.traces.spans import NEGATIVE, UNUSABLE
from tests.systems.microservices.traces.made_traces import table

TRACE, ROOT, CALL = bytes(range(16)), b"\x00" * 7 + b"\x01", b"\x00" * 7 + b"\x02"


def message() -> TracesData:
    data = TracesData()
    for service, spans in (("front", [(ROOT, b"", "page", 1_000_000, 9_000_000, 2, ""),
                                      (CALL, ROOT, "get", 2_000_000, 6_000_000, 3, "redis")]),
                           ("mail", [(b"\x00" * 7 + b"\x03", ROOT, "send", 8_000_000, 20_000_000, 5, "")])):
        resource = data.resource_spans.add()
        name = resource.resource.attributes.add(key="service.name")
        name.value.string_value = service
        scope = resource.scope_spans.add()
        for span, parent, operation, start, end, kind, peer in spans:
            made = scope.spans.add(trace_id=TRACE, span_id=span, parent_span_id=parent, name=operation, kind=kind,
                                   start_time_unix_nano=start, end_time_unix_nano=end)
            if peer:
                made.attributes.add(key="peer.service").value.string_value = peer
                made.status.code = 2
    return data


def document() -> dict:
    """As a collector's exporter writes it: hexadecimal ids, numbers as texts."""
    return {"resourceSpans": [{
        "resource": {"attributes": [{"key": each.key, "value": {"stringValue": each.value.string_value}}
                                    for each in resource.resource.attributes]},
        "scopeSpans": [{"spans": [{
            "traceId": span.trace_id.hex(), "spanId": span.span_id.hex(), "parentSpanId": span.parent_span_id.hex(),
            "name": span.name, "kind": span.kind, "startTimeUnixNano": str(span.start_time_unix_nano),
            "endTimeUnixNano": str(span.end_time_unix_nano), "status": {"code": span.status.code},
            "attributes": [{"key": each.key, "value": {"stringValue": each.value.string_value}}
                           for each in span.attributes],
        } for span in scope.spans]} for scope in resource.scope_spans]} for resource in message().resource_spans]}


@pytest.fixture
def address() -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document()).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/traces"
    server.shutdown()
    thread.join()
    server.server_close()


def broken() -> dict:
    """A root and a call that are whole, then spans without what they must have."""
    whole = {"traceId": "aa", "spanId": "01", "parentSpanId": None, "startTimeUnixNano": "1000000",
             "endTimeUnixNano": "9000000", "attributes": None, "status": None}
    call = whole | {"spanId": "02", "parentSpanId": "01", "startTimeUnixNano": 2_000_000, "kind": "SPAN_KIND_PRODUCER"}
    changes = [*({"startTimeUnixNano": start} for start in ("0", None, "-5", "9" * 400)), {"endTimeUnixNano": "9" * 30},
               {"endTimeUnixNano": None}, {"traceId": None}, {"spanId": ""}]
    spans = [whole, call, *(call | {"spanId": f"1{number}"} | change for number, change in enumerate(changes)),
             {name: value for name, value in (call | {"spanId": "20"}).items() if name != "startTimeUnixNano"}]
    attributes = [{"key": "service.name", "value": {"intValue": 1}}, {"key": "other", "value": None}]
    return {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": spans}]},
                              {"resource": None, "scopeSpans": None}]}


def test_a_broken_span_is_counted_and_ends_no_run(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(broken()))

    found = read_spans(str(tmp_path / "one.json"))

    assert found.start_us.tolist() == [1000, 2000] and found.parent.tolist() == [-1, 0]
    assert found.problems == {UNUSABLE: 8, NEGATIVE: 1} and found.services == (UNNAMED,)
    data = message()
    spans = data.resource_spans[0].scope_spans[0].spans
    for change in ({"start_time_unix_nano": 0}, {"end_time_unix_nano": 0}, {"trace_id": b""}):
        made = spans.add()
        made.CopyFrom(spans[1])
        made.span_id = bytes([len(spans)] * 8)
        for name, value in change.items():
            setattr(made, name, value)
    (tmp_path / "one.pb").write_bytes(data.SerializeToString())
    assert read_spans(str(tmp_path / "one.pb")).problems == {UNUSABLE: 2, NEGATIVE: 1}


@pytest.mark.parametrize("kind", [4, "SPAN_KIND_PRODUCER", 5, "SPAN_KIND_CONSUMER"])
def test_producers_and_consumers_are_not_waited_for(tmp_path: Path, kind: "int | str") -> None:
    whole = document()
    whole["resourceSpans"][1]["scopeSpans"][0]["spans"][0]["kind"] = kind
    (tmp_path / "one.json").write_text(json.dumps(whole))

    check(str(tmp_path / "one.json"))


def check(source: str) -> None:
    found = read_spans(source)
    assert [found.services[service] for service in found.service] == ["front", "redis", "mail"]
    assert found.parent.tolist() == [-1, 0, 0] and found.error.tolist() == [False, True, False]
    assert found.background.tolist() == [False, False, True]
    assert found.duration_us.tolist() == [8000, 4000, 12000]


def test_every_form_is_read_as_the_same_requests(tmp_path: Path, address: str) -> None:
    (tmp_path / "one.pb").write_bytes(message().SerializeToString())
    (tmp_path / "one.json").write_text(json.dumps(document(), indent=1))
    lines = [{"resourceSpans": [each]} for each in document()["resourceSpans"]]
    (tmp_path / "one.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for source in (*(str(tmp_path / f"one.{ending}") for ending in ("pb", "json", "jsonl")), address):
        check(source)
    split = tmp_path / "split"
    split.mkdir()
    for number, line in enumerate(lines):
        (split / f"{number}.json").write_text(json.dumps(line))
    check(str(split))


def test_a_recordings_table_is_read(tmp_path: Path) -> None:
    table((1, -1, "a", 0, 100), (2, 1, "b", 10, 20)).to_parquet(tmp_path / "spans.parquet")

    assert len(read_spans(str(tmp_path))) == len(read_spans(str(tmp_path / "spans.parquet"))) == 2


def test_what_is_no_trace_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "other.json").write_text("[1, 2]")
    (tmp_path / "bytes.pb").write_bytes(b"\xff\xff\xff")
    for name in ("text.json", "other.json", "bytes.pb"):
        with pytest.raises(InputError, match="traces must be OTLP"):
            read_spans(str(tmp_path / name))
    with pytest.raises(InputError, match="must be a file, a folder or an address"):
        read_spans(str(tmp_path / "missing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="got none"):
        read_spans(str(tmp_path / "empty"))
    with pytest.raises(SourceError, match="must answer"):
        read_spans("http://127.0.0.1:9/traces")
