"""What an actuator found before it first set anything, and what it set since: as JSON on the Lease of the target.

On the Lease, not in a file, since a controller that was killed may start again on another node; not on the Deployment,
since whoever may annotate a Deployment may change its template. It is written before each change (write-ahead), so that
after a kill at any point each value that stands is either one of these or somebody else's.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.limits import RESOURCE, Pod, Resources, amount, exact_quantity, request_quantity, same

ANNOTATION = "assay-found"


@dataclass(frozen=True)
class Found:
    """The memory of one target.

    Attributes:
        deployment: uid; another one is another Deployment of the same name.
        replicas: found; None where they were never set.
        pods: uid -> resources of the container before it was first resized.
        values: control -> values that it set and that may still stand.
        names: uid -> name, of these pods; earlier versions noted none.
    """

    deployment: str
    replicas: int | None = None
    pods: Mapping[str, Resources] = field(default_factory=dict)
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def before(self, control: str, value: float, standing: Iterable[float | None]) -> "Found":
        """With `value` noted as about to be set, and without values that stand nowhere any more."""
        standing = tuple(standing)
        kept = tuple(old for old in self.values.get(control, ()) if not same(old, value)
                     and any(same(old, now) for now in standing))
        return replace(self, values={**self.values, control: (*kept, value)})

    def with_pods(self, pods: Iterable[Pod], resized: Iterable[Pod]) -> "Found":
        """With what `resized` ask for, each noted once; of `pods`, those that are there, alone."""
        names = {pod.uid: pod.name for pod in pods}
        new = {pod.uid: pod.asked for pod in resized}
        noted = {**new, **{uid: asked for uid, asked in self.pods.items() if uid in names}}
        return replace(self, pods=noted, names={uid: names[uid] for uid in noted})

    def set_here(self, control: str, value: float | None) -> bool:
        """Whether a value that stands is one that the actuator set."""
        return any(same(value, own) for own in self.values.get(control, ()))

    def request_is_others(self, control: str, pod: Pod) -> bool:
        """Whether somebody else set the request of what `control` limits: it neither is as it was found nor belongs to
        a limit that the actuator set. Beside such a limit only its own request does: another one, also that which was
        found, was set again.
        """
        resource, before = RESOURCE[control], self.pods.get(pod.uid)
        request, limit = pod.request(resource), pod.limit(resource)
        if before is None or request is None:
            return False
        own = [value for value in self.values.get(control, ()) if same(value, limit)]
        belonging = [request_quantity(exact_quantity(value, resource), before, resource)
                     for value in own or self.values.get(control, ())]
        if not own or same(limit, amount(before["limits"].get(resource), resource)):
            belonging.append(before["requests"].get(resource))
        return not any(same(request, amount(text, resource)) for text in belonging)

    def request_beside(self, control: str, pod: Pod, limit: str) -> str | None:
        """The request that belongs to a new limit of a pod; None where the present one stays: that of somebody else,
        unless it is equal to its limit.
        """
        resource = RESOURCE[control]
        if self.request_is_others(control, pod):
            return limit if same(pod.request(resource), pod.limit(resource)) else None
        return request_quantity(limit, self.pods.get(pod.uid, pod.asked), resource)

    def is_below_request(self, control: str, pod: Pod, limit: float | None) -> bool:
        """Whether a limit would not lie above the request that somebody else set below the present one."""
        request = pod.request(RESOURCE[control])
        return limit is not None and request is not None and limit <= request and self.request_is_others(
            control, pod) and not same(request, pod.limit(RESOURCE[control]))

    def text(self) -> str:
        """As the annotation."""
        return json.dumps({"deployment": self.deployment, "replicas": self.replicas, "pods": self.pods,
                           "values": self.values, "names": self.names}, sort_keys=True, separators=(",", ":"))


def read_found(text: str | None) -> Found | None:
    """Of an annotation.

    Raises:
        ActuatorError: somebody else wrote it.
    """
    if text is None:
        return None
    try:
        read = json.loads(text)
        pods = {uid: {key: dict(resources[key]) for key in ("limits", "requests")}
                for uid, resources in read["pods"].items()}
        values = {name: tuple(float(value) for value in own) for name, own in read["values"].items()}
        replicas = None if read["replicas"] is None else int(read["replicas"])
        names = {uid: str(name) for uid, name in read.get("names", {}).items()}
        return Found(str(read["deployment"]), replicas, pods, values, names)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ActuatorError("refused", f"the annotation {ANNOTATION} of the lease must be what this actuator wrote, "
                                       f"got {text[:80]!r}; look at the Deployment's values, then remove it") from error
