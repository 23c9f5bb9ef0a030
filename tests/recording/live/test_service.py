"""A live service: what Prometheus says of it is what its requests and its control group say."""

import os
import shutil

import numpy as np
import pytest

from recording.control_groups import ControlGroups, find_hierarchy
from recording.live.queries import signals
from recording.live.service import TIMEOUT_S, LiveService, Load, monitored, prepared
from recording.processes import Guard
from recording.scaling.plan import Deployment
from recording.tools import SEARCH_PATH

pytestmark = [
    pytest.mark.skipif(any(shutil.which(one, path=SEARCH_PATH) is None for one in ("nginx", "prometheus")),
                       reason="needs the Debian packages nginx-light and prometheus (make debian)"),
    pytest.mark.skipif(os.geteuid() != 0 or find_hierarchy().memory is None or find_hierarchy().cpu is None,
                       reason="needs control groups that may be written")]
RATE, SECONDS = 100.0, 24.0


def test_prometheus_tells_of_a_service_what_its_requests_tell() -> None:
    with Guard() as guard:
        groups = ControlGroups(guard, find_hierarchy())
        home = prepared(guard, "nginx")
        with LiveService(guard, groups, home, "shop", Deployment("nginx", 0.5, 1, 1), 64.0) as service:
            prometheus = monitored(guard, [service], 1.0)
            service.start_load(Load([RATE], [SECONDS], 1))
            found = service.result()
            asked = signals("shop", "20s")
            told = {name: prometheus.await_value(one if isinstance(one, str) else one["query"])
                    for name, one in asked.items()}
        assert not list(guard.folder.glob("shop*"))
    latency_ms = found.latency_ms(TIMEOUT_S)
    assert told["served_share"] == 1.0
    assert told["rate_rps"] == pytest.approx(RATE, rel=0.25)
    assert 1000 * told["p99_ms"] == pytest.approx(np.percentile(latency_ms, 99), rel=0.35)
    assert 0.02 < told["cpu_used_cores"] < 0.5
    assert told["cpu_utilization"] == pytest.approx(told["cpu_used_cores"] / 0.5, rel=0.05)
    assert 1 < told["memory_used_mib"] / 2**20 < 64
    assert told["memory_utilization"] == pytest.approx(told["memory_used_mib"] / (64 * 2**20), rel=0.05)
