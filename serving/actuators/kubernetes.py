"""Sets the replicas of a Deployment and the limits of its running pods, through Kubernetes' API.

`target_replicas` goes to the scale subresource; `target_cpu_limit_cores` and `target_memory_limit_mib` to the resize
subresource of each running pod (Kubernetes 1.33 and newer; thesis, section 5.3.4, has an operator of its own for it).
The Deployment's template is never changed: that would start new pods. A pod that starts later has the template's limits
until the next `apply`, which finds it and resizes it; so `apply` is for every step, also where no target changed. Until
then it is left out of what is present: else the template would be taken for what is set of all pods.

Before anything is set, every change is rehearsed by the server (dry-run), and what was found is written to the Lease
that says who acts (deployment/found.py). The rights that this takes: deploy/kubernetes-rbac.yaml.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from serving.actuators.actuator import ActuatorError, Applied, Kind
from serving.actuators.deployment.api import CONNECT_S, READ_S, Api, cluster_configuration
from serving.actuators.deployment.changes import Change, InDoubt, Resize, Scale, carry_out, rehearse, set_back
from serving.actuators.deployment.found import ANNOTATION, Found, read_found
from serving.actuators.deployment.giving_back import GivingBack, giving_back
from serving.actuators.deployment.lease import Lease
from serving.actuators.deployment.limits import (
    RESOURCE,
    SIGNAL,
    Pod,
    amount,
    exact_quantity,
    limit_quantity,
    same,
)
from serving.actuators.deployment.owners import require_sole_owner
from serving.actuators.deployment.state import State, read_state, with_pods_elsewhere
from serving.actuators.kind import ActuatorKind, Server, require_held
from serving.contract import Contract
from serving.control.file_part import FilePart

CONTROLS = ("target_replicas", *RESOURCE)
OBSERVED_BY = {"target_replicas": "replicas", **{control: SIGNAL[resource] for control, resource in RESOURCE.items()}}
LEASE_S = 45  # three steps of 15 s
_NEVER = "Infeasible"  # of a resize
UNCHANGED = 1e-6  # relative: the float32 of a network between a present value and the target that keeps it


class KubernetesDeployment:
    """Implements `Actuator`.

    Args:
        api: where it is; see `Api` and `cluster_configuration`.
        deployment: its name.
        container: the one of its pods whose limits are read and set.
        controls: which targets it sets; another one must equal the present value.
        lease_s: whole seconds that the lease lasts without a renewal; more than two steps of the loop.
        held: targets of limits that stay as they are, and must be there all the same for anything to be decided.
        clock: monotonic seconds.
        gives_back: only `restore` is asked for: the container may have lost its limit, or its name, meanwhile.

    Raises:
        InputError: controls or lease are not usable.
        ActuatorError: the Deployment cannot be read, or an HPA or a VPA owns what this would set.
    """

    def __init__(
        self,
        api: Api,
        deployment: str,
        container: str,
        controls: Collection[str] = CONTROLS,
        lease_s: int = LEASE_S,
        held: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        gives_back: bool = False,
    ) -> None:
        for control in controls:
            if control not in CONTROLS:
                raise InputError(f"controls must be of {', '.join(CONTROLS)}, got {control}; "
                                 f"{nearest(control, CONTROLS)}")
        if not controls or lease_s < 1:
            raise InputError(f"expected at least one control and a lease of at least 1 s, got "
                             f"{len(controls)} control(s) and {lease_s} s")
        self._api, self._deployment, self._container = api, deployment, container
        self._controls, self._limited = frozenset(controls), {*controls, *held} & set(RESOURCE)
        self._lease = Lease(api, _lease_of(deployment), int(lease_s), clock)
        self._seen: Mapping[str, Any] | None = None  # what the present decision started from, as it is asked for
        self._decided: Mapping[str, float] | None = None  # the same as `present` said it
        self._in_doubt = InDoubt(clock)
        self._known: Collection[str] | None = None  # uids of pods that were there at the last `apply`
        self._gives_back = gives_back
        state = self._read(renamed=gives_back)
        if not gives_back:
            self._require_limits(state)
        require_sole_owner(api, deployment, self._controls)

    @property
    def name(self) -> str:
        """See `Actuator`."""
        return f"kubernetes {self._api.namespace}/{self._deployment}"

    def present(self) -> Mapping[str, float]:
        """See `Actuator`: replicas asked for and ready, and the largest limits of the pods that serve, as they hold;
        new ones, which the next `apply` resizes, are left out.
        """
        state = self._read(renamed=self._gives_back)
        self._in_doubt.settle(state)
        self._seen, self._decided = state.asked(), self._without_new(state).present()
        return self._decided

    def acquire(self, holder: str) -> str:
        """See `Actuator`. Raises ActuatorError (refused) too where an HPA or a VPA came to own what this sets."""
        require_sole_owner(self._api, self._deployment, self._controls)
        return self._lease.acquire(holder)

    def release(self, holder: str) -> None:
        """See `Actuator`."""
        self._lease.release(holder)

    def apply(self, targets: Mapping[str, float]) -> Applied:
        """See `Actuator`. A resize that a node puts off is a note; one that it can never do is refused."""
        decided, self._decided = self._decided, None
        self._lease.require()
        state = self._read()
        self._require_limits(state)
        self._require_unchanged(state)
        self._in_doubt.settle(state)
        older = self._without_new(state)
        self._known = {pod.uid for pod in older.pods}
        now = older.present()
        wanted = self._checked(targets, now)
        decided = {**now, **(decided or {})}
        raised = {name for name in wanted
                  if targets[name] >= decided.get(OBSERVED_BY[name], math.inf) * (1.0 - UNCHANGED)}
        keeps = {pod.uid: raised | _above(pod, decided) for pod in older.pods}
        reserved = self._reserved(state, wanted)
        done = self._set(wanted, state, keeps, reserved)
        infeasible = [pod for pod in state.pods if pod.resize[0] == _NEVER and not self._differs(pod, wanted)]
        if infeasible and set(wanted) & set(RESOURCE):
            waiting = "; ".join(map(_waits, infeasible))
            raise ActuatorError("refused", f"a node can never give what is asked for: {waiting}", partly=done)
        values = {name: value for name, value in {**targets, **wanted}.items() if name not in RESOURCE or state.pods}
        return Applied(values, self._notes(state, wanted, decided, older, reserved))

    def restore(self, *, lowering: bool = True) -> bool:
        """See `Actuator`. It needs the lease. Each value is set back on its own; what somebody else changed since
        stays, as does what is refused or may still come of an earlier write, and is raised at the end.
        """
        found = read_found(self._lease.annotation(ANNOTATION))
        if found is None:
            return False

        def read() -> State:
            state = self._read(renamed=True)
            return self._with_pods_elsewhere(state, found) if found.deployment == state.uid else state

        state = read()
        self._in_doubt.settle(state)
        back = GivingBack() if found.deployment != state.uid else giving_back(
            found, state, self._deployment, self._container, lowering)
        done, failed, error = set_back(back.changes, self._api, read, self._lease.require, self._in_doubt)
        late = self._late(read, found, lowering) if error is None and self._in_doubt.changes else []
        if not back.later and not late and error is None:
            self._lease.annotate(ANNOTATION, None)
        said = [f"not set back, since {why}: {', '.join(names)}" for why, names in (
            ("somebody else changed them", back.left),
            ("no limit was found there, and a pod that runs cannot lose one (a new pod has none)", back.unlimited),
            ("more is set than was found (`assay release` gives it back)", back.later),
            ("a write that the server did not answer in time may still come (`assay release` gives it back)", late),
            (f"it failed (`assay release` tries again; of the first: {error})", failed)) if names]
        if said:
            kind: Kind = "conflict" if back.left else "unreachable" if late else "refused"
            raise ActuatorError(kind if error is None else error.kind, "; ".join(said), partly=done) from error
        return found.deployment == state.uid

    def _late(self, read: Callable[[], State], found: Found, lowering: bool) -> list[str]:
        """What an earlier write that was in doubt may still set, or has set while the rest was set back."""
        state = read()
        self._in_doubt.settle(state)
        came = [] if found.deployment != state.uid else giving_back(
            found, state, self._deployment, self._container, lowering).changes
        return list(dict.fromkeys(name for change in (*self._in_doubt.changes, *came) for name in change.names()))

    def _read(self, *, renamed: bool = False) -> State:
        """renamed: also where the template has no such container any more: older pods have it, replicas need none."""
        return read_state(self._api, self._deployment, self._container, renamed=renamed)

    def _with_pods_elsewhere(self, state: State, found: Found) -> State:
        """With pods that are the Deployment's no more, of which something is noted: they are given back in the end."""
        return with_pods_elsewhere(self._api, state, self._container, found.names)

    def _without_new(self, state: State) -> State:
        """Without pods that no `apply` has set yet, which hold the template's limits while another pod has a value that
        was set here. One whose resize failed, or is not done, is still new; of another process' resizes that is known
        where the pod asks for less than it holds. Of a rollout only those are new whose template has the limits that
        were found before: else somebody changed them there, and they count as any that is set by hand.
        """
        found = read_found(self._lease.noted(ANNOTATION))
        if found is None or found.deployment != state.uid:
            return state

        def of_template(control: str, limit: float | None) -> bool:
            template = amount(state.template["limits"].get(RESOURCE[control]), RESOURCE[control])
            return limit == template or same(limit, template)

        ours = [(name, pod) for pod in state.pods for name in RESOURCE
                if found.set_here(name, limit := pod.limit(RESOURCE[name])) and not of_template(name, limit)]
        if not ours:
            return state
        as_found = {name for name, pod in ours if pod.uid in found.pods and of_template(
            name, amount(found.pods[pod.uid]["limits"].get(RESOURCE[name]), RESOURCE[name]))}
        of_hash = {(name, pod.template) for name, pod in ours}

        def is_new(pod: Pod) -> bool:
            return all(of_template(name, pod.effective_limit(RESOURCE[name])) for name in RESOURCE) and all(
                name in as_found or (name, pod.template) in of_hash for name, _ in ours)

        def waits(control: str, pod: Pod) -> bool:
            asks, holds = pod.limit(RESOURCE[control]), pod.effective_limit(RESOURCE[control])
            return asks is not None and found.set_here(control, asks) and of_template(control, holds) \
                and (holds is None or asks < holds)

        known = self._known
        if known is None:
            known = {pod.uid for pod in state.pods
                     if pod.uid in found.pods and not any(waits(name, pod) for name in RESOURCE)}
        return replace(state, pods=tuple(pod for pod in state.pods if pod.uid in known or not is_new(pod)))

    def _require_unchanged(self, state: State) -> None:
        """What was raised by hand while it was decided is not undone by who has not seen it."""
        seen, self._seen = self._seen, None
        now, ours = state.asked(), [change.asks() for change in self._in_doubt.changes]
        if changed := [name for name, value in (seen or {}).items() if now.get(name, value) != value
                       and not any(name in asks and asks[name] == now[name] for asks in ours)]:
            raise ActuatorError("conflict", f"what {self.name} asks for was changed by somebody else since it was read "
                                            f"({', '.join(changed)}); decide again")

    def _require_limits(self, state: State) -> None:
        """A container without a limit has nothing to start from."""
        for control in sorted(self._limited):
            if not state.limits(RESOURCE[control]):
                does = "set" if control in self._controls else "held"
                raise ActuatorError("refused", f"the container {self._container} of {self._deployment} must have a "
                                               f"{RESOURCE[control]} limit for {control} to be {does}; give its "
                                               "template one")

    def _checked(self, targets: Mapping[str, float], present: Mapping[str, float]) -> dict[str, float]:
        """The targets that are set here, as they can be set: whole replicas, millicores and MiB, but for what is to
        stay as it is.
        """
        wanted: dict[str, float] = {}
        for name, value in targets.items():
            if name not in CONTROLS:
                raise ActuatorError("refused", f"a target must be one of {', '.join(CONTROLS)}, got {name}")
            least = 1.0 if name == "target_replicas" else 0.0
            if not math.isfinite(value) or value < least or value == 0:
                raise ActuatorError("refused", f"{name} must be a number {'from 1 on' if least else 'above 0'}, "
                                               f"got {value}")
            now, resource = present.get(OBSERVED_BY[name], math.nan), RESOURCE.get(name)
            stays = math.isclose(value, now, rel_tol=UNCHANGED)
            if name in self._controls:
                set_to = amount(limit_quantity(value, resource), resource) if resource else float(round(value))
                wanted[name] = now if stays and resource else set_to if set_to is not None else value
            elif not stays:
                raise ActuatorError("refused", f"{name} is not set here and must stay as it is "
                                               f"({present.get(OBSERVED_BY[name], 'no limit')}), got {value}")
        return wanted

    def _differs(self, pod: Pod, wanted: Mapping[str, float], keeps: Collection[str] = ()) -> list[str]:
        """The controls in which a pod asks for something else; none that it has no limit of, since a limit that is set
        cannot be removed. keeps: those of which it is to have no less.
        """
        keeps = keeps if pod.resize[0] != _NEVER else ()  # what no node gives is nothing that could be taken away
        return [name for name in RESOURCE if name in wanted and (now := pod.limit(RESOURCE[name])) is not None
                and not same(now, wanted[name]) and not (name in keeps and now > wanted[name])]

    def _reserved(self, state: State, wanted: Mapping[str, float]) -> Mapping[str, set[str]]:
        """Uid of a pod -> the controls whose limit stays as it is, since a target does not lie above the request that
        somebody else set: to lower it would take that request away.
        """
        found = read_found(self._lease.noted(ANNOTATION))
        if found is None or found.deployment != state.uid:
            return {}
        return {pod.uid: {name for name in RESOURCE if found.is_below_request(name, pod, wanted.get(name))}
                for pod in state.pods}

    def _set(self, wanted: Mapping[str, float], state: State, keeps: Mapping[str, Collection[str]],
             reserved: Mapping[str, Collection[str]]) -> Mapping[str, float]:
        """What of it was not so yet; control -> value. A decision that takes nothing from what holds takes nothing from
        what is asked for either: more than holds may have been asked for, and the node be late.

        Args:
            keeps: uid of a pod -> controls that are to be no less than what it asks for; none of a new pod, for nobody
                asked for what its template has.
            reserved: uid of a pod -> controls whose limit stays as it is.
        """
        differs = {pod.uid: [name for name in self._differs(pod, wanted, keeps.get(pod.uid, ()))
                             if name not in reserved.get(pod.uid, ())] for pod in state.pods}
        resized = [pod for pod in state.pods if differs[pod.uid]]
        scaled = "target_replicas" in wanted and wanted["target_replicas"] != state.replicas
        if not resized and not scaled:
            return {}
        found = read_found(self._lease.annotation(ANNOTATION))
        if found is None or found.deployment != state.uid:
            found = Found(state.uid)
        state = self._with_pods_elsewhere(state, found)
        found = self._remembered(found.with_pods((*state.pods, *state.others), resized), wanted, state, scaled)
        changes: list[Change] = [self._resize(pod, wanted, found, differs[pod.uid]) for pod in resized]
        if scaled:
            replicas = int(wanted["target_replicas"])
            changes.append(Scale(self._deployment, state.replicas, replicas, state.resource_version))
        changes = rehearse(changes, self._api, self._read, self._in_doubt)
        self._lease.annotate(ANNOTATION, found.text())
        return carry_out(changes, self._api, self._read, self._lease.require, self._in_doubt)

    def _remembered(self, found: Found, wanted: Mapping[str, float], state: State, scaled: bool) -> Found:
        for name, value in wanted.items():
            may_come = [change.values()[name] for change in self._in_doubt.changes if name in change.values()]
            if name in RESOURCE:
                limits = [pod.limit(RESOURCE[name]) for pod in (*state.pods, *state.others)]
                found = found.before(name, value, [*limits, *may_come])
            elif scaled:
                replicas = state.replicas if found.replicas is None else found.replicas
                found = replace(found, replicas=replicas).before(name, value, [state.replicas, *may_come])
        return found

    def _resize(self, pod: Pod, wanted: Mapping[str, float], found: Found, names: Collection[str]) -> Resize:
        limits = {name: exact_quantity(wanted[name], RESOURCE[name]) for name in names}
        requests = {RESOURCE[name]: text for name, limit in limits.items()
                    if (text := found.request_beside(name, pod, limit)) is not None}
        return Resize(pod, self._container, {RESOURCE[name]: limit for name, limit in limits.items()}, requests)

    def _notes(self, state: State, wanted: Mapping[str, float], decided: Mapping[str, float], older: State,
               reserved: Mapping[str, Collection[str]]) -> tuple[str, ...]:
        limited = [RESOURCE[name] for name in wanted if name in RESOURCE]
        waiting = [_waits(pod) for pod in state.pods if pod.resize[0] and not self._differs(pod, wanted)]
        restarted = [f"the container's resizePolicy restarts it where its {name} changes" for name in limited
                     if name in state.restarts and any(self._differs(pod, wanted) for pod in state.pods)]
        idle = ["no pod runs whose limits could be set"] if limited and not state.pods else []
        unlimited = [f"pod {pod.name} has no {name} limit, and is given none" for pod in state.pods for name in limited
                     if pod.limit(name) is None]
        above = [f"pod {pod.name} keeps its {RESOURCE[name]} limit of {pod.asked['limits'][RESOURCE[name]]}, which is "
                 "above what counted as present" for pod in older.pods for name in sorted(_above(pod, decided))
                 if name in self._differs(pod, wanted) and name not in self._differs(pod, wanted, (name,))]
        requested = [f"pod {pod.name} keeps its {RESOURCE[name]} limit of {pod.asked['limits'][RESOURCE[name]]}, since "
                     f"somebody else set a request of {pod.asked['requests'][RESOURCE[name]]}"
                     for pod in state.pods for name in sorted(reserved.get(pod.uid, ()))]
        return (*state.unequal(), *waiting, *restarted, *idle, *unlimited, *above, *requested)


class WatchedDeployment:
    """Implements `Watched`: reads the Deployment and its pods, whoever sets them; a limit that no pod has is missing.

    Raises:
        ActuatorError: the Deployment cannot be read.
    """

    def __init__(self, api: Api, deployment: str, container: str) -> None:
        self._api, self._deployment, self._container = api, deployment, container
        self.present()

    @property
    def name(self) -> str:
        """See `Watched`."""
        return f"kubernetes {self._api.namespace}/{self._deployment}"

    def present(self) -> Mapping[str, float]:
        """See `Watched`."""
        return read_state(self._api, self._deployment, self._container).present()


def _lease_of(deployment: str) -> str:
    return f"assay-{deployment}"


def _above(pod: Pod, decided: Mapping[str, float]) -> set[str]:
    """The controls of which a pod holds more than what was decided on: it did not serve, or was not there yet. A step
    that is a small share of that value may be a large one of the pod's, so that it takes nothing from it.
    """
    return {name for name, resource in RESOURCE.items() if (holds := pod.effective_limit(resource)) is not None
            and holds > decided.get(OBSERVED_BY[name], math.inf) * (1.0 + UNCHANGED)}


def _waits(pod: Pod) -> str:
    return f"the resize of pod {pod.name} is not done: {': '.join(part for part in pod.resize if part)}"


@dataclass(frozen=True)
class KubernetesTarget:
    """What a controller file says of a Deployment; see `Api` and `cluster_configuration`. "" counts as not given."""

    namespace: str
    deployment: str
    container: str
    controls: tuple[str, ...] = CONTROLS
    lease_s: int = LEASE_S
    connect_s: float = CONNECT_S
    read_s: float = READ_S
    kubeconfig: str = ""
    context: str = ""


def _read(part: FilePart) -> KubernetesTarget:
    part.only(tuple(KubernetesTarget.__dataclass_fields__))
    return KubernetesTarget(
        part.text("namespace"), part.text("deployment"), part.text("container"),
        part.texts("controls") or CONTROLS, part.whole("lease_s", LEASE_S),
        part.number("connect_s", CONNECT_S), part.number("read_s", READ_S), part.text("kubeconfig", ""),
        part.text("context", ""))


def _make(target: KubernetesTarget, contract: Contract | None, held: Collection[str]) -> KubernetesDeployment:
    require_held(contract, held, target.controls, "kubernetes")
    controls = tuple(name for name in target.controls if name not in held) or target.controls  # all held: all stay
    return KubernetesDeployment(_api(target), target.deployment, target.container, controls, target.lease_s,
                                held if contract is not None else (), gives_back=contract is None)


def _watch(target: KubernetesTarget, contract: Contract, held: Collection[str], server: Server) -> WatchedDeployment:
    require_held(contract, held, target.controls, "kubernetes")
    return WatchedDeployment(_api(target), target.deployment, target.container)


def _api(target: KubernetesTarget) -> Api:
    kubeconfig = Path(target.kubeconfig).expanduser() if target.kubeconfig else None
    return Api(cluster_configuration(kubeconfig, target.context or None), target.namespace, target.connect_s,
               target.read_s)


KIND = ActuatorKind("kubernetes", "name namespace, deployment and container", _read, _make, watch=_watch,
                    kept=lambda target: f"the lease {_lease_of(target.deployment)}",
                    lease_s=lambda target: target.lease_s)
