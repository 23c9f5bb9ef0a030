"""Spans from what any collector writes or answers: OTLP as protobuf or JSON, a file, a folder of files, or an address;
and from a recording's spans.parquet.

A file that ends in .json or .jsonl is OTLP JSON, a document or one a line; .parquet is a table; any other one protobuf
(TracesData or ExportTraceServiceRequest, whose bytes are the same), one message. Ids in OTLP JSON are hexadecimal,
unlike in protobuf's own JSON. Of a call to what writes no spans (a database), the caller's span says whom it called
(peer.service, or db.system.name): it is that one's. Source: https://opentelemetry.io/docs/specs/otlp/,
opentelemetry/proto/trace/v1/trace.proto.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from feature_store.errors import InputError, SourceError
from systems.microservices.traces.spans import COLUMNS, PEER, Spans, link, read_table

JSON_ENDINGS = (".json", ".jsonl")
PROTOBUF_ENDINGS = (".pb", ".binpb", ".otlp", ".bin")
TABLE = "spans.parquet"
TIMEOUT_S = 60.0
# SpanKind and StatusCode by number and by name: both are allowed in JSON. A producer's message is not waited for.
BACKGROUND = (4, "SPAN_KIND_PRODUCER", 5, "SPAN_KIND_CONSUMER")
FAILED = (2, "STATUS_CODE_ERROR")
CALLEE = ("peer.service", "db.system.name", "db.system")
SERVICE = "service.name"
UNNAMED = "unknown_service"  # what the semantic conventions call a resource without service.name
NEVER_NS = 2**64  # times are fixed64


def read_spans(source: str) -> Spans:
    """The linked spans of a file, a folder or an address (http, https).

    Raises:
        InputError: nothing that can be read, or no span.
        SourceError: the address does not answer.
    """
    if source.startswith(("http://", "https://")):
        return link(_fetched(source))
    path = Path(source)
    if path.is_dir() and (path / TABLE).is_file():
        path /= TABLE
    if path.is_file():
        return link(_read_file(path))
    if not path.is_dir():
        raise InputError(f"traces must be a file, a folder or an address, got {source}")
    files = sorted(each for each in path.rglob("*") if each.suffix in (*JSON_ENDINGS, *PROTOBUF_ENDINGS))
    if not files:
        raise InputError(f"folder of traces must hold {TABLE} or files that end in "
                         f"{', '.join((*JSON_ENDINGS, *PROTOBUF_ENDINGS))}, got none ({source})")
    return link(pd.concat([_read_file(each) for each in files], ignore_index=True))


def _read_file(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return read_table(path)
    content = path.read_bytes()
    return spans_of_json(content, str(path)) if path.suffix in JSON_ENDINGS else spans_of_protobuf(content, str(path))


def _fetched(address: str) -> pd.DataFrame:
    import requests

    try:
        answer = requests.get(address, timeout=TIMEOUT_S)
        answer.raise_for_status()
    except requests.RequestException as error:
        raise SourceError(f"address of traces must answer, got {error}") from error
    protobuf = "protobuf" in answer.headers.get("content-type", "")
    return (spans_of_protobuf if protobuf else spans_of_json)(answer.content, address)


def spans_of_json(content: bytes, where: str) -> pd.DataFrame:
    """COLUMNS of OTLP JSON: one document, or one a line. Raises InputError for anything else."""
    try:
        documents = [orjson.loads(content)]
    except orjson.JSONDecodeError:
        try:
            documents = [orjson.loads(line) for line in content.splitlines() if line.strip()]
        except orjson.JSONDecodeError as error:
            raise InputError(f"traces must be OTLP JSON, a document or one a line, got {error} ({where})") from error
    try:
        return frame_of(row for document in documents for row in _rows_of_json(document))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise InputError(f"traces must be OTLP JSON, got {said} ({where})") from error


def _rows_of_json(document: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    if "resourceSpans" not in document:
        raise ValueError(f"a document without resourceSpans: {', '.join(map(str, document)) or 'nothing'}")
    for resource in document["resourceSpans"] or ():
        service = _texts(resource.get("resource") or {}, (SERVICE,)).get(SERVICE) or UNNAMED
        for scope in resource.get("scopeSpans") or ():
            for span in scope.get("spans") or ():
                trace, own, parent = ((span.get(name) or "").lower() for name in ("traceId", "spanId", "parentSpanId"))
                yield (trace or None, own or None, parent, service, span.get("name") or "",
                       *_times(*(int(span.get(name) or 0) for name in ("startTimeUnixNano", "endTimeUnixNano"))),
                       span.get("kind") in BACKGROUND, (span.get("status") or {}).get("code") in FAILED,
                       _callee(_texts(span, CALLEE)))


def _texts(holder: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Of the attributes with these names; "" of one that is no text."""
    return {each["key"]: (each.get("value") or {}).get("stringValue") or ""
            for each in holder.get("attributes") or () if each.get("key") in names}


def spans_of_protobuf(content: bytes, where: str) -> pd.DataFrame:
    """COLUMNS of one OTLP message. Raises InputError for anything else."""
    return frame_of(rows_of_protobuf(content, where))


def rows_of_protobuf(content: bytes, where: str) -> Iterator[tuple[Any, ...]]:
    """The spans of one OTLP message, one at a time, as rows for `frame_of`. Raises InputError for anything else."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    try:
        message = TracesData.FromString(content)
    except DecodeError as error:
        raise InputError(f"traces must be OTLP, protobuf or files that end in {' or '.join(JSON_ENDINGS)}, got {error} "
                         f"({where})") from error
    return _rows_of_message(message)


def _rows_of_message(message: Any) -> Iterator[tuple[Any, ...]]:
    for resource in message.resource_spans:
        service = next((each.value.string_value for each in resource.resource.attributes
                        if each.key == SERVICE), "") or UNNAMED
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield (span.trace_id.hex() or None, span.span_id.hex() or None, span.parent_span_id.hex(), service,
                       span.name, *_times(span.start_time_unix_nano, span.end_time_unix_nano),
                       span.kind in BACKGROUND, span.status.code in FAILED,
                       _callee({each.key: each.value.string_value for each in span.attributes if each.key in CALLEE}))


def _times(start_ns: int, end_ns: int) -> tuple[int | None, int]:
    """Start, us, None where it is not set (0), and duration."""
    start, end = (min(max(at, 0), NEVER_NS) for at in (start_ns, end_ns))
    return start // 1000 or None, (end - start) // 1000


def _callee(attributes: Mapping[str, str]) -> str:
    return next((attributes[name] for name in CALLEE if name in attributes), "")


def frame_of(rows: Iterable[tuple[Any, ...]]) -> pd.DataFrame:
    """COLUMNS and PEER of rows."""
    return pd.DataFrame(rows, columns=[*COLUMNS, PEER])
