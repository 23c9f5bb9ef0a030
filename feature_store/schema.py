"""The one schema of cleaned telemetry: a row is one workload in one window.

Cleaning writes this table, the expectations are built from it, the features are read from it.

    workload        name of the application that was measured
    environment     which machine and load range it was measured in ("base", "shifted", ...)
    combination     id of the colocation combination that was running
    window_start    start of the window, UTC
    window_s        length of the window, seconds
    <metrics>       machine-level, averaged over the window (METRICS)
    <configuration> configurable properties of the workload, NaN where it has none (CONFIGURATION)
    latency_ms      the workload's mean latency in the window, from its load generator's log

Source: vPALs, tables 2 (workloads, properties) and 3 (metrics); section "Data processing pipeline".
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A numeric column: its unit and the bounds that physics gives it (None: unbounded)."""

    unit: str
    minimum: float | None
    maximum: float | None
    description: str


# Pressure and time shares are rates of kernel counters: over a window they lie in 0..1.
METRICS: dict[str, Column] = {
    "psi_cpu_some": Column("share", 0.0, 1.0, "time in which some task waited for a CPU"),
    "psi_io_full": Column("share", 0.0, 1.0, "time in which all non-idle tasks waited for IO"),
    "psi_io_some": Column("share", 0.0, 1.0, "time in which some task waited for IO"),
    "disk_io_time": Column("share", 0.0, 1.0, "time in which the disk had requests in flight"),
    "cpu_time": Column("share", 0.0, 1.0, "non-idle CPU time, mean over the CPUs"),
    "psi_memory_some": Column("share", 0.0, 1.0, "time in which some task waited for memory"),
    "psi_memory_full": Column("share", 0.0, 1.0, "time in which all non-idle tasks waited for memory"),
}

CONFIGURATION: dict[str, Column] = {
    "cpu_quota_cores": Column("cores", 0.0, None, "CPU quota of the workload's control group"),
    "memory_mb": Column("MB", 0.0, None, "memory given to the server (cache, buffer pool, heap)"),
    "connections": Column("count", 0.0, None, "concurrent connections or threads of the load generator"),
    "rate_per_s": Column("1/s", 0.0, None, "request rate asked of the load generator"),
    "tables": Column("count", 0.0, None, "number of tables"),
    "table_rows": Column("rows", 0.0, None, "rows per table, keys or documents"),
    "batch_size": Column("count", 0.0, None, "batch size of a training step or of a pipelined request"),
    "payload_bytes": Column("bytes", 0.0, None, "size of a value or of a response"),
}

TARGET = "latency_ms"
# Least: a microsecond. Whatever answers over a socket takes longer; 0 stands for "nothing was measured".
TARGETS: dict[str, Column] = {TARGET: Column("ms", 0.001, None, "mean latency of the workload in the window")}

IDENTITY: tuple[str, ...] = ("workload", "environment", "combination", "window_start", "window_s")


@dataclass(frozen=True)
class TelemetrySchema:
    """The columns that one workload's rows must have: what expectations and features are built from.

    `repeats_count`: whether rows with equal numbers are so many observations, such as runs of one configuration; else
    they are copies of one, and count once.
    """

    workload: str
    features: Mapping[str, Column]
    target: Mapping[str, Column]
    split_by: tuple[str, ...]
    minimum_rows: int = 100
    repeats_count: bool = False

    @property
    def numeric(self) -> dict[str, Column]:
        """Features and target together, in the order of the feature table."""
        return {**self.features, **self.target}
