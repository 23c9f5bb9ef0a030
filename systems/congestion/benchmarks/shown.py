"""Tables of congestion control's results (benchmarks/tables.py)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.control import default_runs
from benchmarks.harness.shown import Headline, Plot, Source
from systems.congestion.benchmarks import (
    against_rules,
    beside_packets,
    ceiling,
    for_ever,
    real_link_tables,
    several_senders,
)

PLOTS = (Plot("congestion_real_link", real_link_tables.draw, "docs/images/congestion_real_link.svg"),)
TABLES: dict[str, Source] = {
    "congestion-rules": Source("congestion_rules", against_rules.rewards_table),
    "congestion-rules-conditions": Source("congestion_rules", against_rules.conditions_line),
    "congestion-aurora": Source("congestion_rules", against_rules.aurora_line),
    "congestion-ceiling": Source("congestion_ceiling", ceiling.ceiling_table),
    "congestion-ceiling-conditions": Source("congestion_ceiling", ceiling.conditions_line),
    "congestion-several-senders": Source("congestion_several_senders", several_senders.sharing_table),
    "congestion-several-senders-conditions": Source("congestion_several_senders", several_senders.sharing_conditions),
    "congestion-packets": Source("congestion_packets", beside_packets.packets_table),
    "congestion-packets-conditions": Source("congestion_packets", beside_packets.conditions_line),
    "congestion-for-ever": Source("congestion_for_ever", for_ever.bounds_table),
    "congestion-for-ever-conditions": Source("congestion_for_ever", for_ever.conditions_line),
    "congestion-real-link": Source("congestion_real_link", real_link_tables.controllers_table),
    "congestion-real-link-fairness": Source("congestion_real_link", real_link_tables.fairness_table),
    "congestion-real-link-shares": Source("congestion_real_link", real_link_tables.shares_table),
    "congestion-real-link-links": Source("congestion_real_link", real_link_tables.links_table),
    "congestion-real-link-conditions": Source("congestion_real_link", real_link_tables.conditions_line),
}


def headline(results: Mapping[str, Any], runs: Mapping[str, Any]) -> tuple[str, str]:
    """The policy's gain over the best rule that was tuned to the very links, by their family;
    verdicts of the default run."""
    gains = {}
    for place in dict.fromkeys(one["place"] for one in results["entries"]):
        here = [one for one in results["entries"] if one["place"] == place]
        policies = [one["rewards"]["all"]["mean"] for one in here if one["controller"].startswith("policy")]
        rules = [one["rewards"]["own"]["mean"] for one in here if one["controller"] in against_rules.RULES]
        gains[place] = 100 * (float(np.mean(policies)) / max(rules) - 1)
    worst = min(gains, key=lambda place: gains[place])
    return (f"{max(gains.values()):+.0f} to {gains[worst]:+.0f} % of reward against the best rule, tuned to the very "
            f"links; ahead on {sum(gain > 0 for gain in gains.values())} of {len(gains)} kinds of links, worst on "
            f"`{worst}`",
            default_runs.verdict_of(runs, "congestion"))


HEADLINES = (Headline("congestion", "sets the rate of a sender of packets (simulated)",
                      ("congestion_rules", default_runs.NAME), headline, "docs/benchmarks/congestion.md"),)
