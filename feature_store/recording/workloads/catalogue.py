"""Every workload that a campaign can run, by name. Adding one is one file and one entry here."""

from feature_store.recording.workloads.base import Workload
from feature_store.recording.workloads.mysql import MySQL
from feature_store.recording.workloads.nginx import Nginx
from feature_store.recording.workloads.redis import Redis
from feature_store.recording.workloads.search import Search
from feature_store.recording.workloads.training import Training

WORKLOADS: dict[str, Workload] = {
    "nginx": Nginx(),
    "redis": Redis(),
    "mysql": MySQL(),
    "training": Training(),
    "search": Search(),
}
