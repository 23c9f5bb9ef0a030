"""The table of rewards says what its results say; PCC-RL is named where it is missing; what was made stays."""

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.task_digest import with_task
from feature_store.errors import InputError
from models.tasks.task import load_task
from systems.congestion.benchmarks import against_rules, beside_kernel, beside_packets, ceiling, pcc_rl, several_senders
from systems.congestion.simulator import Congestion


def entry(controller: str, place: str, **rewards: float) -> dict[str, Any]:
    return {"controller": controller, "place": place, "rewards": {
        how: {"mean": one} for how, one in rewards.items()}}


def test_policies_stand_beside_the_best_rule_for_all_links_and_for_these() -> None:
    found = {"machine": {"date": "2026-11-24"}, "entries": [
        entry("bbr", "aurora", all=2.0, own=2.2), entry("cubic", "aurora", all=1.0, own=2.4),
        entry("policy 0", "aurora", all=2.5), entry("policy 1", "aurora", all=2.3)]}
    row = against_rules.rewards_table(found).splitlines()[2]
    assert row == "| aurora | 2.00 (bbr) | 2.40 (cubic) | 2.40 (2.30 to 2.50) | +20.0 % | +0.0 % | +10 % |"
    assert "2 seeds" in against_rules.conditions_line(found).replace("\n", " ")


def written(output: Path, module: Any, *entries: dict[str, Any]) -> None:
    output.write_text(json.dumps({"format": module.FORMAT, "machine": {"date": "2026-11-24"}, "entries": entries}))


def test_a_run_without_aurora_keeps_what_was_measured_of_it_and_nothing_of_another_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, auroras = against_rules.digests()
    made: list[str] = []

    def make(name: str, _: Any) -> dict[str, Any]:
        made.append(name)
        return {**{place: {"all": None} for place in against_rules.PLACES}, "notes": {}}

    monkeypatch.setattr(against_rules, "_made", make)
    monkeypatch.setattr(against_rules, "_rewards", lambda *_: np.array([1.0, 2.0]))
    options = Namespace(output=tmp_path / "results.json", pcc_rl=None, mahimahi=None, aurora=None, seeds=1)
    its = entry("aurora", against_rules.PACKETS, all=1.5) | {"code": auroras, "steps": 7}
    its["rewards"]["all"]["standard_error"] = 0.25
    written(options.output, against_rules, its, *(
        entry("bbr", place, all=9.0) | {"code": "of another time"} for place in against_rules.FAMILIES))
    against_rules.run(options)
    assert made == [*against_rules.RULES, "policy 0"]
    found = json.loads(options.output.read_text())
    assert [one for one in found["entries"] if one["controller"] == "aurora"] == [its]
    assert {one["code"] for one in found["entries"] if one["controller"] != "aurora"} == {own}
    assert "earns 1.50 ± 0.25" in against_rules.aurora_line(found).replace("\n", " ")
    against_rules.run(options)
    assert len(made) == len(against_rules.RULES) + 1, "all is there"


def test_where_aurora_was_left_out_its_line_is_empty() -> None:
    assert against_rules.aurora_line({"entries": [entry("bbr", "aurora", all=2.0, own=2.2)]}) == ""


def test_another_task_file_is_another_measurement_but_of_aurora(monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task("congestion")
    other = task.model_copy(update={"training": task.training.model_copy(update={"rounds": task.training.rounds + 1})})
    before, codes = against_rules.digests(), [code_digest(
        f"systems.congestion.benchmarks.{name}", "systems.congestion.benchmarks") for name in ("aurora", "pcc_rl")]
    assert before[0] == with_task(task, code_digest(
        against_rules.__name__, ("systems.congestion", "models.control"))) and before[1] == codes[0] != codes[1]
    monkeypatch.setattr(against_rules, "load_task", lambda _: other)
    assert against_rules.digests()[0] != before[0] and against_rules.digests()[1] == before[1]
    assert with_task(task, "a", "b") == with_task(task, "a", "b") != with_task(other, "a", "b") != with_task(task, "ab")


def test_senders_that_share_are_measured_again_for_another_task_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, made = load_task("congestion"), list[str]()
    other = task.model_copy(update={"training": task.training.model_copy(update={"rounds": task.training.rounds + 1})})

    def rolled(*_: Any) -> Namespace:
        return Namespace(reward=np.ones(1), measures={name: np.ones(1) for name in several_senders.SHOWN})

    monkeypatch.setattr(several_senders, "_made", made.append)
    monkeypatch.setattr(several_senders, "roll_out", rolled)
    monkeypatch.setattr(several_senders, "COUNT", 1)
    options = Namespace(output=tmp_path / "results.json", seeds=1)
    all_of_them = len(several_senders.RULES) + len(several_senders.POLICIES)
    for read, times in ((task, 1), (task, 1), (other, 2)):
        monkeypatch.setattr(several_senders, "load_task", lambda _, read=read: read)
        several_senders.run(options)
        assert len(made) == times * all_of_them


def test_a_folder_that_is_no_checkout_of_pcc_rl_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--pcc-rl: expected a checkout of PCC-RL, got no src"):
        pcc_rl.load(tmp_path)


def test_senders_that_share_stand_beside_those_that_do_not_with_the_spread_of_their_seeds() -> None:
    def one(controller: str, fairness: float) -> dict[str, Any]:
        return {"controller": controller, "found": [
            {"links": links, "senders": senders, "reward": 2.0 * fairness, "utilization": 0.9, "queueing_s": 0.05,
             "loss_share": 0.01, **({"fairness": fairness} if senders > 1 else {})}
            for links in several_senders.LINKS for senders in several_senders.SENDERS]}

    entries = [one(rule, 0.5) for rule in several_senders.RULES]
    entries += [one("policy 0", 0.4), one("policy 1", 0.6), one("sharing policy 0", 0.9), one("sharing policy 1", 1.0)]
    found = {"machine": {"date": "2026-11-27"}, "entries": entries}
    *_, policy, sharing = several_senders.sharing_table(found).splitlines()
    assert policy.startswith("| policy | 0.50 (0.40 to 0.60) | ") and policy.endswith(" | 1.00 (0.80 to 1.20) |")
    assert sharing.startswith("| sharing policy | 0.95 (0.90 to 1.00) | ") and "| 90.0 (90.0 to 90.0) | 50 (" in sharing
    assert "2 seeds" in several_senders.sharing_conditions(found).replace("\n", " ")


def test_runs_whose_relay_was_late_are_measured_again_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, measured = iter([900.0, 1100.0]), list[tuple[str, ...]]()

    def measure(link: object, seed: int, arm: tuple[str, ...], *_: object) -> dict[str, Any]:
        measured.append(arm)
        flow = {"mbps": 1.0, "wait_ms": {"p95": 1.0}, "lost": 0.0}
        return {"flows": [flow] * len(arm), "late_us": {"p99": next(late, 0.0)}}

    monkeypatch.setattr(beside_kernel, "_made", lambda *_: (None, "model"))
    monkeypatch.setattr(beside_kernel, "measured", measure)
    monkeypatch.setattr(beside_kernel, "probed", lambda rate: rate)
    monkeypatch.setattr(beside_kernel, "ARMS", (("cubic",), ("bbr",)))

    def run(**asked: float) -> list[tuple[str, ...]]:
        measured.clear()
        beside_kernel.run(Namespace(**{
            "policy": None, "links": 1, "runs": 1, "seconds": 10.0, "objective_ms": 20.0, "again_over_ms": math.inf,
            "output": tmp_path / "real.json"} | asked))
        return list(measured)

    assert run() == [("cubic",), ("bbr",)]
    assert run() == []
    assert run(again_over_ms=1.0) == [("bbr",)]
    assert run(again_over_ms=1.0) == []


def test_who_is_told_the_link_earns_nearly_what_nobody_can_exceed() -> None:
    links = Congestion().draw("held_out", 32, ceiling.STEPS + 1, 0, "wide")
    earned, most = ceiling.told_sender(links, 1.0)
    without = (0.01 * links.bandwidth_pps.mean(0) - links.base_s - 2.0 * links.loss).mean()  # bandwidths stand still
    assert most == pytest.approx(float(without), rel=0.03) and most >= float(without) - 1e-3
    assert 0.97 * most < earned < most
    assert ceiling.told_sender(links, 0.5)[0] < 0.55 * most


def test_a_ceiling_counts_over_the_best_rule_of_these_links() -> None:
    found = {"machine": {"date": "2026-11-30"}, "entries": [
        {"place": "aurora", "rule": "bbr", "of_rule": 2.0, "of_policies": 2.1, "told": 2.2, "ceiling": 2.5},
        {"place": ceiling.PACKETS, "rule": "bbr", "of_rule": 2.0, "of_policies": 1.9, "ceiling": 2.25}]}
    assert ceiling.ceiling_table(found).splitlines()[2:] == [
        "| aurora | 2.00 (bbr) | 2.10 (+5.0 %) | 2.20 (+10.0 %) | 2.50 (+25.0 %) | +10 % |",
        "| PCC-RL's packets | 2.00 (bbr) | 1.90 (-5.0 %) | not tried | 2.25 (+12.5 %) | +15 % |"]


def test_the_fluid_stands_beside_packets_interval_by_interval() -> None:
    links = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])  # of the second nothing changes: it has no correlation
    found = beside_packets.compared("round trip, s", links, np.array([[3.0, 5.0], [2.0, 6.0], [1.0, 4.0]]))
    assert found["within_links"] == pytest.approx(-1.0)
    assert (found["packets"], found["fluid"]) == pytest.approx((3.5, 3.5))
    assert found["correlation"] == pytest.approx(np.corrcoef([1, 5, 2, 5, 3, 5], [3, 5, 2, 6, 1, 4])[0, 1])
    row = beside_packets.packets_table({"entries": [found]}).splitlines()[2]
    assert row == "| round trip, s | 3.5 | 3.5 | 0.698 | -1.000 |"
    said = beside_packets.conditions_line({"machine": {"date": "2026-11-30"}, "steps_a_second": {
        "with gradients": 100_000.0, "without": 200_000.0, "packets": 2_000.0}}).replace("\n", " ")
    assert "100,000 steps of a link a second with gradients" in said and "2,000: 50 and 100 times as many" in said
