"""What an actuator found before it first set anything, and what it set since: as JSON on the Lease of the target.

On the Lease, not in a file, since a controller that was killed may start again on another node; not on the Deployment,
since whoever may annotate a Deployment may change its template. It is written before each change (write-ahead), so that
after a kill at any point each value that stands is either one of these or somebody else's.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.limits import Pod, Resources, same

ANNOTATION = "assay-found"


@dataclass(frozen=True)
class Found:
    """The memory of one target.

    Attributes:
        deployment: uid; another one is another Deployment of the same name.
        replicas: found; None where they were never set.
        pods: uid -> resources of the container before it was first resized.
        values: control -> values that it set and that may still stand.
    """

    deployment: str
    replicas: int | None = None
    pods: Mapping[str, Resources] = field(default_factory=dict)
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def before(self, control: str, value: float, standing: Iterable[float | None]) -> "Found":
        """With `value` noted as about to be set, and without values that stand nowhere any more."""
        standing = tuple(standing)
        kept = tuple(old for old in self.values.get(control, ()) if not same(old, value)
                     and any(same(old, now) for now in standing))
        return replace(self, values={**self.values, control: (*kept, value)})

    def with_pods(self, pods: Iterable[Pod], resized: Iterable[Pod]) -> "Found":
        """With what `resized` ask for, each noted once; of `pods`, those that are there, alone."""
        there = {pod.uid for pod in pods}
        new = {pod.uid: pod.asked for pod in resized}
        return replace(self, pods={**new, **{uid: asked for uid, asked in self.pods.items() if uid in there}})

    def set_here(self, control: str, value: float | None) -> bool:
        """Whether a value that stands is one that the actuator set."""
        return any(same(value, own) for own in self.values.get(control, ()))

    def text(self) -> str:
        """As the annotation."""
        return json.dumps({"deployment": self.deployment, "replicas": self.replicas, "pods": self.pods,
                           "values": self.values}, sort_keys=True, separators=(",", ":"))


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
        return Found(str(read["deployment"]), replicas, pods, values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ActuatorError("refused", f"the annotation {ANNOTATION} of the lease must be what this actuator wrote, "
                                       f"got {text[:80]!r}; look at the Deployment's values, then remove it") from error
