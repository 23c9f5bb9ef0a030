"""The application with agents that set its limits: what counts, and that an arm really runs."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from feature_store.errors import InputError
from recording import tools
from recording.control_groups import find_hierarchy
from recording.scaling.generator import python_environment
from recording.scaling.open_loop import ANSWERED, TIMED_OUT, Result
from serving.control.coordinator import Coordinator, read_shared
from serving.control.file_part import FilePart
from systems.microservices.application.anomalies import Anomaly
from systems.microservices.application.running import TOOLS
from systems.microservices.benchmarks.law import by_law, law_table
from systems.microservices.benchmarks.live import ARMS, FIXED, POLICY, deployed, in_order, live_table, outcome, stands
from systems.microservices.benchmarks.live_application import CORES, NAMES, WARM_UP_S, Arm, Played, played
from systems.microservices.coordinator import TELLER
from systems.microservices.interface import LEAST_CORES
from systems.microservices.limits import ACTUATOR
from tests.e2e import tiny
from tests.serving.actuators.control_group.groups import PARENT, plain_files

MISSING = [name for name in TOOLS if shutil.which(name, path=tools.SEARCH_PATH) is None]


def test_limits_to_begin_with_fill_the_node_by_what_services_use() -> None:
    found = deployed({"cart": 0.3, "pricing": 0.1, "idle": 0.0})
    assert sum(found.values()) == pytest.approx(CORES) and found["idle"] == LEAST_CORES
    assert found["cart"] - LEAST_CORES == pytest.approx(3.0 * (found["pricing"] - LEAST_CORES))


def test_each_run_begins_with_another_arm_and_fixed_limits_come_after_the_policy() -> None:
    orders = [in_order(number) for number in range(len(ARMS) - 1)]
    assert {one[0] for one in orders} == set(ARMS) - {FIXED}
    for one in orders:
        assert sorted(one) == sorted(ARMS) and one[one.index(POLICY) + 1] == FIXED


def test_whole_runs_of_other_machines_stand_and_a_run_that_was_begun_elsewhere_begins_anew() -> None:
    def entry(number: int, arm: str, **others: str) -> dict[str, object]:
        return {"run": number, "arm": arm, "policy": "one", "machine": "a", **others}

    before = {"seconds": 600.0, "entries": [*(entry(0, arm, machine="b", policy="two") for arm in ARMS),
                                            *(entry(1, arm, machine="b") for arm in ARMS[1:]), entry(2, POLICY)]}
    here = {"policy": "one", "machine": "a"}
    for seconds, keep in ((600.0, {0, 2}), (300.0, set())):
        kept = [one for one in before["entries"] if stands({"seconds": seconds}, here, before, one)]
        assert {one["run"] for one in kept} == keep
    assert not stands({"seconds": 600.0}, {"policy": "two", "machine": "a"}, before, before["entries"][-1])


def test_the_table_is_of_the_runs_that_have_most_arms() -> None:
    figures = dict.fromkeys(("holds_again_s", "begins_a_minute", "missed", "missed_calm", "late", "limits", "usage",
                             "dropped", "beside"), 0.5)
    made = {"anomalies": 60, "date": "2026-11-30T10:00:00+00:00"}
    entries = [{"run": 0, "arm": arm, "policy": "one", "machine": "a", **figures, **made} for arm in ARMS]
    entries += [{**one, "run": 1, "policy": "two", "machine": "b", "holds_again_s": 1.5} for one in entries]
    entries.append({**entries[0], "run": 2, "holds_again_s": 99.0})
    written = live_table({"entries": entries, "seconds": 600.0, "machine": {"cores": 2}})
    assert "| **policy** | 1.0 ± 0.7 |" in written and "99" not in written
    assert "2 runs of 600 s an arm with 120 anomalies, by 2 policies" in written and "2 cores of a and b" in written


def test_a_second_misses_where_one_request_took_longer_than_its_type_may() -> None:
    """Of ten seconds 2, 3 and 7 miss: one request of three late in each; one of them was never answered."""
    due = np.repeat(np.arange(WARM_UP_S, WARM_UP_S + 10.0), 3) + np.tile([0.0, 0.3, 0.6], 10)
    latency, status = np.full(30, 0.05), np.full(30, ANSWERED)
    types = np.array(["buy", "look", "look"] * 10)
    latency[[3 * 2 + 1, 3 * 3 + 2]] = 0.08  # of type look, which may take 70 ms; buy may take more
    latency[3 * 5] = 0.08
    status[3 * 7] = TIMED_OUT
    done = np.where(status == ANSWERED, due + latency, np.nan)
    limits = np.full((10, 2), CORES / 4.0)
    limits[:5] *= 2.0
    planned = [Anomaly(WARM_UP_S + 2.5, WARM_UP_S + 3.5, "cart", "cpu", 1.0, True)]  # seconds 2 to 5 are not calm
    came = Played(types, Result(due, due, due, done, status), limits, limits / 4.0, planned, 0.0, None, 0.0)
    found = outcome(came, {"buy": 100.0, "look": 70.0})
    assert found == pytest.approx({
        "missed": 0.3, "missed_calm": 1 / 6, "holds_again_s": 1.5, "begins_a_minute": 12.0, "late": 0.1, "requests": 30,
        "limits": 0.75, "most_limits": 1.0, "usage": 0.25, "dropped": 1 / 30})


def test_the_law_is_that_of_the_simulator_at_the_limits_of_each_share() -> None:
    """Two services one after the other, of a millisecond each that varies not at all; less than a sixteenth of a core
    is not set."""
    known = {"services": ["front", "cart"], "types": ["buy"], "work_s": [1e-3, 1e-3], "waits_s": [0.0, 2e-3],
             "arrival_cv2": [1.0, 1.0], "service_cv2": [0.0, 0.0], "visits": [[1.0, 1.0]], "paths": [[[1.0, 1.0]]],
             "mix": [1.0]}
    limits = {"front": 4.0, "cart": 2.0}
    assert by_law(known, limits) == {"buy": pytest.approx(4.0, abs=0.1)}, "nobody waits"
    written = law_table({"fitted": known, "limits": limits, "seconds": 60.0, "entries": [
        {"share": 1.0, "measured_ms": {"buy": 4.0, "rare": 9.0}}, {"share": 0.01, "measured_ms": {"buy": 40.0}}],
        "machine": {"cores": 2, "cpu_model": "a processor", "date": "2026-11-27T00:00:00Z"}})
    assert "| 6.00 | 4 / 4 |" in written and "| 0.12 | 40 / " in written and "rare" not in written


def test_a_rule_sets_what_the_coordinator_looks_at(tmp_path: Path) -> None:
    """Of two services of two cores, on a node of four, the one that nobody comes by is halved once a look by a rule
    that wants little, and never lower than may be set; the other keeps what it uses and a quarter."""
    tree = plain_files(tmp_path / "groups", 2)
    parent = tree.folders["cpu"].parent
    (tmp_path / "status").mkdir()
    standing = {"rate_rps": 20.0, "served_rps": 20.0, "latency_ms": 50.0, "most_latency_ms": 100.0, "type_share": 1.0,
                "importance": 0.0, "congestion_intensity": 1.0, "own_latency_ms": 5.0}
    for name in ("busy", "idle"):
        shutil.copytree(tree.folders["cpu"], parent / name)
        (parent / name / "cpu.max").write_text("200000 100000\n")
    node = tmp_path / "node.yaml"
    tiny.write_yaml({"cores": 4, "look": str(tmp_path / "look.json"), "status": str(tmp_path / "status"),
                     "every_s": 0.1, "groups": {name: f"{PARENT}/{name}" for name in ("busy", "idle")},
                     "root": str(tree.root)}, node)
    (tmp_path / "rule.json").write_text(json.dumps({
        "system": "microservices", "rule": "headroom", "settings": {"headroom": 1.25, "spare": 0.0}, "node": str(node),
        "state": str(tmp_path / "found")}))
    coordinator = Coordinator(read_shared(node, TELLER), TELLER)
    running = subprocess.Popen([sys.executable, "-m", "benchmarks.control.live_rules",
                                tmp_path / "rule.json"], env=python_environment(), stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60.0
        while quota(parent / "idle") > 6250 and time.monotonic() < deadline:
            assert running.poll() is None, running.stderr and running.stderr.read()
            for name, used in (("busy", 1.2), ("idle", 0.01)):
                (tmp_path / "status" / f"{name}.json").write_text(json.dumps({**standing, "used_cores": used}))
            coordinator.look()
            time.sleep(0.1)
    finally:
        running.kill()
        running.communicate()
    assert quota(parent / "idle") == 6250, "a sixteenth of a core"
    assert quota(parent / "busy") == 150_000


def quota(group: Path) -> int:
    return int((group / "cpu.max").read_text().split()[0])


@pytest.mark.skipif(os.geteuid() != 0 or find_hierarchy().cpu is None, reason="control groups may not be written here")
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_an_arm_runs_the_whole_application_and_its_agents() -> None:
    """A rule lowers what it need not have, by statuses of live traces."""
    begins = deployed(dict.fromkeys(NAMES, 0.1))
    came = played(Arm("headroom", {"headroom": 2.0, "spare": 0.01}), 0, 12.0, False, begins,
                  dict.fromkeys(("home", "search", "product", "cart", "checkout"), 2000.0))
    assert came.limits.shape == came.used.shape == (12, len(NAMES)) and not came.anomalies
    assert came.limits.sum(axis=1).max() <= 1.0005 * CORES
    assert came.limits[-1].sum() < 0.8 * CORES, "used: a tenth of the node"
    assert 0.0 < came.beside < 1.5
    assert len(came.types) == len(came.results.due) > 60
    assert (came.results.status == ANSWERED).mean() > 0.9


@pytest.mark.parametrize("state", ["", "run", "~/run"])
def test_an_agent_s_state_folder_is_an_absolute_path(tmp_path: Path, state: str) -> None:
    given = {"name": "cart", "group": "services/cart", "look": str(tmp_path / "look.json"), "state": state}
    with pytest.raises(InputError, match=r"service\.state must be an absolute path of a folder, such as /run/assay"):
        ACTUATOR.read(FilePart(given, "service", "a file"))
