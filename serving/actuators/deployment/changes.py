"""Changes of a Deployment, each one patch: rehearsed by the server (dryRun=All), then carried out.

Each patch carries the resourceVersion that was read, so that nobody's change is overwritten unseen. After a conflict
the state is read again: where what a change sets is still as it was before, others changed something else (a status
counts) and it is tried again; where it is not, somebody else sets it too, and it stops.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.api import DEPLOYMENTS, PODS, Api, Json
from serving.actuators.deployment.limits import RESOURCE, Pod, amount
from serving.actuators.deployment.state import State

TRIES = 5  # of one patch; a status of a busy Deployment changes a few times a second


@dataclass(frozen=True)
class Scale:
    """The number of replicas, through the scale subresource: no right to change the template is needed."""

    deployment: str
    before: int
    replicas: int
    resource_version: str

    def values(self) -> Mapping[str, float]:
        """Control -> value."""
        return {"target_replicas": float(self.replicas)}

    def send(self, api: Api, dry_run: bool) -> None:
        """One patch."""
        body: Json = {"metadata": {"resourceVersion": self.resource_version}, "spec": {"replicas": self.replicas}}
        api.call("patch", DEPLOYMENTS, self.deployment, "scale", body, dry_run=dry_run)

    def again(self, state: State) -> "Scale":
        """The same change of what stands now."""
        if state.replicas != self.before:
            raise ActuatorError("conflict", f"somebody else set the replicas of {self.deployment} at the same time: "
                                            f"{self.before} when they were read, {state.replicas} now")
        return replace(self, resource_version=state.resource_version)


@dataclass(frozen=True)
class Resize:
    """Limits and requests of a running pod's container, through the resize subresource."""

    pod: Pod
    container: str
    limits: Mapping[str, str]
    requests: Mapping[str, str]

    def values(self) -> Mapping[str, float]:
        """Control -> value."""
        return {control: amount(self.limits[resource], resource) or 0.0 for control, resource in RESOURCE.items()
                if resource in self.limits}

    def send(self, api: Api, dry_run: bool) -> None:
        """One patch."""
        resources = {"limits": dict(self.limits), "requests": dict(self.requests)}
        body: Json = {"metadata": {"resourceVersion": self.pod.resource_version},
                      "spec": {"containers": [{"name": self.container, "resources": resources}]}}
        api.call("patch", PODS, self.pod.name, "resize", body, dry_run=dry_run)

    def again(self, state: State) -> "Resize | None":
        """The same change of what stands now; None where the pod does not run any more."""
        now = next((pod for pod in state.pods if pod.uid == self.pod.uid), None)
        if now is not None and now.asked != self.pod.asked:
            raise ActuatorError("conflict", f"somebody else set the resources of pod {now.name} at the same time: "
                                            f"{self.pod.asked} when they were read, {now.asked} now")
        return None if now is None else replace(self, pod=now)


Change = Scale | Resize


def rehearse(changes: Sequence[Change], api: Api, read: Callable[[], State]) -> list[Change]:
    """Has the server do all of them but store them; those that can be carried out, as of now.

    Raises:
        ActuatorError: one would be refused; none was carried out.
    """
    return [sent for change in changes if (sent := _send(change, api, read, dry_run=True)) is not None]


def carry_out(
    changes: Sequence[Change], api: Api, read: Callable[[], State], still_ours: Callable[[], None]
) -> Mapping[str, float]:
    """One after the other, and none after one that fails; control -> value that was set.

    Raises:
        ActuatorError: with what was set before (`partly`).
    """
    done: dict[str, float] = {}
    for index, change in enumerate(changes):
        try:
            still_ours()
            if _send(change, api, read, dry_run=False) is not None:
                done |= change.values()
        except ActuatorError as error:
            count = f"{index} of {len(changes)} changes were carried out before"
            raise ActuatorError(error.kind, f"{error} ({count})", done) from error
    return done


def _send(change: Change, api: Api, read: Callable[[], State], dry_run: bool) -> Change | None:
    """What was sent in the end; None where the pod is gone, which its successor makes up for at the next apply."""
    tries = 1
    while True:
        try:
            change.send(api, dry_run)
            return change
        except ActuatorError as error:
            if isinstance(change, Resize) and error.kind == "gone":
                return None
            if error.kind != "conflict" or tries == TRIES:
                raise
        again = change.again(read())
        if again is None:
            return None
        change, tries = again, tries + 1
