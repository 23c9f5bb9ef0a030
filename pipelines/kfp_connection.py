"""The connection to Kubeflow Pipelines: where it is, a client that cannot hang, and its failures in one line.

Used by pipelines/cluster.py alone. `kfp.Client` (2.17.0) has no options for what follows, so it is changed, through
public names alone:
  its method get_kfp_healthz        repeats a failed health check five times, with five seconds and a traceback each
  its ApiClient's method request    passes no timeout on (a server that accepts and never answers would hold it for
                                    ever); where TLS fails, the caller stumbles over the missing body (AttributeError);
                                    of an HTML page (a login) it makes an object without a single value
  its ApiClient's rest_client       made anew, because `retries` of the configuration counts only then: urllib3 tries
                                    three times more
The ApiClient is reached as the owner of a generated method (`client.healthzs`). Links that the client prints, which
would spoil `--json`, are swallowed.
"""

import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping
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
    """The endpoint from `--endpoint`, else $ASSAY_KFP_ENDPOINT.

    Token, a user's namespace and the authority's file come from $ASSAY_KFP_TOKEN, $ASSAY_KFP_NAMESPACE and
    $ASSAY_KFP_CA_FILE.

    Raises:
        InputError: neither is given, it is no http address, or the authority's file is missing.
    """
    url = (option or environment.get(ENDPOINT_VARIABLE) or "").strip().rstrip("/")
    if not url:
        raise InputError(
            "Kubeflow Pipelines: expected its address, got none; pass --endpoint URL or set "
            f"{ENDPOINT_VARIABLE} (without a cluster: --local)"
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(
            f"Kubeflow Pipelines: expected an http:// or https:// address, got {url!r}; "
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
        raise InputError(f"{CA_VARIABLE}: expected the path of a file, got {ca_file!r}")
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
            f"Kubeflow Pipelines: expected an answer that kfp understands, got {_one_line(str(error))} ({endpoint.url})"
        ) from error


def _client(endpoint: Endpoint) -> Any:
    """A `kfp.Client` with a timeout on every request and no repetitions; see the module's docstring."""
    import kfp

    class BoundedClient(kfp.Client):
        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            """The constructor calls it, before anything could be set from outside."""
            get = self.healthzs.healthz_service_get_healthz
            _bound(get.__self__.api_client, endpoint)
            return get()

    client = BoundedClient(
        host=endpoint.url,
        existing_token=endpoint.token,
        ssl_ca_cert=endpoint.ca_file,
        # kfp's own default; any other value is taken as the user's namespace.
        namespace=endpoint.namespace or "kubeflow",
    )
    _bound(client.healthzs.healthz_service_get_healthz.__self__.api_client, endpoint)
    return client


def _bound(api_client: Any, endpoint: Endpoint) -> None:
    """Gives every request through the generated client a timeout, one try, and a look at its answer."""
    import kfp_server_api
    from kfp_server_api.rest import RESTClientObject

    api_client.configuration.retries = False
    api_client.rest_client = RESTClientObject(api_client.configuration)

    def request(*arguments: Any, **options: Any) -> Any:
        # A pair, because the generated client ignores a float.
        options["_request_timeout"] = (endpoint.timeout_s, endpoint.timeout_s)
        try:
            response = kfp_server_api.ApiClient.request(api_client, *arguments, **options)
        except kfp_server_api.ApiException as error:
            if error.body is not None:
                raise
            raise SourceError(
                "Kubeflow Pipelines: expected a certificate that is trusted here, got "
                f"{_one_line(str(error.reason))} ({endpoint.url}); set {CA_VARIABLE} to its authority's file"
            ) from error
        kind = response.getheader("Content-Type") or "nothing"
        if "json" not in kind:
            raise SourceError(
                f"Kubeflow Pipelines: expected an answer in JSON, got {kind} ({endpoint.url}); check that the "
                f"address is its own and not that of a login page, or set {TOKEN_VARIABLE}"
            )
        return response

    api_client.request = request


def _no_answer(error: Exception, endpoint: Endpoint) -> str:
    """A request that got no answer at all, as one line that says what to do."""
    import urllib3

    # A refused connection is a kind of timeout to some versions of urllib3.
    refused = isinstance(error, urllib3.exceptions.NewConnectionError)
    if isinstance(error, urllib3.exceptions.TimeoutError) and not refused:
        return (
            f"Kubeflow Pipelines: expected an answer within {endpoint.timeout_s} s, got none ({endpoint.url}); "
            "what was asked for may still happen: look at the list before you try again"
        )
    # urllib3 begins with the connection object and its address in memory.
    got = _one_line(re.sub(r"<[^>]*>: ", "", str(error)))
    return (
        f"Kubeflow Pipelines: expected to reach it, got {got} ({endpoint.url}); check the address, "
        "for example after kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80"
    )


def _refusal(error: Any, endpoint: Endpoint) -> str:
    """An HTTP status that is no success, as one line that says what to do."""
    said = _server_message(error.body)
    got = f"got {error.status} {_one_line(str(error.reason))}" + (f": {said}" if said else "")
    if error.status in (401, 403):
        return (
            f"Kubeflow Pipelines: expected to be let in, {got} ({endpoint.url}); set {TOKEN_VARIABLE} to a "
            f"token and, in a multi-user installation, {NAMESPACE_VARIABLE}"
        )
    if error.status is not None and 300 <= error.status < 400:
        return (
            f"Kubeflow Pipelines: expected its own answer, {got} ({endpoint.url}); a login stands before it: give "
            f"the address of the API, or set {TOKEN_VARIABLE}"
        )
    if error.status == 404:
        return f"Kubeflow Pipelines: expected to find what was asked for, {got} ({endpoint.url}); check the address"
    return f"Kubeflow Pipelines: expected success, {got} ({endpoint.url}); its own log says more"


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
