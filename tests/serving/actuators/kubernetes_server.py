"""A small Kubernetes API server for tests: real HTTP on loopback, stateful, the paths in use. It is no cluster.

It knows what the actuator depends on: resourceVersion and conflicts, dryRun=All, the scale and resize subresources,
strategic merge by container name, selectors (labels by equality, the name), RBAC by the rules of
deploy/kubernetes-rbac.yaml, Status objects with the messages of kube-apiserver, answers of 504 to what is carried out
all the same. A scale makes and stops pods at once, a ReplicaSet gives up a pod whose labels change, and a resize is
done by a node at once, unless `node` says otherwise. Written after the documentation of: apimachinery pkg/api/errors,
apiserver pkg/endpoints/handlers, kubernetes pkg/apis/core/validation (ValidatePodResize).

  GET             /apis/apps/v1/namespaces/{ns}/deployments/{name}
  PATCH           /apis/apps/v1/namespaces/{ns}/deployments/{name}/scale
  GET             /api/v1/namespaces/{ns}/pods
  PATCH           /api/v1/namespaces/{ns}/pods/{name}/resize
  GET POST PUT    /apis/coordination.k8s.io/v1/namespaces/{ns}/leases[/{name}]
  GET             /apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers
  GET             /apis/autoscaling.k8s.io/v1/namespaces/{ns}/verticalpodautoscalers, where it is installed
"""

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

ROOT = Path(__file__).parents[3]
MANIFEST = ROOT / "deploy" / "kubernetes-rbac.yaml"
NAMESPACE, DEPLOYMENT, CONTAINER = "shop", "web", "web"
PATH = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v\d)/namespaces/(?P<namespace>[^/]+)/"
                  r"(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?")
SERVED = {("apps", "deployments"): {"", "scale"}, ("", "pods"): {"", "resize"}, ("coordination.k8s.io", "leases"): {""},
          ("autoscaling", "horizontalpodautoscalers"): {""}, ("autoscaling.k8s.io", "verticalpodautoscalers"): {""}}
Json = dict[str, Any]
Rule = tuple[str, str, str, str]  # group, resource, verb, name ("" where a rule names none)


@dataclass
class Fault:
    """What goes wrong, where "METHOD /path?query" matches `on`: after the first `after` matches, `times` times.

    Attributes:
        status: to answer with, and nothing is done; 0 does it, and then `cut` or `delay_s` hide it.
        carried_out: it is done all the same, before the answer; or, where this is a pattern, just before the first
            request after it that matches. kube-apiserver answers 504 once its own time is up, whatever became of the
            write: the handler goes on, and etcd may have it already.
        message, reason, headers: of that answer; `text` sends the message as plain text, not as a Status.
        delay_s: seconds to wait before the answer.
        cut: send half of the answer, then close the connection.
    """

    on: str
    status: int = 0
    message: str = "it broke"
    carried_out: str | None = None
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    text: bool = False
    delay_s: float = 0.0
    cut: bool = False
    after: int = 0
    times: int = 10**6


@dataclass
class Cluster:
    """What the server holds, and how it misbehaves.

    Attributes:
        objects: (plural, name) -> object.
        requests: "METHOD /path?query" of each request, with its body.
        used: the RBAC rules that requests needed and that were granted.
        rules: what is granted; None for everything.
        before: pairs of a pattern and what others do just before the first such request is handled.
        node: what a pod's node does with a resize.
        vertical: whether the custom resource of the VPA is installed.
        memory_lowered: whether a memory limit may be decreased in place; Kubernetes 1.33 refuses it.
    """

    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    requests: list[tuple[str, Json]] = field(default_factory=list)
    used: set[Rule] = field(default_factory=set)
    rules: set[Rule] | None = field(default_factory=lambda: granted(MANIFEST))
    faults: list[Fault] = field(default_factory=list)
    before: list[tuple[str, Callable[["Cluster"], None]]] = field(default_factory=list)
    node: Callable[[Json], None] = field(default=lambda pod: actuate(pod))
    vertical: bool = False
    resize_served: bool = True
    memory_lowered: bool = True
    version: int = 100
    lock: Any = field(default_factory=threading.RLock)

    def store(self, plural: str, item: Json) -> Json:
        """Stores a copy under a new resourceVersion."""
        with self.lock:
            self.version += 1
            item = deepcopy(item)
            item["metadata"] |= {"resourceVersion": str(self.version), "namespace": NAMESPACE}
            item["metadata"].setdefault("uid", f"{plural}-{self.version}")
            self.objects[plural, item["metadata"]["name"]] = item
            return item

    def edit(self, plural: str, name: str, change: Callable[[Json], Any]) -> None:
        """What somebody else does to an object."""
        item = deepcopy(self.objects[plural, name])
        change(item)
        self.store(plural, item)

    def touch(self, plural: str, name: str) -> None:
        """A status that changes, as it does all the time."""
        self.edit(plural, name, lambda item: item["status"].update(touched=self.version))

    def pods(self) -> list[Json]:
        """By name."""
        return [item for (plural, _), item in sorted(self.objects.items()) if plural == "pods"]

    def resources(self, index: int = 0) -> Json:
        """Of a pod's container."""
        resources: Json = self.pods()[index]["spec"]["containers"][0]["resources"]
        return resources

    @property
    def replicas(self) -> int:
        """That the Deployment asks for."""
        return int(self.objects["deployments", DEPLOYMENT]["spec"]["replicas"])

    def scale_to(self, replicas: int) -> None:
        """What `kubectl scale` and then the controllers of Kubernetes do."""
        self.edit("deployments", DEPLOYMENT, lambda item: item["spec"].update(replicas=replicas))
        owned = [pod for pod in self.pods() if pod["metadata"]["ownerReferences"]]
        for pod in owned[replicas:]:
            del self.objects["pods", pod["metadata"]["name"]]
        for _ in range(replicas - len(owned)):
            self.store("pods", new_pod(self.version, self.objects["deployments", DEPLOYMENT]))
        self.edit("deployments", DEPLOYMENT, lambda item: item["status"].update(readyReplicas=replicas))

    def relabel(self, index: int = 0, **labels: str) -> str:
        """What `kubectl label --overwrite pod` does, and then the ReplicaSet's controller where its selector does not
        find the pod any more: it takes its ownerReference away, and starts another pod. The pod goes on; its name.
        """
        name: str = self.pods()[index]["metadata"]["name"]
        self.edit("pods", name, lambda pod: (pod["metadata"]["labels"].update(labels),
                                             pod["metadata"].update(ownerReferences=[])))
        self.scale_to(self.replicas)
        return name

    def resize_by_hand(self, index: int = 0, **resources: Json) -> None:
        """What `kubectl patch pod --subresource resize` does to a container. resources: limits, requests."""
        pod = deepcopy(self.pods()[index])
        _resize(self, pod, {"spec": {"containers": [{"name": CONTAINER, "resources": resources}]}}, dry_run=False)

    def writes(self) -> list[tuple[str, Json]]:
        """Requests that changed, or would change, a Deployment or a pod, without rehearsals."""
        return [(line, body) for line, body in self.requests if line.startswith("PATCH") and "dryRun" not in line]


class Refused(Exception):
    """An answer other than 200, as a Status."""

    def __init__(self, status: int, reason: str, message: str, details: Json | None = None) -> None:
        self.status = status
        self.body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                     "reason": reason, "details": details or {}, "code": status}


def granted(manifest: Path) -> set[Rule]:
    """The rules of the Role in a manifest, one for each verb, resource and name."""
    filled = manifest.read_text().replace("NAMESPACE", NAMESPACE).replace("DEPLOYMENT", DEPLOYMENT)
    role = next(item for item in yaml.safe_load_all(filled) if item["kind"] == "Role")
    return {(group, resource, verb, name) for rule in role["rules"] for group in rule["apiGroups"]
            for resource in rule["resources"] for verb in rule["verbs"] for name in rule.get("resourceNames", [""])}


def new_cluster(replicas: int = 3, resources: Json | None = None) -> Cluster:
    """A Deployment with running pods."""
    resources = resources or {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "1", "memory": "512Mi"}}
    labels = {"app": "web", "tier": "front"}
    cluster = Cluster()
    cluster.store("deployments", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": DEPLOYMENT},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels},
                              "spec": {"containers": [{"name": CONTAINER, "resources": resources},
                                                      {"name": "sidecar", "resources": {}}]}}},
        "status": {"readyReplicas": replicas}})
    cluster.scale_to(replicas)
    return cluster


def new_pod(number: int, deployment: Json) -> Json:
    """As the Deployment's ReplicaSet makes it, running and ready."""
    template = deepcopy(deployment["spec"]["template"])
    template_hash = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
    pod = {"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": f"web-{template_hash}-{number:04}",
                        "labels": {**template["metadata"]["labels"], "pod-template-hash": template_hash},
                        "ownerReferences": [{"kind": "ReplicaSet", "name": f"web-{template_hash}",
                                             "controller": True}]},
           "spec": template["spec"],
           "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    actuate(pod)
    return pod


def actuate(pod: Json) -> None:
    """A node that does what it is asked for at once."""
    pod["status"]["containerStatuses"] = [{"name": item["name"], "resources": deepcopy(item.get("resources", {}))}
                                          for item in pod["spec"]["containers"]]


def pending(reason: str, message: str) -> Callable[[Json], None]:
    """A node that does not: Deferred, Infeasible."""
    def leave(pod: Json) -> None:
        pod["status"]["conditions"].append(
            {"type": "PodResizePending", "status": "True", "reason": reason, "message": message})
    return leave


@contextmanager
def serve(cluster: Cluster) -> Iterator[str]:
    """Serves on a free port of the loopback for the length of the block; the address."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False  # one that still sleeps must not hold the test up
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        """Quiet: the requests are in the state."""

    def _answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else {}
        with self.cluster.lock:
            line = f"{self.command} {self.path}"
            self.cluster.requests.append((line, body))
            for index, (pattern, action) in enumerate(self.cluster.before):
                if re.search(pattern, line):
                    del self.cluster.before[index]
                    action(self.cluster)
                    break
            fault = _struck(self.cluster, line)
            status, answer, headers = 200, {}, {}
            try:
                if fault is not None and fault.status:
                    self._carry_out(fault, body)
                    headers = fault.headers
                    raise Refused(fault.status, fault.reason, fault.message)
                answer = respond(self.cluster, self.command, self.path, body, self.headers.get("Content-Type", ""))
            except Refused as refused:
                status, answer = refused.status, refused.body
        time.sleep(fault.delay_s if fault else 0)
        content = fault.message.encode() if fault and fault.text else json.dumps(answer).encode()
        self._send(status, content, headers, cut=fault is not None and fault.cut)

    def _carry_out(self, fault: Fault, body: Json) -> None:
        """What is done of a request that is answered otherwise."""
        content_type = self.headers.get("Content-Type", "")
        method, path = self.command, self.path

        def do(cluster: Cluster) -> None:
            with suppress(Refused):  # by then it may be of an old version
                respond(cluster, method, path, body, content_type)

        if fault.carried_out:
            self.cluster.before.append((fault.carried_out, do))
        elif fault.carried_out is not None:
            do(self.cluster)

    def _send(self, status: int, content: bytes, headers: dict[str, str], cut: bool) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:len(content) // 2] if cut else content)
            self.close_connection = cut or self.close_connection
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client gave up waiting


def _struck(cluster: Cluster, line: str) -> Fault | None:
    for fault in cluster.faults:
        if re.search(fault.on, line):
            if fault.after > 0:
                fault.after -= 1
            elif fault.times > 0:
                fault.times -= 1
                return fault
    return None


def respond(cluster: Cluster, method: str, target: str, body: Json, content_type: str) -> Json:
    """The answer to one request, without HTTP."""
    url = urlsplit(target)
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    found = PATH.fullmatch(url.path)
    group, plural, name, sub = ((found[key] or "") for key in ("group", "plural", "name", "sub")) if found else [""] * 4
    if found is not None:
        _authorize(cluster, group, f"{plural}/{sub}" if sub else plural, _verb(method, name), name, found["namespace"])
    if sub not in SERVED.get((group, plural), ()) or (plural.startswith("vertical") and not cluster.vertical) or (
            sub == "resize" and not cluster.resize_served):
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    if method == "PATCH" and content_type != "application/strategic-merge-patch+json":
        raise Refused(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}")
    match method, name:
        case "GET", "":
            wanted = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
            key, _, called = query.get("fieldSelector", "").partition("=")
            assert key in ("", "metadata.name"), f"a field that no list is selected by here: {key}"
            return {"kind": "List", "metadata": {"resourceVersion": str(cluster.version)}, "items": [
                item for (kind, name), item in cluster.objects.items() if kind == plural and (not key or name == called)
                and all(item["metadata"].get("labels", {}).get(key) == value for key, value in wanted)]}
        case "GET", _:
            return _known(cluster, group, plural, name)
        case "POST", "":
            if (plural, body["metadata"]["name"]) in cluster.objects:
                raise Refused(409, "AlreadyExists", f'{plural}.{group} "{body["metadata"]["name"]}" already exists',
                              {"name": body["metadata"]["name"], "kind": plural})
            return cluster.store(plural, body)
        case "PUT", _:
            _current(cluster, group, plural, name, body)
            return cluster.store(plural, body)
    now = _current(cluster, group, plural, name, body)
    return (_scale if sub == "scale" else _resize)(cluster, now, body, "dryRun" in query)


def _verb(method: str, name: str) -> str:
    return {"GET": "get" if name else "list", "POST": "create", "PUT": "update", "PATCH": "patch"}[method]


def _authorize(cluster: Cluster, group: str, resource: str, verb: str, name: str, namespace: str) -> None:
    """As the RBAC authorizer: a rule with names allows these alone, and never a create."""
    fitting = {rule for rule in cluster.rules or () if rule[:3] == (group, resource, verb) and rule[3] in ("", name)}
    if cluster.rules is not None and not fitting:
        dotted = f"{resource.split('/')[0]}.{group}" if group else resource.split("/")[0]
        subject = f'{dotted} "{name}"' if name else dotted
        raise Refused(403, "Forbidden", f'{subject} is forbidden: User "system:serviceaccount:{namespace}:assay-web" '
                                        f'cannot {verb} resource "{resource}" in API group "{group}" in the namespace '
                                        f'"{namespace}"', {"name": name, "group": group, "kind": resource})
    cluster.used |= fitting


def _known(cluster: Cluster, group: str, plural: str, name: str) -> Json:
    if (plural, name) not in cluster.objects:
        raise Refused(404, "NotFound", f'{plural}{f".{group}" if group else ""} "{name}" not found',
                      {"name": name, "group": group, "kind": plural})
    return deepcopy(cluster.objects[plural, name])


def _current(cluster: Cluster, group: str, plural: str, name: str, body: Json) -> Json:
    """The object, where the body was made of its present version."""
    now = _known(cluster, group, plural, name)
    sent = body.get("metadata", {}).get("resourceVersion")
    assert sent, f"a write without a resourceVersion: {body}"
    if sent != now["metadata"]["resourceVersion"]:
        raise Refused(409, "Conflict", f'Operation cannot be fulfilled on {plural} "{name}": the object has been '
                                       "modified; please apply your changes to the latest version and try again",
                      {"name": name, "group": group, "kind": plural})
    return now


def _scale(cluster: Cluster, now: Json, body: Json, dry_run: bool) -> Json:
    if not dry_run:
        cluster.scale_to(body["spec"]["replicas"])
    return {"kind": "Scale", "metadata": now["metadata"], "spec": {"replicas": body["spec"]["replicas"]}}


def _resize(cluster: Cluster, now: Json, body: Json, dry_run: bool) -> Json:
    name = now["metadata"]["name"]
    before = _class(now)
    for patch in body["spec"]["containers"]:
        container = next((item for item in now["spec"]["containers"] if item["name"] == patch["name"]), None)
        if container is None:
            raise _invalid(name, "spec: Forbidden: containers may not be added or removed on resize")
        memory = patch["resources"].get("limits", {}).get("memory")
        if memory and not cluster.memory_lowered and number(memory) < number(
                container["resources"]["limits"]["memory"]):
            raise _invalid(name, "spec.containers[0].resources.limits: Forbidden: memory limits cannot be decreased "
                                 "unless resizePolicy is RestartContainer")
        for key, quantities in patch["resources"].items():
            kept = container["resources"].get(key, {})
            container["resources"][key] = kept | {what: canonical(text) for what, text in quantities.items()}
        for what, text in container["resources"].get("requests", {}).items():
            if number(text) > number(container["resources"]["limits"].get(what, "1Ei")):
                raise _invalid(name, f'spec.containers[0].resources.requests: Invalid value: "{text}": must be less '
                                     f"than or equal to {what} limit")
    if _class(now) != before:
        raise _invalid(name, f'spec: Invalid value: "{_class(now)}": Pod QOS Class may not change as a result of '
                             "resizing")
    if dry_run:
        return now
    now["status"]["conditions"] = [item for item in now["status"]["conditions"] if item["type"] == "Ready"]
    cluster.node(now)
    return cluster.store("pods", now)


def _invalid(name: str, message: str) -> Refused:
    return Refused(422, "Invalid", f'Pod "{name}" is invalid: {message}', {"name": name, "kind": "Pod"})


def _class(pod: Json) -> str:
    """The class of service."""
    each = [item.get("resources", {}) for item in pod["spec"]["containers"]]
    if not any(resources.get(key) for resources in each for key in ("limits", "requests")):
        return "BestEffort"
    equal = all(len(resources.get("limits", {})) == 2 and resources["limits"] == resources.get("requests")
                for resources in each)
    return "Guaranteed" if equal else "Burstable"


def number(text: str) -> float:
    """A quantity, in the units in use."""
    suffixes = {"m": 1e-3, "M": 1e6, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ei": 2**60}
    suffix = next((end for end in suffixes if text.endswith(end)), "")
    return float(text.removesuffix(suffix)) * suffixes.get(suffix, 1)


def canonical(text: str) -> str:
    """As apimachinery writes it: "1000m" is "1", "1024Mi" is "1Gi"."""
    for small, large, size in (("m", "", 1000), ("Ki", "Mi", 1024), ("Mi", "Gi", 1024)):
        if text.endswith(small) and int(text.removesuffix(small)) % size == 0:
            text = f"{int(text.removesuffix(small)) // size}{large}"
    return text
