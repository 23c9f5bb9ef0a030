"""The contract of a part: what sets one control, or estimates what others use; a rule is some of them (rule.py).

Symbols: N applications. Readings: signal -> (N,) float64 inside of the signal's range, NaN where missing; the limits
and the replicas that stand now are always finite, the replicas whole; ready_replicas are whole, at most the replicas
(others are being removed) and all of them where missing. Beside the signals there are

    measured_replicas          count  that served when the metrics were measured
    cpu_used_of_replica_cores  cores  mean of these replicas; NaN where there was none
    cpu_used_cores             cores  of all of them
    cpu_utilization            share  the same over the limit now, as Kubernetes counts it
    memory_used_mib            MiB    of a replica

and what the parts before this one gave: `target_replicas`, within the control's bounds, or an estimate, by its name.
"""

from collections.abc import Mapping
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from models.control.contract.setting import Setting, Values

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Readings = Mapping[str, Numbers]


class Part(Protocol):
    """Sets one control of N applications, or estimates one number of each."""

    declared: ClassVar[tuple[Setting, ...]]
    source: ClassVar[str]

    def __init__(self, values: Values) -> None:
        """Takes all that is declared, checked."""

    def start(self, applications: int) -> None:
        """Forgets everything."""

    def target(self, readings: Readings, seconds: float) -> Numbers:
        """(N,) the control's target in its raw unit, NaN: as it is; or the estimate, NaN: not known."""
