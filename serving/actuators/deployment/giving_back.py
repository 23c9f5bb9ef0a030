"""What is to be done, and what not, to set a Deployment back to what was found before the actuator set anything.

Each value is one of its own: replicas, and of each pod a limit and a request of CPU and of memory. One that was set
here is set back, one that somebody else changed since stays.
"""

from dataclasses import dataclass, field

from serving.actuators.deployment.changes import Change, Resize, Scale, limit_name, request_name
from serving.actuators.deployment.found import Found
from serving.actuators.deployment.limits import RESOURCE, Pod, Resources, amount, same
from serving.actuators.deployment.state import State


@dataclass
class GivingBack:
    """Attributes:
        changes: to what was found.
        left: what somebody else changed since.
        later: what stays, as it would be lowered.
        unlimited: limits that were set where none was found.
    """

    changes: list[Change] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    unlimited: list[str] = field(default_factory=list)


def giving_back(found: Found, state: State, deployment: str, container: str, lowering: bool) -> GivingBack:
    """What is to be set back of a Deployment.

    Args:
        found: what was noted of it.
        state: what stands.
        deployment, container: their names.
        lowering: also what was found below what stands; else that is `later`.
    """
    back = GivingBack()
    for pod in (*state.pods, *state.others):
        if (before := found.pods.get(pod.uid)) is not None:
            limits: dict[str, str] = {}
            requests: dict[str, str] = {}
            for control in RESOURCE:
                if control in found.values:
                    _resource_back(back, found, control, pod, before, lowering, limits, requests)
            if limits or requests:
                back.changes.append(Resize(pod, container, limits, requests))
    if found.replicas is not None and found.replicas != state.replicas:
        if not found.set_here("target_replicas", state.replicas):
            back.left.append("replicas")
        elif not lowering and found.replicas < state.replicas:
            back.later.append("replicas")
        else:
            back.changes.append(Scale(deployment, state.replicas, found.replicas, state.resource_version))
    return back


def _resource_back(back: GivingBack, found: Found, control: str, pod: Pod, before: Resources, lowering: bool,
                   limits: dict[str, str], requests: dict[str, str]) -> None:
    """Fills `limits` and `requests` with what is to be set of one resource of a pod, and `back` with what is not."""
    resource = RESOURCE[control]
    now, old = pod.limit(resource), amount(before["limits"].get(resource), resource)
    request, old_request = pod.request(resource), amount(before["requests"].get(resource), resource)
    request_stays = not same(request, old_request) and found.request_is_others(control, pod)
    if now != old and not same(now, old):
        if not found.set_here(control, now) or (request_stays and found.is_below_request(control, pod, old)):
            back.left.append(limit_name(resource, pod))
        elif old is None:
            back.unlimited.append(limit_name(resource, pod))
            return
        elif not lowering and old < (now or 0.0):
            back.later.append(limit_name(resource, pod))
            return
        else:
            limits[resource] = before["limits"][resource]
    if request_stays:
        back.left.append(request_name(resource, pod))
        if resource in limits and same(request, now):  # one that is equal to its limit stays equal
            requests[resource] = limits[resource]
    elif old_request is None or request is None:
        return
    elif resource in limits:
        requests[resource] = before["requests"][resource]
    elif not same(request, old_request):
        if not lowering and old_request < request:
            back.later.append(request_name(resource, pod))
        else:
            requests[resource] = before["requests"][resource]
