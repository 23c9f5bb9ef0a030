"""Live traces and control groups as what a coordinator reads: exact values of a few requests, and what is not told."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from feature_store.errors import InputError
from recording.loopback import free_port
from systems.microservices.coordinator import STATUS
from systems.microservices.statuses import Statuses, main, read_told
from tests.e2e import tiny

NOW = 1_800_000_000.0
WINDOW_S = 4.0
SERVICES = ("frontend", "cart", "mailer")


def file_of(folder: Path, **others: Any) -> Path:
    """Services in groups of plain files of version 2."""
    root = folder / "groups"
    (root / "shop").mkdir(parents=True, exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu memory\n")
    for name in SERVICES:
        (root / "shop" / name).mkdir(exist_ok=True)
        use(root, name, 0.0)
    tiny.write_yaml({"port": free_port(), "status": str(folder / "status"), "window_s": WINDOW_S, "cpu_s": 2.0,
                     "host_cores": 0.5, "groups": {name: f"shop/{name}" for name in SERVICES}, "root": str(root),
                     "objectives_ms": {"buy": 100.0, "look": 10.0}, **others}, folder / "statuses.yaml")
    return folder / "statuses.yaml"


def use(root: Path, name: str, cpu_s: float) -> None:
    (root / "shop" / name / "cpu.stat").write_text(f"usage_usec {round(1e6 * cpu_s)}\nuser_usec 0\n")


def request(number: int, kind: str, ends: float, ms: float, cart_ms: float = 0.0, aside_ms: float = 0.0,
            fails: bool = False) -> bytes:
    """A request that a client began, at the frontend, with a call of the cart in its middle and one that nobody waits
    for, which asks a service without a control group here; it ends at `ends`."""
    message = TracesData()
    start = ends - ms / 1e3
    spans = [("frontend", kind, 1, 99, 2, start, ms)]
    if cart_ms:
        spans.append(("cart", "items", 2, 1, 2, start + (ms - cart_ms) / 2e3, cart_ms))
    if aside_ms:
        spans += [("frontend", "mail", 3, 1, 4, start, aside_ms), ("mailer", "mail", 4, 3, 2, start, aside_ms),
                  ("post", "send", 5, 4, 2, start, aside_ms / 2)]
    for service, name, own, parent, span_kind, begins, lasts in spans:
        resource = message.resource_spans.add()
        attribute = resource.resource.attributes.add()
        attribute.key, attribute.value.string_value = "service.name", service
        span = resource.scope_spans.add().spans.add()
        span.trace_id, span.span_id = number.to_bytes(16, "big"), own.to_bytes(8, "big")
        span.parent_span_id, span.name, span.kind = parent.to_bytes(8, "big"), name, span_kind
        span.start_time_unix_nano = round(1e9 * begins)
        span.end_time_unix_nano = round(1e9 * (begins + lasts / 1e3))
        span.status.code = 2 if fails else 0
    return message.SerializeToString()


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, dict[str, float]]]:
    """Statuses at NOW of requests, after `used_s` of CPU time of each service in two seconds."""
    monkeypatch.setattr("systems.microservices.statuses.time.time", lambda: NOW)

    def statuses(*bodies: bytes, used_s: float = 0.3) -> dict[str, dict[str, float]]:
        made = Statuses(read_told(file_of(tmp_path)))
        assert made.statuses(NOW - 2.0, 8.0) == {}
        for body in bodies:
            made.keep(body)
        for name in SERVICES:
            use(tmp_path / "groups", name, used_s)
        return made.statuses(NOW, 10.0)

    return statuses


def test_a_status_is_of_the_requests_that_ended_in_the_window(
        told: Callable[..., dict[str, dict[str, float]]]) -> None:
    """Eight requests of the window; one is too young, one too old. The cart takes what makes them slow."""
    inside = [request(number, "buy", NOW - 1.5 - 0.1 * number, 20.0 + 10.0 * number, 5.0 + 10.0 * number)
              for number in range(8)]
    found = told(*inside, request(20, "buy", NOW - 0.5, 999.0, 990.0), request(21, "buy", NOW - 5.5, 999.0, 990.0))
    assert set(found) == {"frontend", "cart"} and set(found["cart"]) == set(STATUS)
    assert found["cart"]["rate_rps"] == found["cart"]["served_rps"] == 8 / WINDOW_S
    assert found["cart"]["used_cores"] == pytest.approx(0.3 / 2.0 / 0.5), "in cores that are half of this host's"
    for one in found.values():
        assert one["latency_ms"] == pytest.approx(20.0 + 0.99 * 70.0, abs=0.01)
        assert one["most_latency_ms"] == 100.0 and one["type_share"] == 1.0
    assert found["cart"]["own_latency_ms"] == pytest.approx(5.0 + 0.99 * 70.0, abs=0.01)
    assert found["cart"]["congestion_intensity"] == pytest.approx((5.0 + 0.99 * 70.0) / 40.0, rel=1e-3)
    assert found["frontend"]["own_latency_ms"] == pytest.approx(15.0, abs=0.01)
    assert found["cart"]["importance"] == pytest.approx(1.0) and found["frontend"]["importance"] == 0.0


def test_the_type_that_is_furthest_beyond_its_objective_is_told(
        told: Callable[..., dict[str, dict[str, float]]]) -> None:
    found = told(*(request(number, "buy", NOW - 2.0, 80.0, 10.0) for number in range(3)),
                 request(10, "look", NOW - 2.0, 12.0, 1.0))
    assert found["cart"]["latency_ms"] == pytest.approx(12.0) and found["cart"]["most_latency_ms"] == 10.0
    assert found["cart"]["type_share"] == 0.25


def test_a_request_that_failed_is_no_quick_one(told: Callable[..., dict[str, dict[str, float]]]) -> None:
    """One of two; a hundredth of the way between them is missing."""
    found = told(request(1, "buy", NOW - 2.0, 1.0, fails=True), request(2, "buy", NOW - 2.0, 20.0))
    assert found["frontend"]["latency_ms"] == pytest.approx(400.0 - 0.01 * 380.0)


def test_importance_is_for_the_latency_of_the_worst_type_alone(
        told: Callable[..., dict[str, dict[str, float]]]) -> None:
    """Those who buy come by the cart, which takes all their time; the worst are those who look, and do not."""
    buys = [request(number, "buy", NOW - 2.0, 20.0 + 10.0 * number, 10.0 + 10.0 * number) for number in range(5)]
    looks = [request(10 + number, "look", NOW - 2.0, 20.0 + number) for number in range(5)]
    assert told(*buys)["cart"]["importance"] == pytest.approx(1.0)
    found = told(*buys, *looks)
    assert found["cart"]["most_latency_ms"] == 10.0 and found["cart"]["importance"] == 0.0
    assert found["frontend"]["importance"] == pytest.approx(1.0)


def test_a_window_may_be_longer_than_a_request(tmp_path: Path) -> None:
    """Two requests a minute apart, of a window of two minutes: both count, for its whole length."""
    made, now = Statuses(read_told(file_of(tmp_path, window_s=120.0))), time.time() + 100.0
    made.statuses(now - 2.0, 8.0)
    for ago in (95.0, 35.0):
        made.keep(request(round(ago), "buy", now - ago, 5.0))
    assert made.statuses(now, 10.0)["frontend"]["rate_rps"] == pytest.approx(2 / 120.0)


def test_old_spans_of_a_trace_that_goes_on_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch, say: its first request is forgotten, the one of now counts."""
    made = Statuses(read_told(file_of(tmp_path)))
    for clock_s, ends in ((1000.0, NOW - 82.0), (1080.0, NOW - 2.0)):
        monkeypatch.setattr("systems.microservices.statuses.time.monotonic", lambda clock_s=clock_s: clock_s)
        made.keep(request(1, "buy", ends, 5.0))
    made.statuses(NOW - 1.0, 1081.0)
    assert made.statuses(NOW, 1082.0)["frontend"]["rate_rps"] == 1 / WINDOW_S
    assert [len(rows) for rows in made._traces.values()] == [1]


def test_what_is_old_is_dropped_also_while_a_control_group_is_gone(tmp_path: Path) -> None:
    made = Statuses(read_told(file_of(tmp_path)))
    made.keep(request(1, "buy", NOW - 2.0, 5.0))
    (tmp_path / "groups" / "shop" / "cart" / "cpu.stat").unlink()
    with pytest.raises(FileNotFoundError):
        made.statuses(NOW, time.monotonic() + 60.0 + 1.0 + WINDOW_S + 1.0)
    assert not made._traces and not made._came


def test_who_is_off_the_critical_path_is_not_to_blame(told: Callable[..., dict[str, dict[str, float]]]) -> None:
    found = told(*(request(number, "buy", NOW - 2.0, 20.0 + number, 5.0 + number, aside_ms=100.0 * (number + 1))
                   for number in range(5)))
    assert set(found) == set(SERVICES)
    assert found["mailer"]["importance"] == 0.0 < found["cart"]["importance"]
    assert found["mailer"]["own_latency_ms"] == pytest.approx((100.0 + 0.99 * 400.0) / 2, rel=1e-3)
    assert found["mailer"]["latency_ms"] == pytest.approx(20.0 + 0.99 * 4.0), "end to end"


@pytest.mark.parametrize("bodies", [
    [], [request(1, "health", NOW - 2.0, 5.0)], [request(1, "buy", NOW - 9.0, 5.0)],
    [request(1, "buy", NOW + 9.0, 5.0)],
], ids=["none came", "of no type with an objective", "long ago", "in the future"])
def test_nothing_is_told_where_no_request_of_the_window_is_known(
        told: Callable[..., dict[str, dict[str, float]]], bodies: list[bytes]) -> None:
    assert told(*bodies) == {}


def test_a_service_that_no_request_came_by_gets_no_status(told: Callable[..., dict[str, dict[str, float]]]) -> None:
    assert set(told(request(1, "buy", NOW - 2.0, 5.0))) == {"frontend"}


@pytest.mark.parametrize(("others", "said"), [
    ({"groups": {}}, "groups must name the control group of each of the services, got none"),
    ({"groups": {"../cart": "shop/cart"}}, "groups must name the control group of each of the services, got ../cart"),
    ({"objectives_ms": {"buy": 0.0}}, "above 0 ms"),
    ({"objectives_ms": {"buy": "fast"}}, "objectives_ms.buy must be a finite number, got 'fast'"),
    ({"window": 3}, "did you mean 'window_s'?"),
    ({"port": 0}, "port must be a whole number >= 1, got 0"),
])
def test_a_file_that_says_nothing_usable_is_refused(tmp_path: Path, others: dict[str, Any], said: str,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, **others)
    with pytest.raises(InputError, match="must") as raised:
        read_told(path)
    assert said in str(raised.value)
    assert main([str(path)]) == 2 and said in capsys.readouterr().err


def test_what_an_sdk_exports_becomes_a_status_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, settles_s=0.1)
    told = read_told(path)
    codes: list[int] = []
    running = threading.Thread(target=lambda: codes.append(main([str(path), "--seconds", "4"])))
    running.start()
    provider = TracerProvider(resource=Resource.create({"service.name": "frontend"}))
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{told.port}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    try:
        status, deadline = tmp_path / "status" / "frontend.json", time.monotonic() + 4.0
        while not status.exists() and time.monotonic() < deadline:
            with provider.get_tracer("test").start_as_current_span("look"):
                time.sleep(0.05)
    finally:
        provider.shutdown()
        running.join(10.0)
    assert codes == [0]
    found = json.loads(status.read_text())
    assert set(found) == {*STATUS, "host_cores"} and found["latency_ms"] >= 50.0 and found["most_latency_ms"] == 10.0
