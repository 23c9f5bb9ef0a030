"""An agent's policy from a recorded load to files: trained, PROVED, gated, signed, then it sets a function's cores."""

import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from systems.shared_cluster.coordinator import main
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.serving.actuators.control_group.groups import PARENT, plain_files
from tests.systems.whole_way import small_champion, steps_of

pytestmark = [pytest.mark.filterwarnings(IGNORED_WARNING), pytest.mark.timeout(900)]

CORES, EVERY_S = 12.0, 0.4


def test_a_small_policy_is_trained_proved_signed_and_sets_its_functions_cores(tmp_path: Path) -> None:
    rate = 40.0 * np.exp(0.3 * np.sin(np.arange(300) / 20) + np.random.default_rng(0).normal(0, 0.05, 300))
    made, contract = small_champion(tmp_path, "shared_cluster", pd.DataFrame({"rate_rps": rate}))
    assert contract.fallback is not None and contract.fallback.safe_ranges["target_cores"].safe_side == "more"
    assert contract.guarantee is not None and "stay within" in contract.guarantee.statement

    tree = plain_files(tmp_path / "groups", 2)
    parent, names = tree.folders["cpu"].parent, ("resize", "hash", "graph")
    for name in names:
        shutil.copytree(tree.folders["cpu"], parent / name)
        (parent / name / "cpu.max").write_text("200000 100000\n")
    (tmp_path / "status").mkdir()
    look = tmp_path / "look.json"
    tiny.write_yaml({"cores": CORES, "look": str(look), "status": str(tmp_path / "status"), "every_s": EVERY_S,
                     "groups": {name: f"{PARENT}/{name}" for name in names}, "root": str(tree.root)},
                    tmp_path / "cluster.yaml")
    tiny.write_yaml({"function": {
        "name": "resize", "group": f"{PARENT}/resize", "look": str(look), "within_s": 5, "state": str(tmp_path / "run"),
        "root": str(tree.root)}, "out_of_distribution": {"ignore": [
            "demand_cores", "mean_demand_cores", "rate_rps", "latency_ms", "pressing_latency_ms", "usage",
            "others_preserved_spread", "others_usage_spread", "others_usage", "others_preserved", "cluster_limits",
            "cluster_change", "allotment_cores"]}}, tmp_path / "resize.yaml")
    over = threading.Event()
    working = [threading.Thread(target=_services, args=(parent, tmp_path / "status", names, over)),
               threading.Thread(target=main, args=([str(tmp_path / "cluster.yaml"), "--looks", "120"],), daemon=True)]
    for one in working:
        one.start()
    try:
        done = made.call("control", "--task", "shared_cluster", "--workload", "cluster", "--actuator",
                         "systems.shared_cluster.groups", "--controller", "resize.yaml", "--steps", "60", "--every",
                         str(EVERY_S), "--json")
    finally:
        over.set()
        working[0].join()
    steps = steps_of(made, done, "systems.shared_cluster.groups", "resize.yaml")
    acted = [step for step in steps if step["actor"] == "policy" and step["done"]]
    assert len(acted) > 15, [(step["actor"], step["reason"]) for step in steps]
    cores = {round(step["done"]["target_cores"], 3) for step in acted}
    assert len(cores) > 3, "it is not held where it is"
    missed = 0
    for step in acted:
        seen, target = step["seen"], step["done"]["target_cores"]
        assert target <= seen["allotment_cores"] + 0.011, step  # a quota is a whole number of 10 us
        if seen["latency_ms"] > seen["most_latency_ms"] and seen["cores"] <= seen["fair_cores"]:
            missed += 1
            assert target >= min(seen["cores"], seen["allotment_cores"]) - 0.011, step
    assert missed, [(step["seen"]["latency_ms"], step["seen"]["cores"]) for step in acted]
    assert (parent / "resize" / "cpu.max").read_text().strip() == "200000 100000", "what was found is given back"


def _services(parent: Path, status: Path, names: tuple[str, ...], over: threading.Event) -> None:
    """What functions say of themselves: a request takes 50 ms of a core; 10, then 60 requests a second, in turns of
    3.1 s, which do not coincide with looks; the others need a core each."""
    while not over.wait(0.05):
        for number, name in enumerate(names):
            quota, period = ((parent / name / "cpu.max").read_text().split() or ["200000", "100000"])
            rate = (10.0, 60.0)[int(time.monotonic() / 3.1) % 2] if number == 0 else 20.0
            served = min(rate, int(quota) / int(period) / 0.05) if quota != "max" else rate
            told = {"rate_rps": rate, "served_rps": served, "used_cores": 0.05 * served, "most_latency_ms": 120.0,
                    "latency_ms": 80.0 if served == rate else 400.0}
            whole = status / f"{name}.new"
            whole.write_text(json.dumps(told))
            whole.rename(status / f"{name}.json")
