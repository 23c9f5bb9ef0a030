"""What the services of this benchmark share, in training and when they are run."""

from collections.abc import Mapping
from dataclasses import dataclass

from systems.autoscaling.interface import STEP_SECONDS

MEMORY_MIB: Mapping[str, float] = {"nginx": 64.0, "redis": 128.0}  # by server; the limit stays as it is
AT_REST_MIB: Mapping[str, float] = {"nginx": 2.3, "redis": 41.7}  # working set, measured as the controller sees it
SLO_MS = 50.0  # objective of the 99th percentile of latency: reached at some 80 % of the quota
STEP_S = STEP_SECONDS
WARM_UP_S, COUNTED_S = 75.0, 600.0  # of a run
FIRST = int(WARM_UP_S // STEP_S)  # interval that counts first
CORES = (0.125, 0.8)  # limits of the CPU quota
FIRST_QUOTA = 1.0  # cores, as the environment begins


@dataclass(frozen=True)
class Challenge:
    """Of the runs with replicas (challenge.py).

    Attributes:
        counted_s: of a run, after WARM_UP_S.
        mean_rps: of a day.
        least_peak, most_peak: of a run's load, over the day's mean.
        cores: least and most CPU quota of an instance; replicas: the same of instances.
        first_quota, first_replicas: what a run begins with.
        start_up_s: least and most time until a further instance starts.
    """

    counted_s: float = 1200.0
    mean_rps: float = 70.0
    least_peak: float = 3.0
    most_peak: float = 4.0
    cores: tuple[float, float] = (0.125, 0.25)
    replicas: tuple[int, int] = (1, 4)
    first_quota: float = 0.2
    first_replicas: int = 2
    start_up_s: tuple[float, float] = (10.0, 40.0)


CHALLENGE = Challenge()
