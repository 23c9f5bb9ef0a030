"""Tables of CPU frequency's results (benchmarks/tables.py)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.control import default_runs
from benchmarks.control.generic_policies import policies_table
from benchmarks.harness.shown import Headline, Plot, Source
from systems.cpu_frequency.benchmarks import adaptation_tables, foresight

PLOTS: tuple[Plot, ...] = ()
_ADAPTATION = "cpu_frequency_adaptation"
TABLES: dict[str, Source] = {
    "cpu-frequency-policies": Source("cpu_frequency_policies", policies_table),
    "cpu-frequency-foresight": Source("cpu_frequency_foresight", foresight.foresight_table),
    "cpu-frequency-foresight-conditions": Source("cpu_frequency_foresight", foresight.conditions_line),
    "cpu-frequency-lost": Source(_ADAPTATION, adaptation_tables.lost_table("Table A.4")),
    "cpu-frequency-lost-power": Source(_ADAPTATION, adaptation_tables.lost_table("with power")),
    "cpu-frequency-adapted-power": Source(_ADAPTATION, adaptation_tables.adapted_table("with power")),
    "cpu-frequency-adaptation-conditions": Source(_ADAPTATION, adaptation_tables.conditions_line),
}


def headline(results: Mapping[str, Any], runs: Mapping[str, Any]) -> tuple[str, str]:
    """Power that the policy saves against each seed's best rule, where both violate as much;
    verdicts of the default run."""
    saved = [100 * one["metrics"]["cost_saved"] for one in results["entries"]]
    return (f"{np.mean(saved):+.1f} % of power saved against the best simple rule ({min(saved):+.1f} to "
            f"{max(saved):+.1f} over {len(saved)} seeds)", default_runs.verdict_of(runs, "cpu_frequency"))


HEADLINES = (Headline("cpu_frequency", "sets the clock of a service's cores (simulated)",
                      ("cpu_frequency_policies", default_runs.NAME), headline, "docs/reference/cpu-frequency.md"),)
