"""Calls of the Prometheus HTTP API: one request with a time limit, retries, and complete answers only.

API: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import ipaddress
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import numpy as np
import numpy.typing as npt
import orjson
import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

from feature_store.errors import InputError, SourceError

_FIRST_BACKOFF_S = 0.25
_READ_BYTES = 2**20
_NO_NUMBER = re.compile(r"[^0-9.,+\-eENaInf]")  # what is in no value that Prometheus writes
_RETRIED_STATUS = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Series:
    """One time series of an answer.

    Attributes:
        labels: its labels by name.
        times_s: Unix times, s, ascending.
        values: value at each time.
    """

    labels: dict[str, str]
    times_s: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


def shown_address(url: str) -> str:
    """A server's address without user, password and query: for messages, commands and evidence.

    Of one that is not well-formed only what follows the last @, for where its password ends nobody knows.
    """
    if (parts := _parts(url)) is None:
        return url.rpartition("@")[2].partition("?")[0]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _parts(url: str) -> SplitResult | None:
    """None where it is no address of a server."""
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        well_formed = well_formed and not _may_hold_a_password(parts)
    except ValueError:
        return None
    return parts if well_formed else None


def _may_hold_a_password(parts: SplitResult) -> bool:
    """Whether host, port and path may be a user, a password with a / in it, and a server behind the @ of the path."""
    user, _, server = parts.netloc.rpartition("@")
    _, at, behind = parts.path.rpartition("@")
    if not at or ":" in user:  # its password ends before the host
        return False
    host = behind.partition("/")[0]
    return server.endswith(":") or (parts.port is not None and (":" in host or "." in host or host == "localhost"))


class PrometheusApi:
    """The query endpoints of one server. Safe to use from several threads."""

    def __init__(self, url: str, timeout_s: float, retries: int) -> None:
        """Args:
            url: base address, `http(s)://[user:password@]host[:port][/prefix]`.
            timeout_s: time limit of one request as a whole, s.
            retries: how often a request is repeated after a failure that may pass.

        Raises:
            InputError: where one of them is unusable.
        """
        parts = _parts(url)
        if parts is None:
            raise InputError("URL must be http(s)://[user:password@]host[:port][/path], with %2F for / in a password "
                             f"and %40 for @ in a path, got {shown_address(url)!r} (Prometheus)")
        if not timeout_s > 0:
            raise InputError(f"timeout_s must be positive, got {timeout_s!r} (Prometheus)")
        if retries < 0:
            raise InputError(f"retries must be 0 or more, got {retries!r} (Prometheus)")
        self._url = url.rstrip("/")
        self.address = shown_address(self._url)  # for messages
        self._timeout_s = timeout_s
        self._retries = retries
        self._sessions = _Sessions()
        self._is_loopback = _is_loopback(parts.hostname or "")

    def series(self, endpoint: str, parameters: Mapping[str, str]) -> list[Series]:
        """The series that `query` or `query_range` answers with.

        Raises:
            SourceError: where the server does not answer, refuses, or answers in part.
        """
        where = f"{self.address}, {endpoint}"
        problem = ""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(_FIRST_BACKOFF_S * 2 ** (attempt - 1))
            try:
                status, body = self._exchange(endpoint, parameters)
            except (requests.Timeout, ReadTimeoutError):
                problem = f"none within {self._timeout_s:g} s"
                continue
            except (requests.RequestException, HTTPError) as error:
                problem = type(error).__name__
                continue
            if status in _RETRIED_STATUS:
                problem = f"HTTP {status}: {_message(body)}"
                continue
            if status != 200:
                raise SourceError(f"answer must be HTTP 200, got {status}: {_message(body)} ({where})")
            return _parse_series(_data(body, where), where)
        tries = f"{self._retries + 1} tries" if self._retries else "1 try"
        raise SourceError(f"server must answer, got {problem} after {tries} ({where})")

    def _exchange(self, endpoint: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        """One request; returns status and body."""
        deadline = time.monotonic() + self._timeout_s
        session = self._sessions.of_this_thread(self._is_loopback)
        with session.get(
            f"{self._url}/api/v1/{endpoint}", params=parameters, timeout=self._timeout_s, stream=True
        ) as answer:
            parts = []
            # Read as it arrives: the library's own limit starts again with each byte.
            while part := answer.raw.read1(_READ_BYTES, decode_content=True):
                parts.append(part)
                if time.monotonic() > deadline:
                    raise requests.Timeout
            return answer.status_code, b"".join(parts)


class _Sessions(threading.local):
    """One HTTP session for each thread: a session is not safe to share."""

    session: requests.Session | None = None

    def of_this_thread(self, is_loopback: bool) -> requests.Session:
        if self.session is None:
            self.session = requests.Session()
            if is_loopback:
                # No proxy of the environment leads to this machine's own loopback, and compressing costs
                # more there than it saves.
                self.session.trust_env = False
                self.session.headers["Accept-Encoding"] = "identity"
        return self.session


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _message(body: bytes) -> str:
    """The error in an answer, or the start of whatever else came."""
    try:
        return str(orjson.loads(body)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return repr(body[:80].decode("utf-8", "replace"))


def _data(body: bytes, where: str) -> dict[str, Any]:
    """The data of an answer that is complete and well-formed."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise SourceError(f"answer must be JSON, got {error} ({where})") from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise SourceError(f"answer must have status success, got {_message(body)} ({where})")
    if answer.get("warnings"):
        raise SourceError(f"answer must be complete, got warnings {answer['warnings']} ({where})")
    # VictoriaMetrics says it here instead of in `warnings`.
    if answer.get("isPartial"):
        raise SourceError(f"answer must be complete, got a partial one ({where})")
    data = answer.get("data")
    if not isinstance(data, dict) or "result" not in data:
        raise SourceError(f"answer must have a result, got {_message(body)} ({where})")
    return data


def _parse_series(data: dict[str, Any], where: str) -> list[Series]:
    kind, result = data.get("resultType"), data["result"]
    try:
        match kind:
            case "matrix":
                return [Series(one["metric"], *_points(one["values"])) for one in result]
            case "vector":
                times, values = _points([one["value"] for one in result])  # at once: there may be thousands of series
                return [Series(one["metric"], times[at:at + 1], values[at:at + 1]) for at, one in enumerate(result)]
            case "scalar":
                return [Series({}, *_points([result]))]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise SourceError(f"series must be lists of [time, value], got {error!r} ({where})") from None
    raise SourceError(f"result must be a matrix, a vector or a scalar, got {kind!r} ({where})")


def _points(points: list[list[Any]]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Times and values as arrays; the loops run in C, there may be millions of points."""
    count = len(points)
    if odd := _NO_NUMBER.search(",".join(map(itemgetter(1), points))):  # such as 1_000, which Python takes for a number
        raise ValueError(f"a value with {odd[0]!r} in it")
    if others := {type(point[0]) for point in points} - {int, float}:
        raise TypeError(f"a time of type {others.pop().__name__}")
    times = np.fromiter(map(itemgetter(0), points), np.float64, count)
    values = np.fromiter(map(float, map(itemgetter(1), points)), np.float64, count)
    return times, values
