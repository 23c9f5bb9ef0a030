"""A bounded queue and a used link, for ever: by the law in small steps against the worst, and by its check."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.control.policy.policy_chain import Box, chain
from models.control.policy.policy_model import chain_onnx
from models.export.bundle import PROOF_FILE
from models.tasks.control.demands import demanded
from models.tasks.control.evidence import _closed_loop
from models.tasks.control.policies import policy_shape
from models.tasks.control.sections import loop_claims
from models.tasks.control.workload import specification_of
from models.tasks.task import load_task
from models.verification.decide import decide
from models.verification.proof_file import check_proof
from systems.congestion.benchmarks.adversary import STEPS, choices, driven
from systems.congestion.environment import SETTINGS
from systems.congestion.guarantee import Found, Rules, check, found, guarantees, rules_of

PROPERTIES = demanded(yaml.safe_load((Path(__file__).parents[3] / "systems/congestion/congestion.yaml").read_text())[
    "specification"]["properties"], {"target_rate_pps.low": 4.0, "target_rate_pps.high": 4000.0})
TOLD = {"most_queueing_s": 0.1}


def found_of(properties: Any = PROPERTIES, **changed: Any) -> dict[str, Any]:
    return dict(guarantees(properties, {one.name: one.default for one in SETTINGS} | changed))


def of(base_rtt_ms: float, most_queueing_s: float) -> tuple[Rules, dict[str, Any], Found]:
    shipped = found_of(base_rtt_ms=base_rtt_ms, most_queueing_s=most_queueing_s)["shipped"]
    document = {name: value for name, value in json.loads(shipped.content).items() if name != "format"}
    rules = rules_of(PROPERTIES, most_queueing_s)
    assert rules is not None
    bound = found(rules, **document)
    assert bound is not None
    return rules, document, bound


NAMES = list(choices(0.05, 0.1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["slowest_pps", "fastest_pps"])
def test_nobody_who_keeps_to_the_rules_breaks_it(name: str, place: str) -> None:
    rules, document, bound = of(50.0, 0.1)
    jitter_s, random = document["jitter_s"], np.random.default_rng(1)
    late = {"slow": lambda now: 0.0, "fast": lambda now: jitter_s}.get(name, lambda now: jitter_s * random.random())
    bandwidth = document[place]
    rows = driven(rules, bandwidth, 0.05, jitter_s, 0.1, 20.0, choices(0.05, 0.1)[name], (0.9 * bandwidth, 0.0), late)
    assert rows[:, 0].max() <= bound.queueing_s
    assert rows[:, 1].min() >= bound.used
    if name == "fast":
        assert rows[:, 0].max() > 0.6 * bound.queueing_s, "it is tried"


@pytest.mark.parametrize("name", ["random 0", "slow"])
def test_it_holds_from_a_long_queue_and_the_highest_rate_on(name: str) -> None:
    rules, document, _ = of(50.0, 0.1)
    bound = found(rules, **document | {"slowest_pps": 2000.0})
    assert bound is not None and bound.after_s < 200
    late = np.random.default_rng(2)
    rows = driven(rules, 2000.0, 0.05, document["jitter_s"], 0.1, bound.after_s + 10.0, choices(0.05, 0.1)[name],
                  (4000.0, 1.0), lambda now: document["jitter_s"] * late.random())
    settled = rows[round(bound.after_s * STEPS / 0.05):]
    assert rows[:, 0].max() > 1.5 > bound.queueing_s >= settled[:, 0].max()
    assert settled[:, 1].min() >= bound.used


def test_without_one_of_the_properties_nothing_follows() -> None:
    needed = [one for one in PROPERTIES if "monotone" not in one]
    assert found_of(needed)["found"][0]["status"] == "PROVED"
    for place, one in enumerate(needed):
        less = found_of(needed[:place] + needed[place + 1:])
        assert less["shipped"] is None and less["found"][0]["status"] == "UNKNOWN", one
        assert less["found"][0]["reason"].startswith("Too little is proved of a step")


@pytest.mark.parametrize(("demands", "reason"), [
    ({"box": {"rate_pps": [500, 4000]}}, "shown of rate_pps, 4 to 4000, got 500 to 4000"),
    ({"box": {"acked_share": [0.5, 2]}}, "shown of acked_share, 0.015625 to 64, got 0.5 to 2"),
    ({"inputs": {"rate_pps": {"values": [4, 4000]}}}, "shown of rate_pps, 4 to 4000, got single values"),
    ({"box": {"most_queueing_s": [0.2, 8]}}, "shown of most_queueing_s, 0.1 to 0.1, got 0.2 to 8")])
def test_a_box_that_is_narrower_than_what_is_observed_gives_none_and_says_of_which_input(
        tmp_path: Path, demands: dict[str, Any], reason: str) -> None:
    """The file takes a slower rate for 500 packets a second: that it falls then is said of 500, not of that rate."""
    (tmp_path / PROOF_FILE).touch()

    def loop(changed: dict[str, Any]) -> dict[str, Any]:
        written = yaml.safe_load((Path(__file__).parents[3] / "systems/congestion/congestion.yaml").read_text())
        written["specification"] |= changed
        (tmp_path / "task.yaml").write_text(yaml.safe_dump(written))
        task, environment = load_task(tmp_path / "task.yaml"), environment_of("congestion")
        model = chain_onnx(*chain(Policy(policy_shape(task, environment), torch.Generator().manual_seed(0))), {})
        return dict(_closed_loop(task, "uplink", environment, model, specification_of(task, "uplink", environment),
                                 tmp_path))

    assert loop({})["found"][0]["status"] == loop({"box": {"most_queueing_s": [0.1, 0.1]}})["found"][0]["status"] == \
        "PROVED"
    found = loop(demands)
    assert set(found) == {"reason"} and reason in found["reason"]
    (claim,) = loop_claims({"closed_loop": found})
    assert claim.status == "not tried" and reason in claim.text


def altered(place: int, **changes: Any) -> list[Any]:
    """The properties, one of them with changes; None takes a part away."""
    orders = [dict(one["order"]) for one in PROPERTIES if "order" in one]
    orders[place] = {name: value for name, value in (orders[place] | changes).items() if value is not None}
    return [*({"order": one} for one in orders), *(one for one in PROPERTIES if "range" in one)]


CALM = {"queueing_s": [0, 0.0019], "most_queueing_s": [0.02, 8], "mean_loss_share": [0, 0.01]}


@pytest.mark.parametrize("properties", [
    # of a queue that is seen as none, not only of one that is a little less than the calm one
    altered(4, when=CALM | {"queueing_s": [0.0018, 0.0019]}), altered(4, when=CALM | {"most_queueing_s": [0.2, 8]}),
    altered(4, when=CALM | {"mean_loss_share": [0, 0]}), altered(4, when=CALM | {"rtt_s": [0, 1]}),
    altered(0, when={"acked_share": [0.015625, 1.2]}), altered(0, at_least=None),
    altered(1, factor=1.0000001), altered(1, margin=-0.1), altered(1, upper="rate_before_pps"),
    altered(2, when={"most_acked_share": [0.1, 0.7]}), altered(3, when={"acked_share": [1.5, 32]}),
    altered(7, when={"rate_pps": [4, 100]}), altered(6, factor=0.05)])
def test_properties_that_say_less_give_no_guarantee(properties: list[Any]) -> None:
    assert found_of(altered(4, when=CALM))["found"][0]["status"] == "PROVED"
    assert found_of(properties)["shipped"] is None
    assert not check(found_of()["shipped"].content, properties, TOLD).accepted


@pytest.mark.parametrize(("name", "value", "message"), [
    ("jitter_s", 0.01, "does not follow"),
    ("most_queueing_s", 0.09, "must be the objective that the policy is told, 0.1"),
    ("slowest_pps", 100.0, "does not follow"), ("fastest_pps", 3000.0, "does not follow"),
    ("base_s", 0.02, "does not follow"), ("base_s", "0.05", "numbers above 0"),
    ("base_s", float("nan"), "numbers above"),
    ("slowest_pps", 2090.0, "at most fastest_pps"), ("more", 1.0, "guarantee must be assay-congestion-loop/1")])
def test_a_guarantee_that_claims_more_is_refused(name: str, value: Any, message: str) -> None:
    content = json.loads(found_of()["shipped"].content)
    assert check(json.dumps(content).encode(), PROPERTIES, TOLD).accepted
    refused = check(json.dumps(content | {name: value}).encode(), PROPERTIES, TOLD)
    assert not refused.accepted and message in refused.reason
    assert "does not follow" in check(json.dumps(content | {"most_queueing_s": 4.0}).encode(), PROPERTIES,
                                      {"most_queueing_s": 4.0}).reason
    assert not check(b"{", PROPERTIES, TOLD).accepted


def test_it_says_what_is_guaranteed_of_the_workload() -> None:
    (one,) = found_of()["found"]
    assert one["bound"] == pytest.approx(549.1, abs=1.0) and one["bound_unit"] == "ms"
    assert one["statement"] == found_of()["shipped"].checked.statement
    assert "whose objective is 0.1 s of queueing, " in one["statement"]
    assert "waits 0.55 s at most in its queue, for ever, and sends at least 14.1 %" in one["statement"]


@pytest.mark.parametrize(("low", "high"), [(4.0, 4000.0), (1.0, 4000.0), (10.0, 10000.0)])
def test_what_it_rests_on_is_proved_of_any_weights_and_limits(tmp_path: Path, low: float, high: float) -> None:
    """The form alone; the one of the most that is added takes slices across the rate (first_look.py)."""
    task, environment = load_task("congestion"), environment_of("congestion")
    properties = demanded(task.specification["properties"], {"target_rate_pps.low": low, "target_rate_pps.high": high})
    shape = policy_shape(task, environment)
    policy = Policy(replace(shape, controls=(replace(shape.controls[0], low=low, high=high),)),
                    torch.Generator().manual_seed(0))
    with torch.no_grad():
        policy.weights[-1].mul_(100.0)
    box = Box.of(shape.signals)
    box.lower[0], box.upper[0] = low, high
    (tmp_path / "m.onnx").write_bytes(chain_onnx(*chain(policy, box), {}))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({
        "features": [one.name for one in shape.signals], "outputs": ["target_rate_pps"],
        "box": {one.name: [*walls] for one, *walls in zip(shape.signals, box.lower.tolist(), box.upper.tolist(),
                                                          strict=True)},
        "properties": [one for one in properties if "monotone" not in one]}))
    found = decide(tmp_path / "m.onnx", tmp_path / "s.yaml", 60.0, certificate=tmp_path / "p.npz")
    assert found.verdict == "PROVED" and sum(part.boxes for part in found.parts) > 9
    assert check_proof(tmp_path / "p.npz", tmp_path / "m.onnx", tmp_path / "s.yaml").accepted
