"""What an autoscaler observes and sets: Table 5.1 of the thesis, with what a trial found to matter.

The latency is observed as log(p99 / SLO), never capped at the SLO: the paper's preservation ratio min(1, SLO / p99)
hides from a policy how near to a violation it is. The load comes with exponential means and its recent peak.
What is used comes twice, as a share and as an amount: metrics are an interval late, a share is of the limits that stood
then, and a policy that remembers nothing cannot tell what it would be of those that stand now.
"""

import math

from models.control.contract.signals import Anchor, Control, Feature, Signal

STEP_SECONDS = 15.0
# Price of a GiB of memory for an hour over that of a core's: price lists of custom machine types, which state both, ask
# for 0.11 to 0.14.
GIB_IN_CORES = 0.13

SIGNALS = (
    Signal("cpu_limit_cores", "cores", 0.125, 16.0, "log", "CPU limit of one replica"),
    Signal("memory_limit_mib", "MiB", 32.0, 32768.0, "log", "memory limit of one replica"),
    Signal("replicas", "count", 1.0, 64.0, "log", "replicas that were asked for"),
    Signal("raised_s_ago", "s", 15.0, 960.0, "log", "since more replicas were asked for last"),
    Signal("ready_replicas", "count", 0.5, 64.0, "log", "replicas that serve"),
    Signal("cpu_utilization", "share", 0.015625, 2.0, "log", "CPU used, of the limits of the replicas that serve"),
    Signal("memory_utilization", "share", 0.015625, 2.0, "log", "memory used, of the limit"),
    Signal("cpu_used_cores", "cores", 0.015625, 1024.0, "log", "CPU used by all replicas"),
    Signal("memory_used_mib", "MiB", 1.0, 32768.0, "log", "memory used by a replica"),
    Signal("io_utilization", "share", 0.0, 1.0, "linear", "disk time used, of the node's"),
    Signal("network_utilization", "share", 0.0, 1.0, "linear", "network used, of the node's"),
    Signal("p99_ms", "ms", 1.0, 65536.0, "log", "99th percentile of latency in the last interval"),
    Signal("slo_ms", "ms", 4.0, 16384.0, "log", "objective of the 99th percentile"),
    Signal("served_share", "share", 0.0, 1.0, "linear", "requests answered in time, of those that came"),
    Signal("rate_rps", "1/s", 0.0625, 65536.0, "log", "requests that came, a second"),
    Signal("rate_1min_rps", "1/s", 0.0625, 65536.0, "log", "exponential mean of the rate over 1 minute"),
    Signal("rate_5min_rps", "1/s", 0.0625, 65536.0, "log", "exponential mean of the rate over 5 minutes"),
    Signal("rate_25min_rps", "1/s", 0.0625, 65536.0, "log", "exponential mean of the rate over 25 minutes"),
    Signal("rate_peak_5min_rps", "1/s", 0.0625, 65536.0, "log", "largest rate of the last 5 minutes, fading"),
)

CONTROLS = (
    Control("target_cpu_limit_cores", "cpu_limit_cores", "cores", 0.125, 16.0, 0.25, 1.0,
            meaning="CPU limit of each replica"),
    Control("target_memory_limit_mib", "memory_limit_mib", "MiB", 32.0, 32768.0, 0.25, 1.0,
            meaning="memory limit of each replica"),
    Control("target_replicas", "replicas", "count", 1.0, 64.0, 0.25, 1.0, whole=True, meaning="replicas"),
)

FEATURES = (
    Feature("latency over SLO", {"p99_ms": 1.0, "slo_ms": -1.0}),
    Feature("CPU utilisation", {"cpu_utilization": 1.0}),
    Feature("memory utilisation", {"memory_utilization": 1.0}),
    Feature("CPU used over what serves now", {"cpu_used_cores": 1.0, "ready_replicas": -1.0, "cpu_limit_cores": -1.0}),
    Feature("memory used over the limit now", {"memory_used_mib": 1.0, "memory_limit_mib": -1.0}),
    Feature("disk utilisation", {"io_utilization": 1.0}),
    Feature("network utilisation", {"network_utilization": 1.0}),
    Feature("served share", {"served_share": 1.0}),
    Feature("load a core", {"rate_rps": 1.0, "replicas": -1.0, "cpu_limit_cores": -1.0}),
    Feature("load over 1-minute mean", {"rate_rps": 1.0, "rate_1min_rps": -1.0}),
    Feature("1-minute over 5-minute mean", {"rate_1min_rps": 1.0, "rate_5min_rps": -1.0}),
    Feature("5-minute over 25-minute mean", {"rate_5min_rps": 1.0, "rate_25min_rps": -1.0}),
    Feature("peak over load", {"rate_peak_5min_rps": 1.0, "rate_rps": -1.0}),
    Feature("replicas that start", {"replicas": 1.0, "ready_replicas": -1.0}),
    Feature("CPU limit", {"cpu_limit_cores": 1.0}),
    Feature("memory limit", {"memory_limit_mib": 1.0}),
    Feature("replicas", {"replicas": 1.0}),
    Feature("time since more replicas", {"raised_s_ago": 1.0}),
    Feature("SLO", {"slo_ms": 1.0}),
)

# Replicas are anchored at what the CPU that is used would take at half utilisation, as the HPA of Kubernetes does,
# memory at what is used at 60 %, the CPU limit of a replica slowly at two cores: an untrained policy is a rule.
ANCHORS = {
    "target_cpu_limit_cores": Anchor({"cpu_limit_cores": 0.8}, 0.2 * math.log(2.0)),
    "target_memory_limit_mib": Anchor({"memory_limit_mib": 0.5, "memory_used_mib": 0.5}, -0.5 * math.log(0.6)),
    "target_replicas": Anchor({"replicas": 0.3, "cpu_used_cores": 0.7, "cpu_limit_cores": -0.7}, -0.7 * math.log(0.5)),
}
