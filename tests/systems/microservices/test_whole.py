"""A policy from a recorded load to files: trained, PROVED, gated, signed, then it sets a service's cores."""

import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from systems.microservices.coordinator import main
from systems.microservices.interface import SUSPECT
from systems.microservices.observer import ServiceObserver
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.serving.actuators.control_group.groups import PARENT, plain_files
from tests.systems.whole_way import small_champion, steps_of

pytestmark = [pytest.mark.filterwarnings(IGNORED_WARNING), pytest.mark.timeout(900)]

CORES, EVERY_S, NAMES = 12.0, 0.4, ("cart", "price", "mail")


def test_a_small_policy_is_trained_proved_signed_and_sets_its_services_cores(tmp_path: Path) -> None:
    rate = 400.0 * np.exp(0.3 * np.sin(np.arange(300) / 20) + np.random.default_rng(0).normal(0, 0.05, 300))
    made, contract = small_champion(tmp_path, "microservices", pd.DataFrame({"rate_rps": rate}))
    assert contract.fallback is not None and contract.fallback.safe_ranges["target_cores"].safe_side == "more"
    assert contract.guarantee is not None and "12 services" in contract.guarantee.statement

    tree = plain_files(tmp_path / "groups", 2)
    parent = tree.folders["cpu"].parent
    for name in NAMES:
        shutil.copytree(tree.folders["cpu"], parent / name)
        (parent / name / "cpu.max").write_text("200000 100000\n")
    (tmp_path / "status").mkdir()
    look = tmp_path / "look.json"
    tiny.write_yaml({"cores": CORES, "look": str(look), "status": str(tmp_path / "status"), "every_s": EVERY_S,
                     "groups": {name: f"{PARENT}/{name}" for name in NAMES}, "root": str(tree.root)},
                    tmp_path / "node.yaml")
    told = ServiceObserver()
    tiny.write_yaml({"service": {
        "name": "cart", "group": f"{PARENT}/cart", "look": str(look), "within_s": 5, "state": str(tmp_path / "run"),
        "root": str(tree.root)}, "out_of_distribution": {"ignore": [
            *(name for name in told.measured if name not in ("most_latency_ms", "fair_cores")), "mean_demand_cores",
            "pressing_latency_ms", "usual_latency_ms"]}}, tmp_path / "cart.yaml")
    over = threading.Event()
    working = [threading.Thread(target=_services, args=(parent, tmp_path / "status", over)),
               threading.Thread(target=main, args=([str(tmp_path / "node.yaml"), "--looks", "120"],), daemon=True)]
    for one in working:
        one.start()
    try:
        done = made.call("control", "--task", "microservices", "--workload", "shop", "--actuator",
                         "systems.microservices.limits", "--controller", "cart.yaml", "--steps", "60", "--every",
                         str(EVERY_S), "--json")
    finally:
        over.set()
        working[0].join()
    steps = steps_of(made, done, "systems.microservices.limits", "cart.yaml")
    acted = [step for step in steps if step["actor"] == "policy" and step["done"]]
    assert len(acted) > 15, [(step["actor"], step["reason"]) for step in steps]
    assert len({round(step["done"]["target_cores"], 3) for step in acted}) > 3, "it is not held where it is"
    missed = 0
    for step in acted:
        seen, target = step["seen"], step["done"]["target_cores"]
        assert target <= seen["allotment_cores"] + 0.011, step  # a quota is a whole number of 10 us
        if seen["latency_ms"] > seen["most_latency_ms"] and seen["importance"] >= SUSPECT:
            missed += 1
            assert target >= min(seen["cores"], seen["allotment_cores"]) - 0.011, step
    assert missed, [(step["seen"]["latency_ms"], step["seen"]["importance"]) for step in acted]
    assert (parent / "cart" / "cpu.max").read_text().strip() == "200000 100000", "what was found is given back"


def _services(parent: Path, status: Path, over: threading.Event) -> None:
    """What services say of themselves: a request takes 5 ms of a core; cart is asked 100, then 600 times a second, in
    turns of 3.1 s, which do not coincide with looks, and is then the one that the application waits for."""
    while not over.wait(0.05):
        for number, name in enumerate(NAMES):
            quota, period = ((parent / name / "cpu.max").read_text().split() or ["200000", "100000"])
            busy = int(time.monotonic() / 3.1) % 2 == 1
            rate = (600.0 if busy else 100.0) if number == 0 else 200.0
            served = min(rate, int(quota) / int(period) / 0.005) if quota != "max" else rate
            slow = number == 0 and served < rate
            told = {"rate_rps": rate, "served_rps": served, "used_cores": 0.005 * served, "most_latency_ms": 120.0,
                    "latency_ms": 400.0 if busy else 80.0, "type_share": 0.4,
                    "congestion_intensity": 6.0 if slow else 2.0,
                    "importance": 0.9 if number == 0 and busy else 0.3, "own_latency_ms": 300.0 if slow else 20.0}
            whole = status / f"{name}.new"
            whole.write_text(json.dumps(told))
            whole.rename(status / f"{name}.json")
