"""Starts the service as an operator asked for it, and runs it to its end: what every `assay serve` does."""

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from feature_store.errors import InputError, MissingToolError
from models.configuration import Configuration
from serving.control.run import stops_on_signals
from serving.control.start import POLL_S
from serving.predictions.champions import Champions, Models, models_of_folders
from serving.predictions.tls import Tls
from serving.state_folder import StateFolder

_OWN = ("serving", "feature_store", "models")  # packages whose absence is no missing extra


@dataclass(frozen=True)
class ServeRequest:
    """What an operator asks for; see the options of `assay serve`.

    Attributes:
        task: None: all.
        workloads: (): all.
        bundles: folders that are served in place of the ledger's champions.
        folder: where what was seen of the ledger, and what was served, is kept; None: nowhere.
        extender: file of a Kubernetes scheduler's extender; None: there is none.
        max_body: bytes.
        max_rate: requests a second; None: any number.
        poll: seconds between two looks at the ledger.
        tls_certificate, tls_key: files; None: answers in the clear.
        tls_client_ca: whose issue a client's certificate must be; None: none is asked for.
    """

    task: str | None = None
    workloads: tuple[str, ...] = ()
    bundles: tuple[Path, ...] = ()
    folder: Path | None = None
    extender: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    max_body: int = 4_000_000
    max_rate: float | None = None
    poll: float = POLL_S
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None


def serve(request: ServeRequest, state: Configuration | StateFolder, tell: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        state: whose ledger says who is champion, and whose key signed the bundles.
        tell: called with a line for every change of what is served, and one for the address; where it fails the service
            goes on.

    Raises:
        InputError: an option, a file or the address is unusable.
        MissingToolError: the extra is not installed.
        AssayError: there is no model that can be served.
    """
    if request.bundles and (request.workloads or request.task or request.folder):
        raise InputError("--bundle must be given without --task, --workload and --folder, which are of the ledger")
    for name, value in (("max-body", request.max_body), ("max-rate", request.max_rate), ("poll", request.poll)):
        if value is not None and not 1e-6 <= value < math.inf:
            raise InputError(f"--{name} must be a number above 0, 1e-6 at least, got {value!r}")
    server, stopped, tell = _server(), stops_on_signals(), _harmless(tell)
    tls = _tls(request, tell, stopped)
    models, unseen_s = _models(request, state, tell, stopped)
    extender = None if request.extender is None else server.read_extender(request.extender, models, tell, stopped)
    with server.listen(request.host, request.port) as sock:
        host = f"[{request.host}]" if ":" in request.host else request.host
        scheme = "http" if tls is None else "https"
        tell(f"serving {', '.join(models())} at {scheme}://{host}:{sock.getsockname()[1]}")
        if not stopped.is_set():
            server.run(sock, models, unseen_s, request.max_body, request.max_rate, extender, tls)
    stopped.set()


def _harmless(tell: Callable[[str], None]) -> Callable[[str], None]:
    def told(line: str) -> None:
        with suppress(Exception, SystemExit):  # a full disk or a closed pipe behind the output, where rich exits
            tell(line)

    return told


def _tls(request: ServeRequest, tell: Callable[[str], None], stopped: threading.Event) -> Tls | None:
    if request.tls_certificate is None and request.tls_key is None and request.tls_client_ca is None:
        return None
    if request.tls_certificate is None or request.tls_key is None:
        raise InputError("--tls-certificate and --tls-key must be given together, got one of them or --tls-client-ca "
                         "alone")
    tls = Tls(request.tls_certificate, request.tls_key, request.tls_client_ca, tell)
    tls.follow(stopped)
    return tls


def _models(request: ServeRequest, state: Configuration | StateFolder, tell: Callable[[str], None],
            stopped: threading.Event) -> tuple[Models, Callable[[], float]]:
    """The models, and seconds since the ledger was looked at."""
    if request.bundles:
        fixed = models_of_folders(request.bundles, state.public_key_path)
        return lambda: fixed, lambda: math.nan
    champions = Champions(state, tell, request.task, request.workloads, request.folder)
    champions.follow(request.poll, stopped)
    return champions, lambda: champions.unseen_s


def _server() -> ModuleType:
    try:
        from serving.predictions import server
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in _OWN:
            raise
        raise MissingToolError(f"assay serve needs the package `{error.name}`, which is not installed; install it with "
                               "`pip install 'assay-serving[serve]'`") from error
    return server
