"""The actuator, connected to the tests' server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from serving.actuators.deployment.api import Api, kubernetes_client
from serving.actuators.kubernetes import KubernetesDeployment
from tests.serving.actuators.kubernetes_server import CONTAINER, DEPLOYMENT, NAMESPACE, Cluster, serve

ME = "controller-1"


class Clock:
    """Monotonic seconds that pass by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def api(url: str, connect_s: float = 2.0, read_s: float = 5.0) -> Api:
    """Without certificates and tokens."""
    return Api(kubernetes_client().client.Configuration(host=url), NAMESPACE, connect_s, read_s)


def actuator(url: str, read_s: float = 5.0, **arguments: Any) -> KubernetesDeployment:
    """Of the Deployment that `new_cluster` makes."""
    return KubernetesDeployment(api(url, read_s=read_s), DEPLOYMENT, CONTAINER, **arguments)


@contextmanager
def acting(cluster: Cluster, **arguments: Any) -> Iterator[KubernetesDeployment]:
    """One that holds the lease."""
    with serve(cluster) as url:
        target = actuator(url, **arguments)
        assert target.acquire(ME) == ""
        yield target
