"""What the services of this benchmark share, in training and when they are run."""

from collections.abc import Mapping

from models.environments.autoscaling.interface import STEP_SECONDS

MEMORY_MIB: Mapping[str, float] = {"nginx": 64.0, "redis": 128.0}  # by server; the limit stays as it is
AT_REST_MIB: Mapping[str, float] = {"nginx": 2.3, "redis": 41.7}  # working set, measured as the controller sees it
SLO_MS = 50.0  # objective of the 99th percentile of latency: reached at some 80 % of the quota
STEP_S = STEP_SECONDS
WARM_UP_S, COUNTED_S = 75.0, 600.0  # of a run
FIRST = int(WARM_UP_S // STEP_S)  # interval that counts first
CORES = (0.125, 0.8)  # limits of the CPU quota
FIRST_QUOTA = 1.0  # cores, as the environment begins
