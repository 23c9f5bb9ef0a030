"""The table of rewards says what its results say; PCC-RL is named where it is missing."""

from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import InputError
from systems.congestion.benchmarks import against_rules, pcc_rl


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
