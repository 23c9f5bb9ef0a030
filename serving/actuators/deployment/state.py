"""A Deployment and its running pods, as they are read before each change."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.api import DEPLOYMENTS, PODS, Api, Json
from serving.actuators.deployment.limits import (
    SIGNAL,
    Pod,
    Resources,
    amount,
    container_resources,
    pods_of,
    read_pod,
    same,
)

OPERATORS = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})", "Exists": "{key}",
             "DoesNotExist": "!{key}"}


@dataclass(frozen=True)
class State:
    """What one reading says.

    Attributes:
        uid, resource_version: of the Deployment.
        replicas: that it asks for.
        ready: replicas that serve.
        template: resources of the container in a new pod.
        restarts: resources whose change restarts the container (resizePolicy).
        pods: that run.
        others: that do not, and may do so again; with `with_pods_elsewhere` those that are the Deployment's no more.
    """

    uid: str
    resource_version: str
    replicas: int
    ready: int
    template: Resources
    restarts: tuple[str, ...]
    pods: tuple[Pod, ...]
    others: tuple[Pod, ...] = ()

    def limits(self, resource: str) -> list[float]:
        """What holds, of each pod that serves; where none does of those that run, where none runs of the template."""
        pods = [pod for pod in self.pods if pod.ready] or list(self.pods)
        of_new_pods = amount(self.template["limits"].get(resource), resource)
        found = [pod.effective_limit(resource) for pod in pods] or [of_new_pods]
        return [] if None in found else [limit for limit in found if limit is not None]

    def present(self) -> Mapping[str, float]:
        """Signal -> value; a limit is the largest, and is missing where a pod has none."""
        largest = {signal: max(self.limits(resource)) for resource, signal in SIGNAL.items() if self.limits(resource)}
        return {**largest, "replicas": float(self.replicas), "ready_replicas": float(self.ready)}

    def asked(self) -> Mapping[str, object]:
        """What somebody may set: replicas, and of each pod that runs the limits that it asks for, as amounts."""
        of_pods = {name: limits for pod in self.pods for name, limits in asked_of_pod(pod).items()}
        return {"replicas": self.replicas, **of_pods}

    def unequal(self) -> list[str]:
        """A phrase for each limit in which pods differ."""
        spans = [(signal, min(limits), max(limits)) for resource, signal in SIGNAL.items()
                 if (limits := self.limits(resource))]
        return [f"pods differ in {signal}: {low:g} to {high:g}" for signal, low, high in spans if not same(low, high)]


def asked_of_pod(pod: Pod) -> Mapping[str, object]:
    """See `State.asked`."""
    return {f"limits of pod {pod.name}": {resource: pod.limit(resource) for resource in SIGNAL}}


def read_state(api: Api, deployment: str, container: str, *, renamed: bool = False) -> State:
    """Two requests: the Deployment, then its pods.

    Args:
        api: where it is.
        deployment: its name.
        container: of the pods whose limits are read.
        renamed: the template may have no such container any more; older pods may.

    Raises:
        ActuatorError: it cannot be read, or has no such container.
    """
    found = api.call("get", DEPLOYMENTS, deployment)
    spec, status, metadata = found.get("spec") or {}, found.get("status") or {}, found.get("metadata") or {}
    pod_specification = (spec.get("template") or {}).get("spec") or {}
    template = container_resources(pod_specification, container)
    if template is None and renamed:
        template = {"limits": {}, "requests": {}}
    if template is None:
        names = ", ".join(str(item.get("name")) for item in pod_specification.get("containers") or [])
        raise ActuatorError("gone", f"the container must be one of the Deployment {deployment} ({names}), "
                                    f"got {container}")
    items = api.call("list", PODS, selector=_selector(spec.get("selector") or {})).get("items", [])
    running, others = pods_of(items, deployment, container)
    return State(
        str(metadata.get("uid")), str(metadata.get("resourceVersion")), int(spec.get("replicas", 1)),
        int(status.get("readyReplicas") or 0), template, _restarts(pod_specification, container),
        tuple(running), tuple(others),
    )


def with_pods_elsewhere(api: Api, state: State, container: str, names: Mapping[str, str]) -> State:
    """The same, with those pods among `others` that are not the Deployment's any more and go on: a ReplicaSet gives up
    a pod whose labels somebody changed. One request for each that is not in `state`.

    Args:
        api, container: see `read_state`.
        state: what stands.
        names: uid -> name, of pods that were the Deployment's.

    Raises:
        ActuatorError: they cannot be read.
    """
    there = {pod.uid for pod in (*state.pods, *state.others)}
    items = [item for uid, name in sorted(names.items()) if uid not in there
             for item in api.call("list", PODS, fields=f"metadata.name={name}").get("items", [])
             if (item.get("metadata") or {}).get("uid") == uid]
    elsewhere = [pod for item in items if (pod := read_pod(item, container)) is not None]
    return replace(state, others=(*state.others, *elsewhere))


def _selector(written: Json) -> str:
    """A LabelSelector as the text of a query."""
    equal = [f"{key}={value}" for key, value in sorted((written.get("matchLabels") or {}).items())]
    rules = [OPERATORS[rule["operator"]].format(key=rule["key"], values=",".join(rule.get("values") or []))
             for rule in written.get("matchExpressions") or []]
    return ",".join(equal + rules)


def _restarts(pod_specification: Json, container: str) -> tuple[str, ...]:
    policies = next((item.get("resizePolicy") or [] for item in pod_specification.get("containers") or []
                     if item.get("name") == container), [])
    return tuple(str(policy.get("resourceName")) for policy in policies
                 if policy.get("restartPolicy") == "RestartContainer")
