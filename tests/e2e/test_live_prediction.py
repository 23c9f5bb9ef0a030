"""`assay predict --at now`: the latency for this very machine, through a real Prometheus and node exporter."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from feature_store.sources.metric_map import read_metric_map
from pipelines.command_line import app
from recording.loopback import free_port
from recording.monitoring import Monitoring
from recording.processes import Guard
from recording.tools import MONITORING_TOOLS, PACKAGES, SEARCH_PATH
from tests.components.steps import IGNORED_WARNING, prepare, project
from tests.e2e import tiny
from tests.feature_store.prometheus_server import faulty_server, reply

MISSING = [PACKAGES[name] for name in MONITORING_TOOLS if shutil.which(name, path=SEARCH_PATH) is None]
pytestmark = [
    pytest.mark.filterwarnings(IGNORED_WARNING),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: Debian package {', '.join(MISSING)}"),
    pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="this kernel reports no pressure (CONFIG_PSI)")]

METRICS = ("psi_cpu_some", "psi_io_some")


@dataclass(frozen=True)
class Live:
    """A champion of redis with its bundle folder, and the address of a Prometheus server that watches this machine."""

    bundle: Path
    url: str


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    with Guard(folder) as guard, project(folder):
        monitoring = Monitoring(guard, read_metric_map())
        steps = prepare(folder, tiny.telemetry(), tiny.task(("redis",)))
        steps.train()
        steps.gate()
        entry = steps.register()["redis"]
        yield Live(Path(entry["bundle"]), monitoring._source._api.address)


def predict(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


def document(*arguments: str | Path) -> dict[str, Any]:
    done = predict(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_champion_predicts_from_the_metrics_of_this_moment(live: Live) -> None:
    found = document("--task", "tiny", "--workload", "redis", "--at", "now", "--prometheus", live.url, "--window", "5",
                     "--set", "connections=4")
    assert set(found["inputs"]) == {*METRICS, "connections"} and found["inputs"]["connections"] == 4.0
    assert all(0.0 <= found["inputs"][name] <= 1.0 for name in METRICS)
    assert found["assumed"] == [] and found["unit"] == "ms" and 0.1 < found["latency_ms"] < 20


def test_it_is_the_prediction_for_a_row_of_these_metrics(live: Live) -> None:
    found = document("--bundle", live.bundle, "--at", "now", "--prometheus", live.url, "--window", "5", "--set",
                     "connections=4")
    again = document("--bundle", live.bundle, "--row", json.dumps(found["inputs"]))
    assert again["latency_ms"] == found["latency_ms"] and again["bundle_sha256"] == found["bundle_sha256"]


def test_a_setting_that_is_left_out_is_assumed_and_said(live: Live) -> None:
    options = ("--bundle", live.bundle, "--at", "now", "--prometheus", live.url, "--window", "5")
    found = document(*options)
    assert found["assumed"] == ["connections"] and found["inputs"]["connections"] == 8.5
    text = predict(*options).stdout
    assert "redis: latency_ms = " in text and "connections = 8.5 count (assumed: the middle of its range)" in text


def test_more_pressure_never_predicts_less(live: Live) -> None:
    row = {"psi_cpu_some": 0.1, "psi_io_some": 0.2, "connections": 4.0}
    values = [document("--bundle", live.bundle, "--row", json.dumps({**row, "psi_cpu_some": share}))["latency_ms"]
              for share in (0.1, 0.3, 0.5, 0.7)]
    assert values == sorted(values) and values[0] < values[-1]


def test_a_row_outside_of_the_proved_box_is_moved_to_it_and_said(live: Live) -> None:
    row = {"psi_cpu_some": 1.0, "psi_io_some": 0.2, "connections": 4.0}
    assert document("--bundle", live.bundle, "--row", json.dumps(row))["outside_box"] == ["psi_cpu_some"]
    assert "outside the proved box, moved to" in predict("--bundle", live.bundle, "--row", json.dumps(row)).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--at", "now"), "--prometheus must give the address"),
        (("--at", "yesterday", "--prometheus", "http://127.0.0.1:1"), "time must be now, got 'yesterday'"),
        (("--row", "{"), "row must be a JSON object"),
        (("--row", "[1]"), "row must be a JSON object, got list"),
        (("--row", '{"psi_cpu_some": 0.1, "psi_io_some": 0.1}'), "connections"),
        (("--row", '{"psi_cpu_some": 50, "psi_io_some": 0.1, "connections": 1}'), "psi_cpu_some"),
        (("--row", '{"psi_cpu_some": null, "psi_io_some": 0.1, "connections": 1}'), "psi_cpu_some"),
        (("--row", '{"psi_cpu_sum": 0.1, "psi_io_some": 0.1, "connections": 1}'), "psi_cpu_s"),
        (("--row", "{}", "--set", "connections"), "setting must be name=number, got 'connections'"),
        (("--row", "{}", "--set", "connections=1", "--set", "connections=2"), "must be given once, got 'connections'"),
        (("--row", '{"connections": 1, "connections": 2}'), "key 'connections' is given twice (--row)"),
    ],
)
def test_what_cannot_be_predicted_is_refused(live: Live, options: tuple[str, ...], message: str) -> None:
    done = predict("--bundle", live.bundle, *options)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ") and message in done.stderr


def test_a_server_that_is_down_or_has_no_such_metric(live: Live) -> None:
    nothing = {"status": "success", "data": {"resultType": "vector", "result": []}}
    done = predict("--bundle", live.bundle, "--at", "now", "--prometheus", f"http://127.0.0.1:{free_port()}")
    assert done.exit_code == 2 and "server must answer" in done.stderr
    with faulty_server(reply(nothing)) as (url, _):
        done = predict("--bundle", live.bundle, "--at", "now", "--prometheus", url)
    assert done.exit_code == 2 and "must have exactly one series, got 0" in done.stderr


def test_a_setting_that_no_input_has_is_refused(live: Live) -> None:
    done = predict("--bundle", live.bundle, "--at", "now", "--prometheus", live.url, "--window", "5", "--set",
                   "conections=4")
    assert done.exit_code == 2 and "connections" in done.stderr
