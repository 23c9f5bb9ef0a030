"""Tables of the shared cluster's results (benchmarks/tables.py)."""

from benchmarks.harness.shown import Plot, Source
from systems.shared_cluster.benchmarks import many_agents

PLOTS: tuple[Plot, ...] = ()
TABLES: dict[str, Source] = {
    "shared-cluster-learners": Source("shared_cluster_agents", many_agents.learners_table),
    "shared-cluster-groups": Source("shared_cluster_agents", many_agents.groups_table),
    "shared-cluster-churn": Source("shared_cluster_agents", many_agents.churn_table)}
