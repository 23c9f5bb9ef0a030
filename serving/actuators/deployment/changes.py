"""Changes of a Deployment, each one patch: rehearsed by the server (dryRun=All), then carried out.

Each patch carries the resourceVersion that was read, so that nobody's change is overwritten unseen. After a conflict
the state is read again: where what a change sets is still as it was before, others changed something else (a status
counts) and it is tried again; where it is not, somebody else sets it too, and it stops. What is set back is tried each
on its own instead, without a rehearsal: one that is refused keeps none of the others from what was found.

A server that answers 5xx (504: its own time ran out) may have carried a patch out, and may do so after the answer: what
it holds is read, and a patch that stands counts as carried out. One that does not is in doubt: until the object has
another resourceVersion, or the time of a request is up, the server may still take it, and what it then sets is ours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.api import DEPLOYMENTS, PODS, Api, ApiError, Json
from serving.actuators.deployment.limits import RESOURCE, Pod, amount, same
from serving.actuators.deployment.state import State, asked_of_pod

LATE_S = 60.0  # after which a server gives a request up: kube-apiserver's --request-timeout, by default
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

    def stands(self, state: State) -> bool:
        """Whether what it sets is what stands."""
        return state.replicas == self.replicas

    def may_come(self, state: State) -> bool:
        """Whether the server would take it now, if it has not answered yet."""
        return state.resource_version == self.resource_version

    def asks(self) -> Mapping[str, object]:
        """What `State.asked` says of it where it stands."""
        return {"replicas": self.replicas}

    def again(self, state: State, in_doubt: "InDoubt") -> "Scale":
        """The same change of what stands now. in_doubt: changes of this actuator that may stand by now."""
        ours = [change.replicas for change in (self, *in_doubt.changes) if isinstance(change, Scale)]
        if state.replicas not in (self.before, *ours):
            raise ActuatorError("conflict", f"somebody else set the replicas of {self.deployment} at the same time: "
                                            f"{self.before} when they were read, {state.replicas} now")
        return replace(self, before=state.replicas, resource_version=state.resource_version)

    def names(self) -> list[str]:
        """What it sets, as a message says it."""
        return ["replicas"]

    def parts(self) -> "list[Scale]":
        """It has none."""
        return [self]


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

    def stands(self, state: State) -> bool:
        """Whether what it sets is what stands."""
        now = self._now(state)
        return now is not None and all(self._leaves(resource, now) for resource in self._resources)

    def may_come(self, state: State) -> bool:
        """Whether the server would take it now, if it has not answered yet."""
        now = self._now(state)
        return now is not None and now.resource_version == self.pod.resource_version

    def asks(self) -> Mapping[str, object]:
        """What `State.asked` says of it where it stands."""
        return asked_of_pod(replace(self.pod, asked={**self.pod.asked,
                                                     "limits": {**self.pod.asked["limits"], **self.limits}}))

    def again(self, state: State, in_doubt: "InDoubt") -> "Resize | None":
        """The same change of what stands now; None where the pod is gone. in_doubt: changes of this
        actuator that may stand by now.
        """
        now = self._now(state)
        ours = [change for change in (self, *in_doubt.changes)
                if isinstance(change, Resize) and change.pod.uid == self.pod.uid]
        if now is not None and not all(_asked(now, resource) == _asked(self.pod, resource)
                                       or any(change._leaves(resource, now) for change in ours)
                                       for resource in self._resources):
            raise ActuatorError("conflict", f"somebody else set the resources of pod {now.name} at the same time: "
                                            f"{self.pod.asked} when they were read, {now.asked} now")
        return None if now is None else replace(self, pod=now)

    def names(self) -> list[str]:
        """What it sets, as a message says it."""
        return [limit_name(resource, self.pod) if resource in self.limits else request_name(resource, self.pod)
                for resource in self._resources]

    def parts(self) -> list["Resize"]:
        """The same as one change of each resource."""
        return [replace(self, limits={name: text for name, text in self.limits.items() if name == resource},
                        requests={name: text for name, text in self.requests.items() if name == resource})
                for resource in self._resources]

    @property
    def _resources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.limits, *self.requests)))

    def _now(self, state: State) -> Pod | None:
        return next((pod for pod in (*state.pods, *state.others) if pod.uid == self.pod.uid), None)

    def _leaves(self, resource: str, now: Pod) -> bool:
        """Whether limit and request of a resource are what they are where this change was carried out."""
        set_here = {"limits": self.limits, "requests": self.requests}
        after = {key: amount({**texts, **set_here[key]}.get(resource), resource)
                 for key, texts in self.pod.asked.items()}
        return all(stands == after[key] or same(stands, after[key]) for key, stands in _asked(now, resource).items())


Change = Scale | Resize


class InDoubt:
    """Changes that were sent, and that the server may still carry out. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent: list[tuple[Change, float]] = []  # and when that was known

    @property
    def changes(self) -> tuple[Change, ...]:
        """All of them."""
        return tuple(change for change, _ in self._sent)

    def add(self, change: Change) -> None:
        """One that was sent just now."""
        self._sent.append((change, self._clock()))

    def settle(self, state: State) -> None:
        """Forgets those that stand in `state`, or never will."""
        now = self._clock()
        self._sent = [(change, at) for change, at in self._sent if change.may_come(state) and now - at < LATE_S]


def _asked(pod: Pod, resource: str) -> Mapping[str, float | None]:
    return {"limits": pod.limit(resource), "requests": pod.request(resource)}


def limit_name(resource: str, pod: Pod) -> str:
    """A limit, as a message says it."""
    return f"{resource} of pod {pod.name}"


def request_name(resource: str, pod: Pod) -> str:
    """A request, as a message says it."""
    return f"{resource} request of pod {pod.name}"


def rehearse(
    changes: Sequence[Change], api: Api, read: Callable[[], State], in_doubt: InDoubt
) -> list[Change]:
    """Has the server do all of them but store them; those that can be carried out, as of now.

    Args:
        in_doubt: earlier changes that the server may still carry out.

    Raises:
        ActuatorError: one would be refused; none was carried out.
    """
    return [sent for change in changes if (sent := _send(change, api, read, in_doubt, dry_run=True)) is not None]


def carry_out(
    changes: Sequence[Change], api: Api, read: Callable[[], State], still_ours: Callable[[], None],
    in_doubt: InDoubt
) -> Mapping[str, float]:
    """One after the other, and none after one that fails; control -> value that was set.

    Args:
        in_doubt: changes that the server may still carry out; it grows by the one that fails, where that may be so.

    Raises:
        ActuatorError: with what was set before (`partly`).
    """
    done: dict[str, float] = {}
    for index, change in enumerate(changes):
        try:
            still_ours()
            if _send(change, api, read, in_doubt, dry_run=False) is not None:
                done |= change.values()
        except ActuatorError as error:
            count = f"{index} of {len(changes)} changes were carried out before"
            raise ActuatorError(error.kind, f"{error} ({count})", done) from error
    return done


def set_back(
    changes: Sequence[Change], api: Api, read: Callable[[], State], still_ours: Callable[[], None],
    in_doubt: InDoubt
) -> tuple[Mapping[str, float], list[str], ActuatorError | None]:
    """Each on its own, whatever becomes of the others, and each resource on its own where both are refused together.

    Nothing more is sent once the lease is lost, nobody answers in time, or the server asks for later: those that follow
    would only wait.

    Args:
        in_doubt: as of `carry_out`.

    Returns:
        Control -> value that was set; the names of what was not, and what was said of the first of them.
    """
    done: dict[str, float] = {}
    failed: list[str] = []
    first: ActuatorError | None = None
    waiting, stopped = list(changes), False
    while waiting:
        change = waiting.pop(0)
        try:
            if not stopped:
                stopped = True
                still_ours()
                stopped = False
                if _send(change, api, read, in_doubt, dry_run=False) is not None:
                    done |= change.values()
                continue
        except ActuatorError as error:
            stopped = stopped or error.kind == "throttled" or (isinstance(error, ApiError) and error.status == 0)
            if error.kind == "refused" and len(change.parts()) > 1:
                waiting = [*change.parts(), *waiting]
                continue
            first = first or error
        failed += change.names()
    return done, failed, first


def _send(change: Change, api: Api, read: Callable[[], State], in_doubt: InDoubt, dry_run: bool
          ) -> Change | None:
    """What was sent in the end; None where the pod is gone, which its successor makes up for at the next apply."""
    tries = 1
    while True:
        try:
            change.send(api, dry_run)
            return change
        except ActuatorError as error:
            if isinstance(change, Resize) and error.kind == "gone":
                return None
            if isinstance(error, ApiError) and error.in_doubt:
                if error.status and _stands(change, read):  # without an answer another one would only be waited for
                    return change
                in_doubt.add(change)
            if error.kind != "conflict" or tries == TRIES:
                raise
        again = change.again(read(), in_doubt)
        if again is None:
            return None
        change, tries = again, tries + 1


def _stands(change: Change, read: Callable[[], State]) -> bool:
    """False too where nobody can say."""
    try:
        return change.stands(read())
    except ActuatorError:
        return False
