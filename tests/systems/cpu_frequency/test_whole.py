"""A governor's policy from a recorded load to files: trained, PROVED, gated, signed, then it sets a clock."""

import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from systems.cpu_frequency.interface import AT_LIMIT_C
from systems.cpu_frequency.processors import PROCESSORS
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.systems.cpu_frequency.kernel_files import kernel_files
from tests.systems.whole_way import small_champion

pytestmark = [pytest.mark.filterwarnings(IGNORED_WARNING), pytest.mark.timeout(900)]


def test_a_small_policy_is_trained_proved_signed_and_sets_a_clock(tmp_path: Path) -> None:
    rate = 500.0 * np.exp(0.3 * np.sin(np.arange(300) / 20) + np.random.default_rng(0).normal(0, 0.05, 300))
    made, contract = small_champion(tmp_path, "cpu_frequency", pd.DataFrame({"rate_rps": rate}))
    assert contract.fallback is not None and contract.fallback.safe_ranges["target_frequency_ghz"].safe_side == "more"
    assert contract.guarantee is not None
    assert "never gets hotter than its limit of 84.5 degC" in contract.guarantee.statement
    assert contract.driving is not None
    assert tuple(contract.driving.levels["target_frequency_ghz"]) == PROCESSORS[0].levels

    tree = tmp_path / "files"
    tree.mkdir()
    # no heat, hardly another power came in so small a training
    tiny.write_yaml({"clock": kernel_files(tree), "out_of_distribution": {
        "ignore": ["room_c", "power_share", "pressing_latency_ms"]}}, tmp_path / "clock.yaml")
    over = threading.Event()
    working = threading.Thread(target=_service, args=(tree, over))
    working.start()
    try:
        done = made.call("control", "--task", "cpu_frequency", "--workload", "shop", "--actuator",
                         "systems.cpu_frequency.sysfs", "--controller", "clock.yaml", "--steps", "60",
                         "--every", "0.25", "--json")
    finally:
        over.set()
        working.join()
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    acted = [step for step in steps if step["actor"] == "policy"]
    assert len(acted) > 20, [(step["actor"], step["reason"]) for step in steps]
    clocks = [step["done"]["target_frequency_ghz"] for step in steps if step["done"]]
    assert all(min(abs(clock - level) for level in PROCESSORS[0].levels) < 1e-6 for clock in clocks)
    assert all(0.599 < later / now < 1.667 for now, later in pairwise(clocks)) and len(set(clocks)) > 2
    hot = [step for step in steps if step["done"] and (step["seen"].get("room_c") or 99.0) <= 1.0]
    assert hot and all(step["done"]["target_frequency_ghz"] <= 2.0 + 1e-6 for step in hot), "whoever acts"
    pressed = full = 0
    for step in acted:
        seen, clock = step["seen"], step["done"]["target_frequency_ghz"]
        if seen["room_c"] <= AT_LIMIT_C:
            full += 1
            assert clock <= seen["frequency_ghz"] + 1e-6, step
        elif seen["latency_ms"] > seen["most_latency_ms"]:
            pressed += 1
            assert clock >= seen["frequency_ghz"] - 1e-6, step
    assert pressed and full, [(step["actor"], step["reason"], step["seen"]["room_c"]) for step in steps]
    for policy in (tree / "cpufreq").iterdir():
        assert (policy / "scaling_max_freq").read_text().strip() == "3000000", "what was found is given back"


def _service(tree: Path, over: threading.Event) -> None:
    """What the task file's service and its processor write: quiet, too slow, and hot in turns of 1.7 s, which do not
    coincide with steps; 50 W; what depends on the clock follows what is set."""
    while not over.wait(0.02):
        latency_ms, celsius = ((31.0, 58.0), (47.0, 58.0), (47.0, 84.0))[int(time.monotonic() / 1.7) % 3]
        texts = {"temp1_input": f"{round(1000 * celsius)}\n", "rapl/energy_uj": f"{round(5e7 * time.monotonic())}\n"}
        for policy in (tree / "cpufreq").iterdir():
            set_khz = (policy / "scaling_max_freq").read_text().strip() or "2000000"  # while it is being written
            texts[f"cpufreq/{policy.name}/scaling_cur_freq"] = set_khz
        busy_ms = 8.0 / (1e-6 * int(set_khz)) + 2.0
        texts["status.json"] = json.dumps({
            "rate_rps": 500.0, "latency_ms": latency_ms, "ips_1e9": 500 * 10e6 / 8 / 1e9,
            "usage": 500 * 1e-3 * busy_ms / 8, "stall_share": 2.0 / busy_ms})
        for name, text in texts.items():
            whole = tree / f"{name}.new"
            whole.write_text(text)
            whole.rename(tree / name)
