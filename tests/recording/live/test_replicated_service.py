"""A service behind a proxy: instances start late and go without losing a request; Prometheus knows how many serve."""

import os
import shutil
import time
from contextlib import ExitStack

import numpy as np
import pytest

from recording.control_groups import ControlGroups, find_hierarchy
from recording.live.queries import signals
from recording.live.replicated_service import ReplicatedService
from recording.live.service import Load, monitored, prepared
from recording.processes import Guard
from recording.scaling.open_loop import ANSWERED
from recording.scaling.plan import Deployment
from recording.tools import SEARCH_PATH

pytestmark = [
    pytest.mark.skipif(any(shutil.which(one, path=SEARCH_PATH) is None for one in ("nginx", "haproxy", "prometheus")),
                       reason="needs the Debian packages nginx-light, haproxy and prometheus (make debian)"),
    pytest.mark.skipif(os.geteuid() != 0 or find_hierarchy().memory is None or find_hierarchy().cpu is None,
                       reason="needs control groups that may be written")]
START_UP_S = (3.0, 4.0)


def test_instances_come_late_and_go_without_losing_a_request() -> None:
    with Guard() as guard:
        groups, home = ControlGroups(guard, find_hierarchy()), prepared(guard, "nginx")
        with ReplicatedService(guard, groups, home, "shop", Deployment("nginx", 0.5, 1, 1), 64.0, most=3,
                               start_up_s=START_UP_S, seed=0) as service:
            prometheus = monitored(guard, [service], 0.5)
            service.start_load(Load([100.0], [20.0], 1))
            assert (service.asked, service.ready) == (1, 1)
            with pytest.raises(ValueError, match="from 1 to 3, got 4"):
                service.scale(4)
            service.scale(3)
            asked_at = time.monotonic()
            assert (service.asked, service.ready) == (3, 1)
            while service.ready < 3:
                service.require_alive()
                time.sleep(0.02)
            assert START_UP_S[0] < time.monotonic() - asked_at < START_UP_S[1] + 2.0
            service.set_quota(0.25)
            assert prometheus.await_value('service_replicas{service="shop"} == 3') == 3.0
            prometheus.await_value('service_ready_replicas{service="shop"} == 3')
            assert prometheus.await_value('service_cpu_limit_cores{service="shop"} < 0.3') == pytest.approx(0.25)
            before = [one.running.session for one in service._live.instances]
            time.sleep(2.5)
            asked = signals("shop", "2s")
            told, used = (prometheus.await_value(asked[name]) for name in ("cpu_utilization", "cpu_used_cores"))
            assert told == pytest.approx(used / 0.75, rel=0.3)
            service.scale(1)
            while service.ready > 1 or len(service._live.instances) > 1:
                service.require_alive()
                time.sleep(0.02)
            assert [one.running.session for one in service._live.instances] == before[:1]
            assert prometheus.await_value('service_ready_replicas{service="shop"} == 1') == 1.0
            service.scale(2)
            service.scale(1)  # nobody starts what is not wanted any more
            found = service.result()
            assert service.ready == 1
        assert not list(guard.folder.glob("shop/*"))
    assert (found.status == ANSWERED).all()
    assert len(found.due) > 1500
    assert np.isfinite(found.done).all()


def test_two_services_with_one_seed_start_equally_late() -> None:
    with Guard() as guard, ExitStack() as stack:
        groups, home = ControlGroups(guard, find_hierarchy()), prepared(guard, "nginx")
        first, second = (stack.enter_context(ReplicatedService(
            guard, groups, home, f"shop-{number}", Deployment("nginx", 0.5, 1, 1), 64.0, most=4,
            start_up_s=(10.0, 40.0), seed=7)) for number in range(2))
        first.scale(3)
        second.scale(2)
        second.scale(3)
        now = time.monotonic()
        assert [due - now for due in first._due] == pytest.approx([due - now for due in second._due], abs=0.5)
        assert all(9.0 < due - now < 40.0 for due in first._due)
