"""Tables of microservices' results (benchmarks/tables.py)."""

from benchmarks.control import default_runs
from benchmarks.control.generic_policies import policies_table
from benchmarks.harness.shown import Headline, Plot, Source
from systems.microservices.benchmarks import control, culprits, law, live

PLOTS: tuple[Plot, ...] = ()
TABLES: dict[str, Source] = {
    "microservices-policies": Source("microservices_policies", policies_table),
    "microservices-mitigation": Source("microservices_policies", control.mitigation_table),
    "microservices-live": Source("microservices_live", live.live_table),
    "microservices-law": Source("microservices_law", law.law_table),
    "culprits": Source("culprits", culprits.accuracy_table), "culprits-kinds": Source("culprits", culprits.kinds_table)}
HEADLINES = (Headline("microservices", "sets the cores of each service of an application (simulated)",
                      ("microservices_policies", default_runs.NAME), control.headline,
                      "docs/reference/microservices-control.md"),)
