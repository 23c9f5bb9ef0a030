"""What the services did, second by second, as Prometheus has it, and what that comes to."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipelines.demo.stage import QUOTAS, WINDOW, Stage
from recording.live.queries import signals

SERIES = ("rate_rps", "p99_ms", "quota", "used")


@dataclass
class History:
    """Samples, one a second.

    Attributes:
        slo_ms: objective of the 99th percentile.
        seconds: since the load began, of each sample.
        series: service -> series -> values; None where there was none.
    """

    slo_ms: float
    seconds: list[float] = field(default_factory=list)
    series: Mapping[str, dict[str, list[float | None]]] = field(
        default_factory=lambda: {name: {one: [] for one in SERIES} for name in QUOTAS})

    def sample(self, stage: Stage) -> None:
        """Asks Prometheus once."""
        self.seconds.append(time.time() - stage.start_s)
        for service, kept in self.series.items():
            asked = signals(service, WINDOW)
            queries = {"rate_rps": asked["rate_rps"], "p99_ms": f"1000 * ({asked['p99_ms']['query']})",
                       "quota": f'service_cpu_limit_cores{{service="{service}"}}', "used": asked["cpu_used_cores"]}
            for name, query in queries.items():
                kept[name].append(stage.prometheus.value(query))

    def known(self, service: str, name: str) -> list[float]:
        """Values without gaps."""
        return [value for value in self.series[service][name] if value is not None and value == value]

    def violating(self, service: str) -> float:
        """Share of the samples above the objective."""
        values = self.known(service, "p99_ms")
        return sum(value > self.slo_ms for value in values) / max(len(values), 1)

    def mean_quota(self, service: str) -> float:
        """Cores; NaN where none is known."""
        values = self.known(service, "quota")
        return sum(values) / len(values) if values else math.nan
