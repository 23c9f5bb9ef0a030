"""A sender's policy from a recorded bandwidth to packets: trained, PROVED, gated, signed, then it paces a socket."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from systems.congestion.interface import CONTROLS
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.systems.congestion.udp_link import udp_link
from tests.systems.whole_way import small_champion

pytestmark = [pytest.mark.filterwarnings(IGNORED_WARNING), pytest.mark.timeout(900)]


def test_a_small_policy_is_trained_proved_signed_and_sends(tmp_path: Path) -> None:
    bandwidth = 3.6 + np.random.default_rng(0).normal(0, 0.3, 200)
    made, contract = small_champion(tmp_path, "congestion", pd.DataFrame({"bandwidth_mbps": bandwidth}))
    assert contract.guarantee is not None and "at most in its queue, for ever" in contract.guarantee.statement
    assert contract.fallback is not None and contract.fallback.safe_ranges["target_rate_pps"].safe_side == "less"

    with udp_link(300.0, 0.05, 100) as to:
        tiny.write_yaml({"sender": {"to": to, "first_rate_pps": 60}}, tmp_path / "sender.yaml")
        done = made.call("control", "--task", "congestion", "--workload", "uplink", "--actuator",
                         "systems.congestion.sender", "--controller", "sender.yaml", "--steps", "160", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    actors = [step["actor"] for step in steps]
    assert actors.count("policy") > 40, [(step["actor"], step["reason"]) for step in steps]
    rates = [step["done"]["target_rate_pps"] for step in steps if step["done"]]
    (control,) = CONTROLS
    assert all(later <= (1 + control.most_up) * now + 0.01 for now, later in pairwise(rates))
    for step in steps:
        seen = step["seen"]
        if step["actor"] == "policy" and seen["queueing_s"] > seen["most_queueing_s"]:
            slower = 1.03 if seen["acked_share"] <= 1.2 and seen["rate_pps"] >= 8 else 1.0
            assert step["done"]["target_rate_pps"] <= seen["rate_pps"] / slower + 0.02, step
    assert len({round(rate, 3) for rate in rates}) > 10 and max(rates) < 3000
