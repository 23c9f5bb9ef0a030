"""The table of rewards says what its results say; PCC-RL is named where it is missing."""

from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import InputError
from systems.congestion.benchmarks import against_rules, pcc_rl, several_senders


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
