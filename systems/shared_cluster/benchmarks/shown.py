"""Tables of the shared cluster's results (benchmarks/tables.py)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.control import default_runs
from benchmarks.harness.shown import Headline, Plot, Source
from systems.shared_cluster.benchmarks import live, many_agents

PLOTS: tuple[Plot, ...] = ()
TABLES: dict[str, Source] = {
    "shared-cluster-learners": Source("shared_cluster_agents", many_agents.learners_table),
    "shared-cluster-groups": Source("shared_cluster_agents", many_agents.groups_table),
    "shared-cluster-churn": Source("shared_cluster_agents", many_agents.churn_table),
    "shared-cluster-live": Source("shared_cluster_live", live.live_table)}


def headline(results: Mapping[str, Any], runs: Mapping[str, Any]) -> tuple[str, str]:
    """Limits over the cluster and functions that miss, of the policy and of our own simple rule;
    verdicts of the default run."""
    def of(name: str, figure: str) -> float:
        return float(np.mean([one[figure] for one in results["entries"]
                              if one["kind"] in ("learner", "rule") and one["name"] == name]))

    return (f"{100 * of('task', 'cost'):.0f} % of the cores set and {100 * of('task', 'violating_share'):.1f} % of the "
            f"functions slow, our simple rule {100 * of('latency', 'cost'):.0f} and "
            f"{100 * of('latency', 'violating_share'):.1f} %", default_runs.verdict_of(runs, "shared_cluster"))


HEADLINES = (Headline("shared_cluster", "sets each function's cores on a cluster that many share (simulated)",
                      ("shared_cluster_agents", default_runs.NAME), headline, "docs/reference/shared-cluster.md"),)
