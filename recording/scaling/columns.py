"""The columns of the scaling data, in order, each with its unit and meaning; the data card's tables come from here."""

from collections.abc import Mapping

Columns = Mapping[str, tuple[str, str]]

DEPLOYMENT: Columns = {
    "server": ("", "server under load"),
    "trial": ("", "course of load that was running: one row of points, several of windows"),
    "kind": ("", "start, point, steps, trace, quota, workers or instance"),
    "instances": ("count", "copies of the server, each with a quota of its own"),
    "workers": ("count", "worker processes or threads of an instance"),
    "quota_cores": ("cores", "CPU quota of an instance (its control group's)"),
}
MEASURED: Columns = {
    "offered_per_s": ("1/s", "requests that were due, in open loop"),
    "throughput_per_s": ("1/s", "requests that were answered in time"),
    "completed_per_s": ("1/s", "requests that were answered, in time or after their client had given up"),
    "latency_mean_ms": ("ms", "mean from the time at which a request was due; time-outs and errors count the time-out"),
    "latency_p50_ms": ("ms", "median of it"),
    "latency_p95_ms": ("ms", "95th percentile of it"),
    "latency_p99_ms": ("ms", "99th percentile of it"),
    "timed_out": ("count", "requests whose client gave up"),
    "errors": ("count", "requests that the server refused or broke off"),
    "backlog": ("count", "requests due and neither answered nor given up at the end"),
    "cpu_cores": ("cores", "processors that the instances used"),
    "utilisation": ("share", "cpu_cores over what the quotas and workers allow"),
    "throttled_share": ("share", "quota periods in which the quota ran out"),
    "memory_mib": ("MiB", "memory that belongs to the instances alone"),
    "in_flight": ("count", "mean number of requests sent and not yet answered"),
    "disturbance_cores": ("cores", "processors that other processes used"),
    "steal_cores": ("cores", "processors that the hypervisor gave to others"),
    "generator_cores": ("cores", "processors that the load generator used"),
    "lateness_p99_ms": ("ms", "99th percentile of how late the load generator turned to a request"),
}
POINTS: Columns = {
    **DEPLOYMENT,
    "started": ("UTC", "start of the measurement"),
    "seconds": ("s", "length of the measurement"),
    "planned_utilisation": ("share", "load that was planned"),
    "attempts": ("count", "attempts; the least disturbed one is the row"),
    **MEASURED,
}
WINDOWS: Columns = {
    **DEPLOYMENT,
    "at_s": ("s", "start of the window after the start of the trial"),
    "seconds": ("s", "length of the window"),
    **MEASURED,
}
EVENTS: Columns = {
    **DEPLOYMENT,
    "event": ("", "start, quota, workers or instance"),
    "value": ("", "number of the instance that started, new quota (cores), or new number of workers or instances"),
    "at_s": ("s", "when it was asked for, after the start of the trial"),
    "took_s": ("s", "until it was done; for an instance, until its first useful answer"),
    "p99_before_ms": ("ms", "99th percentile in the 5 s before; for a start, NaN"),
    "p99_after_ms": ("ms", "highest 99th percentile of a window in the 3 s after"),
    "settled_s": ("s", "until the mean latency stayed within 1.5 times what it settled to; for a start, until warm"),
    "disturbance_cores": ("cores", "processors that other processes used in the whole trial"),
}
