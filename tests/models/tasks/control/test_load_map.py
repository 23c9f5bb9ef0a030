"""The load that a server has: which windows are asked for, and what becomes of a workload without a series."""

from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest

from feature_store.errors import SourceError
from feature_store.written.model import check_written
from models.tasks.control.load_map import LoadMap, read_server
from tests.feature_store.prometheus_server import faulty_server, reply

END_S = 1_772_409_600  # 2026-03-02 00:00 UTC


def load_map(*workloads: str) -> LoadMap:
    """A query is the number of series that it has."""
    content = {"last_s": 330, "workloads": {name: {"rate_rps": name[-1]} for name in workloads}}
    return check_written(LoadMap, content, "load map", "test")


def respond(handler: BaseHTTPRequestHandler) -> None:
    asked = {name: values[0] for name, values in parse_qs(urlsplit(handler.path).query).items()}
    times = range(int(float(asked["start"])), int(float(asked["end"])) + 1, 60)
    result = [{"metric": {}, "values": [[time, "5"] for time in times]}] * int(asked["query"])
    reply({"status": "success", "data": {"resultType": "matrix", "result": result}})(handler)


@pytest.mark.parametrize("late_s", [0.0, 0.001, 59.9])
def test_windows_are_the_same_whenever_they_are_asked_for(late_s: float) -> None:
    with faulty_server(respond) as (url, _):
        found = read_server(url, load_map("shop1"), ("rate_rps",), datetime.fromtimestamp(END_S + late_s, UTC))
    starts = [start.timestamp() for start in found["window_start"]]
    assert starts == [END_S - 60 * back for back in (5, 4, 3, 2, 1)]


def test_a_workload_without_a_series_costs_itself_alone_and_is_named() -> None:
    with faulty_server(respond) as (url, _):
        assert set(read_server(url, load_map("idle0", "shop1"), ("rate_rps",))["workload"]) == {"shop1"}
        for name, count in (("idle0", 0), ("many2", 2)):
            with pytest.raises(SourceError, match=f"rate_rps of workload {name} must .* one series, got {count}"):
                read_server(url, load_map(name), ("rate_rps",))
