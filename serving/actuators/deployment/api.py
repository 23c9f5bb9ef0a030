"""Requests to a Kubernetes API server through the official client, and what its refusals mean.

The client's generic call is used in place of its typed methods: the version that installs beside kfp (30.1) knows no
`resize` of pods, and its models drop what a newer server says. Nothing is retried in here: whoever calls knows whether
a second try is safe. Status codes: https://kubernetes.io/docs/reference/using-api/api-concepts/.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from feature_store.errors import InputError, MissingToolError
from serving.actuators.actuator import ActuatorError, Kind

Json = dict[str, Any]
Verb = Literal["get", "list", "create", "update", "patch"]
METHODS: Mapping[Verb, str] = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH"}
KINDS: Mapping[int, Kind] = {400: "refused", 401: "forbidden", 403: "forbidden", 404: "gone", 409: "conflict",
                             422: "refused", 429: "throttled"}
CONNECT_S, READ_S = 2.0, 5.0
LONGEST_MESSAGE = 500  # characters of what a server says that an error repeats
FIELD_MANAGER = "assay"
RBAC_MANIFEST = "deploy/kubernetes-rbac.yaml"
IN_DOUBT = "; it may have been carried out"  # of a write


@dataclass(frozen=True)
class Resource:
    """A kind of object, as a path and an RBAC rule name it."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str, name: str, subresource: str) -> str:
        """Of a list where `name` is empty."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return "/".join(part for part in (f"{root}/namespaces/{namespace}/{self.plural}", name, subresource) if part)


DEPLOYMENTS = Resource("apps", "v1", "deployments")
PODS = Resource("", "v1", "pods")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
HORIZONTAL_AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers")
VERTICAL_AUTOSCALERS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers")


class ApiError(ActuatorError):
    """An answer other than 2xx, or none.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        in_doubt: whether it is of a write that the server may have carried out, or may still carry out.
    """

    def __init__(self, kind: Kind, message: str, status: int = 0, in_doubt: bool = False) -> None:
        super().__init__(kind, message)
        self.status, self.in_doubt = status, in_doubt


def kubernetes_client() -> ModuleType:
    """The official client, imported when it is needed: it is an extra, and takes 0.7 s and 60 MB.

    Raises:
        MissingToolError: it is not installed.
    """
    try:
        import kubernetes
    except ImportError as error:
        raise MissingToolError("the Kubernetes actuator needs the package `kubernetes`, which is not installed; "
                               "install it with `pip install 'assay[kubernetes]'` (light install: assay-serving)"
                               ) from error
    return kubernetes


class Api:
    """One namespace of one API server.

    Args:
        configuration: of the official client: address, certificates, token. Its retries are turned off.
        namespace: of everything that is read and written.
        connect_s: seconds until the server must have taken the connection.
        read_s: seconds that it may be silent.
    """

    def __init__(
        self, configuration: Any, namespace: str, connect_s: float = CONNECT_S, read_s: float = READ_S
    ) -> None:
        if not (connect_s > 0 and read_s > 0):
            raise InputError(f"time-outs must be above 0 s, got {connect_s} (connect) and {read_s} (read)")
        configuration.retries = False  # urllib3 would sleep for Retry-After, and send a PUT again
        self.namespace = namespace
        self._client = kubernetes_client().client.ApiClient(configuration)
        self._timeouts = (connect_s, read_s)

    def call(
        self,
        verb: Verb,
        resource: Resource,
        name: str = "",
        subresource: str = "",
        body: Json | None = None,
        selector: str = "",
        fields: str = "",
        dry_run: bool = False,
    ) -> Json:
        """One request; the object, or list, that the server answers with.

        Args:
            verb: as RBAC calls it.
            resource: the kind of object.
            name: of the object; empty for a list and to create.
            subresource: scale, resize.
            body: an object; for a patch a strategic merge patch.
            selector: of labels, for a list.
            fields: a selector of fields, for a list.
            dry_run: the server does everything, admission included, but store it.

        Raises:
            ApiError: anything but success.
        """
        import urllib3.exceptions

        selectors = (("labelSelector", selector), ("fieldSelector", fields))
        query = [(key, value) for key, value in selectors if value]
        if verb in ("create", "update", "patch"):
            query += [("fieldManager", FIELD_MANAGER)] + ([("dryRun", "All")] if dry_run else [])
        content = "application/strategic-merge-patch+json" if verb == "patch" else "application/json"
        rule = f"{verb} {resource.plural}{'/' if subresource else ''}{subresource}{' ' if name else ''}{name}"
        exceptions = kubernetes_client().client.exceptions
        writes = verb not in ("get", "list") and not dry_run
        try:
            answer = self._client.call_api(
                resource.path(self.namespace, name, subresource), METHODS[verb], query_params=query, body=body,
                header_params={"Accept": "application/json", "Content-Type": content}, response_type="object",
                auth_settings=["BearerToken"], _return_http_data_only=True, _request_timeout=self._timeouts,
            )
        except exceptions.ApiException as error:
            rbac_rule = _rbac_rule(verb, resource, subresource, self.namespace)
            raise _refusal(error, rule, rbac_rule, writes and int(error.status or 0) >= 500) from error
        except (urllib3.exceptions.HTTPError, OSError, UnicodeDecodeError) as error:
            raise ApiError("unreachable", f"{rule} ({self.namespace}): no whole answer from the API server"
                                          f"{IN_DOUBT if writes else ''}: {_short(str(error))}",
                           in_doubt=writes) from error
        if not isinstance(answer, dict) or not isinstance(answer.get("items", []), list):
            raise ApiError("unreachable", f"{rule} ({self.namespace}): expected an object of the Kubernetes API, got "
                                          f"{_short(repr(answer))}; is there a proxy in between?", in_doubt=writes)
        return answer


def cluster_configuration(kubeconfig: Path | None = None, context: str | None = None) -> Any:
    """The client's configuration: of the pod's service account inside of a cluster, else of a kubeconfig file.

    Args:
        kubeconfig: the file; without it $KUBECONFIG or ~/.kube/config.
        context: of that file; without it the current one.

    Raises:
        InputError: neither is there, or it cannot be read.
    """
    import yaml

    kubernetes = kubernetes_client()
    configuration = kubernetes.client.Configuration()
    try:
        if kubeconfig is None and context is None:
            try:
                kubernetes.config.load_incluster_config(configuration)
                return configuration
            except kubernetes.config.ConfigException:
                pass  # not inside of a cluster
        kubernetes.config.load_kube_config(str(kubeconfig) if kubeconfig else None, context, configuration,
                                           persist_config=False)
    except (kubernetes.config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError,
            yaml.YAMLError) as error:
        raise InputError("expected a service account (inside of a cluster) or a readable kubeconfig file, got: "
                         f"{_short(str(error))} ({kubeconfig or 'default path'})") from error
    return configuration


def _refusal(error: Any, rule: str, rbac_rule: str, in_doubt: bool) -> ApiError:
    """What an answer other than 2xx means. in_doubt: see `ApiError`."""
    status = int(error.status or 0)
    said = _status_object(error.body)
    message = _short(str(said.get("message") or error.reason or f"HTTP {status}"))
    details = said.get("details") or {}
    kind: Kind = KINDS.get(status, "refused" if 400 <= status < 500 else "unreachable")
    advice = ""
    if "admission webhook" in message:
        kind = "refused" if status < 500 or "denied the request" in message else "unreachable"
    elif status == 403 and not re.search(r'cannot \w+ (resource|path) "', message):
        kind = "refused"  # a quota and a LimitRange answer 403 as well; the caller may, the change may not
    elif status == 403:
        advice = f"; its role lacks {rbac_rule}: see {RBAC_MANIFEST}"
    elif status == 401:
        advice = "; its token is missing, wrong or has expired"
    elif status == 404 and not details.get("name"):
        kind, advice = "refused", "; this server does not serve it (pods/resize: Kubernetes 1.33 or newer)"
    return ApiError(kind, f"{rule}: HTTP {status}: {message}{advice}{IN_DOUBT if in_doubt else ''}", status, in_doubt)


def _rbac_rule(verb: Verb, resource: Resource, subresource: str, namespace: str) -> str:
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return f'apiGroups ["{resource.group}"], resources ["{plural}"], verbs ["{verb}"] in namespace {namespace}'


def _status_object(body: str | None) -> Json:
    try:
        said = json.loads(body or "")
    except ValueError:
        return {"message": body}
    return said if isinstance(said, dict) else {}


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]} ..."
