"""Tables of CPU frequency's results (benchmarks/tables.py)."""

from benchmarks.control.generic_policies import policies_table
from benchmarks.harness.shown import Plot, Source

PLOTS: tuple[Plot, ...] = ()
TABLES: dict[str, Source] = {"cpu-frequency-policies": Source("cpu_frequency_policies", policies_table)}
