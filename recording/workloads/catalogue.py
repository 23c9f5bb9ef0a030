"""Every workload that a campaign can run, by name. Adding one is one file and one entry here."""

from recording.workloads.base import RecordedWorkload
from recording.workloads.mysql import MySQL
from recording.workloads.nginx import Nginx
from recording.workloads.redis import Redis
from recording.workloads.search import Search
from recording.workloads.training import Training

WORKLOADS: dict[str, RecordedWorkload] = {
    "nginx": Nginx(),
    "redis": Redis(),
    "mysql": MySQL(),
    "training": Training(),
    "search": Search(),
}
