"""What a controller tells Prometheus of itself."""

import math
import socket
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest

from feature_store.errors import InputError
from recording.loopback import free_port
from serving.control.control_step import ControlStep
from serving.control.metrics import Metrics
from serving.control.parts import Model
from serving.control.shield import Change
from serving.seen_spec import Familiar, SeenRange, SeenSpec

OWN = 'task="autoscaling",workload="nginx"'


def _scraped(port: int) -> dict[str, float]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    text = opener.open(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_every_step_is_counted_and_served():
    age = [7.0]
    metrics = Metrics("autoscaling", "nginx", lambda: Model(None, "", "abc", age[0]), lambda: 2 * age[0])
    metrics.count(ControlStep(0, "now", "fallback", "p99 is missing", "abc", {"p99_ms": math.nan}, ("p99 is missing",),
                              took_s={"observe": 0.02}))
    metrics.count(ControlStep(1, "now", "policy", "", "def", {}, (), ("rate_rps",), {"target_replicas": 9.0},
                              (Change("target_replicas", "rate", 9.0, 4.0),), {"target_replicas": 4.0},
                              {"target_replicas": 4.0}, failure="log: full", strange=("load a core",),
                              took_s={"observe": 0.02, "act": 0.5}))
    port = free_port()
    stop = metrics.serve(port)
    try:
        found = _scraped(port)
    finally:
        stop()
    expected = {f'assay_control_steps_total{{actor="policy",{OWN}}}': 1, f'assay_control_policy_acts{{{OWN}}}': 1,
                f'assay_control_steps_total{{actor="fallback",{OWN}}}': 1,
                f'assay_control_steps_total{{actor="nobody",{OWN}}}': 0,
                f'assay_control_shield_changes_total{{actor="policy",control="target_replicas",reason="rate",{OWN}}}':
                    1,
                f'assay_control_outside_box_total{{input="rate_rps",{OWN}}}': 1,
                f'assay_control_out_of_distribution_total{{range="load a core",{OWN}}}': 1,
                f'assay_control_troubles_total{{{OWN}}}': 1, f'assay_control_failures_total{{{OWN}}}': 1,
                f'assay_control_step_seconds_count{{phase="observe",{OWN}}}': 2,
                f'assay_control_set{{control="target_replicas",{OWN}}}': 4,
                f'assay_control_model_age_seconds{{{OWN}}}': 7, f'assay_control_ledger_unseen_seconds{{{OWN}}}': 14,
                'assay_control_model_info{task="autoscaling",version="def",workload="nginx"}': 1}
    assert {name: found.get(name) for name in expected} == expected
    assert not any('version="abc"' in name for name in found)
    with pytest.raises(OSError):
        _scraped(port)


def test_what_alerts_watch_begins_at_0():
    """Also of a champion that comes later."""
    seen = [SeenSpec(ranges=(SeenRange(name, "linear", {"rate_rps": 1.0}, 0.0, 1.0),)) for name in ("rate", "load")]
    champions = [Model(SimpleNamespace(familiar=Familiar(one, {"rate_rps": 1.0})), "", "abc") for one in seen]
    metrics = Metrics("autoscaling", "nginx", lambda: champions[0], lambda: 0.0, ["replicas"])
    begun = generate_latest(metrics.registry).decode()
    for reason in ("rate", "range", "missed"):
        assert (f'assay_control_shield_changes_total{{actor="policy",control="replicas",reason="{reason}",{OWN}}} 0.0'
                in begun)
    assert f'out_of_distribution_total{{range="rate",{OWN}}} 0.0' in begun and 'range="load"' not in begun
    champions.pop(0)
    metrics.count(ControlStep(0, "now", "policy", "", "def", {}))
    assert f'out_of_distribution_total{{range="load",{OWN}}} 0.0' in generate_latest(metrics.registry).decode()


@pytest.mark.parametrize("address", ["a..b", "999.1.1.1", "\u00e9" * 70])
def test_an_address_that_is_none_is_one_line(address):
    with pytest.raises(InputError, match="metrics address and port must be free on this machine, got"):
        Metrics("autoscaling", "nginx", lambda: Model(None, "", "abc"), lambda: 0.0).serve(0, address)


def test_a_port_that_is_taken_is_one_line():
    metrics = Metrics("autoscaling", "nginx", lambda: Model(None, "", "abc"), lambda: 0.0)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with pytest.raises(InputError, match="metrics address and port must be free"):
            metrics.serve(server.getsockname()[1])
