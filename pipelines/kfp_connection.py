"""The connection to Kubeflow Pipelines: where it is, a client that cannot hang, and its failures in one line.

Used by pipelines/cluster.py alone. `kfp.Client` as it comes has no timeouts (a server that accepts and never
answers holds it for ever), repeats a failed health check five times with five seconds between and a traceback
each, and prints links to standard output, which would spoil `--json`.
"""

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from feature_store.errors import InputError, SourceError

ENDPOINT_VARIABLE = "ASSAY_KFP_ENDPOINT"
TOKEN_VARIABLE = "ASSAY_KFP_TOKEN"
NAMESPACE_VARIABLE = "ASSAY_KFP_NAMESPACE"
CA_VARIABLE = "ASSAY_KFP_CA_FILE"
# A request is one row in a database or one object in Kubernetes; longer than this, something is wrong.
_TIMEOUT_S = 20


@dataclass(frozen=True)
class Endpoint:
    """Where Kubeflow Pipelines answers, and as whom to ask.

    Attributes:
        url: its address, `http://` or `https://`, without a slash at the end.
        token: bearer token, or None where no login stands before it.
        namespace: the user's namespace in a multi-user installation, or None.
        ca_file: PEM file of the authority of its certificate, or None for the usual ones.
        timeout_s: seconds that one request may take.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    namespace: str | None = None
    ca_file: str | None = None
    timeout_s: int = _TIMEOUT_S


def resolve_endpoint(option: str | None, environment: Mapping[str, str]) -> Endpoint:
    """The endpoint from `--endpoint`, else $ASSAY_KFP_ENDPOINT; the rest from the environment.

    Raises:
        InputError: neither is given, it is no http address, or the authority's file is missing.
    """
    url = (option or environment.get(ENDPOINT_VARIABLE) or "").strip().rstrip("/")
    if not url:
        raise InputError(
            "Kubeflow Pipelines endpoint must be given, got none; pass --endpoint URL or set "
            f"{ENDPOINT_VARIABLE} (without a cluster: --local)"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(
            f"Kubeflow Pipelines endpoint must be an http:// or https:// address, got {url!r}; "
            "for example http://localhost:8080"
        )
    return Endpoint(
        url,
        token=environment.get(TOKEN_VARIABLE) or None,
        namespace=environment.get(NAMESPACE_VARIABLE) or None,
        ca_file=_readable(environment.get(CA_VARIABLE)),
    )


def _readable(ca_file: str | None) -> str | None:
    if ca_file and not Path(ca_file).is_file():
        raise InputError(f"{CA_VARIABLE} must name a file, got {ca_file!r}")
    return ca_file or None


@contextmanager
def connected(endpoint: Endpoint) -> Iterator[Any]:
    """A `kfp.Client` for the length of the block; what goes wrong with the server is a one-line SourceError.

    Yields:
        The client. What it prints is swallowed.

    Raises:
        SourceError: the server is unreachable, slow, refuses, fails, or is no Kubeflow Pipelines API.
    """
    import kfp_server_api
    import urllib3

    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            # "This client only works with Kubeflow Pipeline v2": it is the one that this project speaks to.
            warnings.simplefilter("ignore", FutureWarning)
            yield _client(endpoint)
    except kfp_server_api.ApiException as error:
        raise SourceError(_refusal(error, endpoint)) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise SourceError(_no_answer(error, endpoint)) from error
    except ValueError as error:
        # Of the client's own: JSON that does not fit its models, a broken ~/.config/kfp/context.json.
        raise SourceError(
            f"Kubeflow Pipelines must answer as kfp expects, got {_one_line(str(error))} ({endpoint.url})"
        ) from error


def _client(endpoint: Endpoint) -> Any:
    """A `kfp.Client` with a timeout on every request and no repetitions."""
    import kfp

    def healthz(client: Any, **_: Any) -> Any:
        _bound(client._healthz_api.api_client, endpoint)
        return client._healthz_api.healthz_service_get_healthz()

    # Overridden because the constructor calls it, before a timeout could be set from outside.
    bounded_client = type("BoundedClient", (kfp.Client,), {"get_kfp_healthz": healthz})
    client = bounded_client(
        host=endpoint.url,
        existing_token=endpoint.token,
        ssl_ca_cert=endpoint.ca_file,
        # kfp's own default; any other value is taken as the user's namespace.
        namespace=endpoint.namespace or "kubeflow",
    )
    _bound(client._healthz_api.api_client, endpoint)
    return client


def _bound(api_client: Any, endpoint: Endpoint) -> None:
    """Give every request a timeout (the generated code passes None on), one try, and a look at the answer."""
    import kfp_server_api

    rest = api_client.rest_client
    request: Callable[..., Any] = type(rest).request

    def bounded(*arguments: Any, **options: Any) -> Any:
        # A pair, because the generated client ignores a float.
        options["_request_timeout"] = (endpoint.timeout_s, endpoint.timeout_s)
        try:
            response = request(rest, *arguments, **options)
        except kfp_server_api.ApiException as error:
            if error.body is not None:
                raise
            # TLS failed; the generated client would stumble over the missing body (AttributeError).
            raise SourceError(
                "Kubeflow Pipelines must show a certificate that is trusted here, got "
                f"{_one_line(str(error.reason))} ({endpoint.url}); set {CA_VARIABLE} to its authority's file"
            ) from error
        kind = response.getheader("Content-Type") or "nothing"
        if "json" not in kind:
            # The generated client makes an object without a single value of it, and goes on.
            raise SourceError(
                f"Kubeflow Pipelines must answer with JSON, got {kind} ({endpoint.url}); check that the "
                f"address is its own and not that of a login page, or set {TOKEN_VARIABLE}"
            )
        return response

    rest.request = bounded
    rest.pool_manager.connection_pool_kw["retries"] = False
    rest.pool_manager.clear()  # pools that were made before keep their own setting


def _no_answer(error: Exception, endpoint: Endpoint) -> str:
    """A request that got no answer at all, as one line that says what to do."""
    import urllib3

    # A refused connection is a kind of timeout to some versions of urllib3.
    refused = isinstance(error, urllib3.exceptions.NewConnectionError)
    if isinstance(error, urllib3.exceptions.TimeoutError) and not refused:
        return (
            f"Kubeflow Pipelines must answer within {endpoint.timeout_s} s, got no answer ({endpoint.url}); "
            "what was asked for may still happen: look at the list before you try again"
        )
    # urllib3 begins with the connection object and its address in memory.
    got = _one_line(re.sub(r"<[^>]*>: ", "", str(error)))
    return (
        f"Kubeflow Pipelines must be reachable, got {got} ({endpoint.url}); check the address, "
        "for example after kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80"
    )


def _refusal(error: Any, endpoint: Endpoint) -> str:
    """An HTTP status that is no success, as one line that says what to do."""
    said = _server_message(error.body)
    got = f"got {error.status} {_one_line(str(error.reason))}" + (f": {said}" if said else "")
    if error.status in (401, 403):
        return (
            f"Kubeflow Pipelines must accept the caller, {got} ({endpoint.url}); set {TOKEN_VARIABLE} to a "
            f"token and, in a multi-user installation, {NAMESPACE_VARIABLE}"
        )
    if error.status is not None and 300 <= error.status < 400:
        return (
            f"Kubeflow Pipelines must answer itself, {got} ({endpoint.url}); a login stands before it: give "
            f"the address of the API, or set {TOKEN_VARIABLE}"
        )
    if error.status == 404:
        return f"Kubeflow Pipelines must have what is asked for, {got} ({endpoint.url}); check the address"
    return f"Kubeflow Pipelines must do as asked, {got} ({endpoint.url}); its own log says more"


def _server_message(body: Any) -> str:
    """What the server itself says, from its JSON error (grpc-gateway: `error` or `message`)."""
    try:
        answer = json.loads(body)
        return _one_line(str(answer.get("error") or answer.get("message") or ""))
    except (ValueError, TypeError, AttributeError):
        return ""


def _one_line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:197] + "..."
