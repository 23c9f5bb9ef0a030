"""CPU and memory of one container of a Deployment's running pods: read, compared, and changed in place.

Amounts are numbers in a control's unit (cores, MiB); quantities are Kubernetes' texts ("500m", "256Mi"). What a pod
asks for is `spec...resources`, what its node gave it `status.containerStatuses[].resources`; between the two stands a
resize, with the conditions PodResizePending (Deferred, Infeasible) and PodResizeInProgress.
Source: https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ (Kubernetes 1.33).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.api import Json, kubernetes_client

RESOURCE = {"target_cpu_limit_cores": "cpu", "target_memory_limit_mib": "memory"}  # control -> what it limits
SIGNAL = {"cpu": "cpu_limit_cores", "memory": "memory_limit_mib"}
UNIT = {"cpu": Decimal(1), "memory": Decimal(2**20)}  # of an amount, in the resource's own: cores, bytes
STEP = {"cpu": ("m", 1000), "memory": ("Mi", 1)}  # a limit is a whole number of these; so many are one unit
EXACT_STEP = {"cpu": ("m", 1000), "memory": ("", 2**20)}  # the least that Kubernetes knows
REQUEST_STEP = {"cpu": ("m", 1000), "memory": ("Ki", 1024)}

Resources = Mapping[str, Mapping[str, str]]  # {"limits": {"cpu": quantity, ...}, "requests": {...}}


@dataclass(frozen=True)
class Pod:
    """A pod, as it was read.

    Attributes:
        asked: resources that its specification asks for, of the one container.
        given: limits that its node reports; empty where it does not say.
        resize: reason and message of a resize that is not done; ("", "") where there is none.
        template: the hash of the template that it was made from.
    """

    name: str
    uid: str
    resource_version: str
    ready: bool
    asked: Resources
    given: Mapping[str, str]
    resize: tuple[str, str]
    template: str = ""

    def limit(self, resource: str) -> float | None:
        """What is asked for, as an amount; None where there is no limit."""
        return amount(self.asked["limits"].get(resource), resource)

    def request(self, resource: str) -> float | None:
        """What is reserved for it, as an amount; None where there is no request."""
        return amount(self.asked["requests"].get(resource), resource)

    def effective_limit(self, resource: str) -> float | None:
        """What holds now: a resize that waits, or is not possible, has changed nothing yet."""
        return amount(self.given.get(resource), resource) if resource in self.given else self.limit(resource)


def amount(quantity: str | None, resource: str) -> float | None:
    """A quantity in the unit of the resource's control."""
    if quantity is None:
        return None
    parse = kubernetes_client().utils.quantity.parse_quantity
    try:
        return float(parse(quantity) / UNIT[resource])
    except (ValueError, ArithmeticError) as error:
        raise ActuatorError("unreachable", f"expected a quantity of {resource} such as 500m or 256Mi, got {quantity!r} "
                                           "from the API server") from error


def limit_quantity(value: float, resource: str) -> str:
    """An amount as a quantity: whole millicores, whole MiB, at least one."""
    suffix, parts = STEP[resource]
    return f"{max(1, round(value * parts))}{suffix}"


def exact_quantity(value: float, resource: str) -> str:
    """The same, but to the byte where it is no whole MiB: what others set is not rounded where it stays."""
    rounded = limit_quantity(value, resource)
    suffix, parts = EXACT_STEP[resource]
    return rounded if same(amount(rounded, resource), value) else f"{max(1, round(value * parts))}{suffix}"


def request_quantity(limit: str, found: Resources, resource: str) -> str | None:
    """The request beside a new limit: equal to it where it was equal, else the same share of it.

    The share is that of what was found, so that roundings do not add up; it is rounded down, so that a pod stays in its
    class of service (Burstable), which a resize may not change.

    Args:
        limit: the new one.
        found: what the pod had before this actuator changed it.
        resource: cpu or memory.

    Returns:
        None where there was no request.
    """
    old_limit, old_request = (amount(found[key].get(resource), resource) for key in ("limits", "requests"))
    if old_limit is None or old_request is None:
        return None
    if old_request == old_limit:
        return limit
    suffix, parts = REQUEST_STEP[resource]
    new_limit = amount(limit, resource) or 0.0
    return f"{max(0 if old_request == 0 else 1, math.floor(new_limit * old_request / old_limit * parts))}{suffix}"


def same(first: float | None, second: float | None) -> bool:
    """Whether two amounts are the same but for the binary rounding of decimal texts."""
    return first is not None and second is not None and math.isclose(first, second, rel_tol=1e-9)


def container_resources(specification: Json, container: str) -> Resources | None:
    """Of the container called so in the specification of a pod or a template; None where there is none."""
    for item in specification.get("containers") or []:
        if item.get("name") == container:
            return _resources(item.get("resources"))
    return None


def pods_of(items: Iterable[Json], deployment: str, container: str) -> tuple[list[Pod], list[Pod]]:
    """The pods of the Deployment that run, by name; and the others that may run again, such as those of a node that is
    not heard of (Unknown). One that has ended or is being stopped is neither.

    A selector finds pods of others as well: one belongs to it where the ReplicaSet that owns it is called as the
    Deployment, with the pod's template hash.
    """
    running: list[Pod] = []
    others: list[Pod] = []
    for item in items:
        if (pod := read_pod(item, container)) is None:
            continue
        owner = f"{deployment}-{pod.template}"
        if any(reference.get("controller") and reference.get("kind") == "ReplicaSet" and reference.get("name") == owner
               for reference in item["metadata"].get("ownerReferences") or []):
            (running if item["status"].get("phase") == "Running" else others).append(pod)
    return sorted(running, key=lambda pod: pod.name), others


def read_pod(item: Json, container: str) -> Pod | None:
    """A pod, whoever owns it; None where it has no such container, has ended, or is being stopped."""
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    resources = container_resources(item.get("spec") or {}, container)
    if resources is None or metadata.get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or []}
    given = next((entry.get("resources") for entry in status.get("containerStatuses") or []
                  if entry.get("name") == container), None)
    template = str((metadata.get("labels") or {}).get("pod-template-hash"))
    return Pod(metadata["name"], metadata["uid"], metadata["resourceVersion"], _true(conditions.get("Ready")),
               resources, _resources(given)["limits"], _resize(conditions), template)


def _resize(conditions: Mapping[Any, Json]) -> tuple[str, str]:
    for kind in ("PodResizePending", "PodResizeInProgress"):
        if _true(entry := conditions.get(kind)) and entry is not None:
            return str(entry.get("reason") or kind.removeprefix("PodResize")), str(entry.get("message") or "")
    return "", ""


def _true(condition: Json | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _resources(written: Json | None) -> Resources:
    """Of CPU and memory alone, as texts."""
    return {key: {name: str(value) for name, value in ((written or {}).get(key) or {}).items() if name in UNIT}
            for key in ("limits", "requests")}
