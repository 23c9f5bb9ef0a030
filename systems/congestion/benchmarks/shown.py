"""Tables of congestion control's results (benchmarks/tables.py)."""

from benchmarks.harness.shown import Plot, Source
from systems.congestion.benchmarks import against_rules

PLOTS: tuple[Plot, ...] = ()
TABLES: dict[str, Source] = {
    "congestion-rules": Source("congestion_rules", against_rules.rewards_table),
    "congestion-rules-conditions": Source("congestion_rules", against_rules.conditions_line),
}
