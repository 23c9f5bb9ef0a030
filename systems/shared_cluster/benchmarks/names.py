"""The benchmarks of the shared cluster by name (`python -m benchmarks NAME`)."""

BENCHMARKS = {"shared-cluster-agents": "systems.shared_cluster.benchmarks.many_agents",
              "shared-cluster-live": "systems.shared_cluster.benchmarks.live"}
