"""From exported spans and the load generator's results to calls as their callers saw them."""

from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status, TracesData

from recording.scaling.open_loop import ANSWERED, TIMED_OUT
from systems.microservices.application.dataset import segment_spans
from systems.microservices.application.raw_segments import Segment

START_S = 1_000.0
PREFIX = "00000000000000ab"
SEGMENT = Segment(0, START_S, (), PREFIX)


def span(number: int, parent: int, kind: "Span.SpanKind.ValueType", name: str, begin_ms: float, end_ms: float,
         peer: str = "", prefix: str = PREFIX) -> Span:
    made = Span(trace_id=bytes.fromhex(f"{prefix}{1:016x}"), span_id=number.to_bytes(8), name=name, kind=kind,
                parent_span_id=parent.to_bytes(8), start_time_unix_nano=round(1e9 * START_S + 1e6 * begin_ms),
                end_time_unix_nano=round(1e9 * START_S + 1e6 * end_ms))
    if peer:
        made.attributes.add(key="peer.service").value.string_value = peer
    return made


def resource(service: str, *spans: Span) -> ResourceSpans:
    made = ResourceSpans()
    made.resource.attributes.add(key="service.name").value.string_value = service
    made.scope_spans.add().spans.extend(spans)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    failed = span(14, 11, Span.SPAN_KIND_CLIENT, "row", 30, 40, peer="mariadb")
    failed.status.code = Status.STATUS_CODE_ERROR
    data = TracesData(resource_spans=[
        resource("frontend", span(10, 1, Span.SPAN_KIND_SERVER, "home", 2, 90),
                 span(12, 10, Span.SPAN_KIND_CLIENT, "list", 10, 80, peer="catalogue"),
                 span(13, 10, Span.SPAN_KIND_PRODUCER, "visit", 5, 200, peer="analytics")),
        resource("catalogue", span(11, 12, Span.SPAN_KIND_SERVER, "list", 20, 70), failed),
        resource("catalogue", failed),  # once more
        resource("catalogue", span(15, 99, Span.SPAN_KIND_CLIENT, "row", 30, 40, peer="mariadb")),
        resource("mariadb", span(17, 15, Span.SPAN_KIND_CLIENT, "read", 31, 39, peer="disk"),
                 span(18, 17, Span.SPAN_KIND_CLIENT, "seek", 32, 38, peer="disk")),
        resource("cart", span(16, 1, Span.SPAN_KIND_SERVER, "count", 2, 3, prefix="00000000000000ac"))])
    (tmp_path / "traces.otlp").write_bytes(data.SerializeToString())
    np.save(tmp_path / "names.npy", ["home", "cart"])
    np.savez(tmp_path / "requests.npz", due=np.array([0.0, 0.5]), noticed=np.array([0.0, 0.5]),
             sent=np.array([0.001, 0.6]), done=np.array([0.101, np.nan]), status=np.array([ANSWERED, TIMED_OUT]))
    return tmp_path


def test_a_row_is_a_call_as_its_caller_saw_it(folder: Path) -> None:
    table = segment_spans(SEGMENT, folder)
    found = {row.service: row for row in table.itertuples() if row.trace == 0}
    assert set(found) == {"nginx", "frontend", "catalogue", "analytics", "mariadb"}
    catalogue = found["catalogue"]
    assert (catalogue.operation, catalogue.start_us, catalogue.duration_us) == ("list", 10_000, 70_000)
    nginx = found["nginx"]
    assert (nginx.operation, nginx.start_us, nginx.duration_us, nginx.parent) == ("home", 1_000, 100_000, -1)


def test_the_parent_of_a_call_is_the_call_that_was_being_answered(folder: Path) -> None:
    table = segment_spans(SEGMENT, folder)
    services = dict(zip(table["span"], table["service"], strict=True))
    parents = {row.service: services.get(row.parent) for row in table.itertuples() if row.trace == 0}
    assert parents == {"nginx": None, "frontend": "nginx", "catalogue": "frontend", "analytics": "frontend",
                       "mariadb": "catalogue"}
    assert table["span"].tolist() == list(range(len(table)))


def test_what_failed_and_what_nobody_waits_for_is_marked(folder: Path) -> None:
    table = segment_spans(SEGMENT, folder)
    assert table.loc[table["background"], "service"].tolist() == ["analytics"]
    assert table.loc[table["error"], ["trace", "service"]].to_numpy().tolist() == [[0, "mariadb"], [1, "nginx"]]
    timed_out = table[table["trace"] == 1].iloc[0]
    assert timed_out["duration_us"] == 4_900_000  # given up 5 s after it was due


def test_calls_without_their_caller_and_of_other_recordings_are_left_out(folder: Path) -> None:
    table = segment_spans(SEGMENT, folder)
    assert not {"cart", "disk"} & set(table["service"]) and (table["service"] == "mariadb").sum() == 1
    assert set(table.loc[table["parent"] < 0, "service"]) == {"nginx"}
