"""A Prometheus server of our own on loopback, in the guard's folder, that scrapes some targets."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import orjson

from feature_store.errors import SourceError
from recording.loopback import ADDRESS, free_port
from recording.processes import Guard
from recording.tools import SEARCH_PATH

_START_S = 30.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is behind no proxy


class LivePrometheus:
    """Runs until the guard ends.

    Attributes:
        url: where it answers.
    """

    def __init__(self, guard: Guard, ports: Sequence[int], interval_s: float) -> None:
        """Starts it.

        Args:
            guard: owns process and folder.
            ports: targets on loopback.
            interval_s: between two scrapes.

        Raises:
            SourceError: it does not answer.
        """
        folder = guard.folder / "prometheus"
        folder.mkdir()
        port, configuration = free_port(), folder / "prometheus.yml"
        interval = f"{round(1000 * interval_s)}ms"
        configuration.write_text(json.dumps({
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [{"job_name": "services",
                                "static_configs": [{"targets": [f"{ADDRESS}:{one}" for one in ports]}]}]}))
        self.url = f"http://{ADDRESS}:{port}"
        self._log = folder / "prometheus.log"
        self._running = guard.start(
            "prometheus",
            ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address={ADDRESS}:{port}", "--log.level=warn"],
            output=self._log, environment={"GOMAXPROCS": "1", "PATH": SEARCH_PATH})

    def await_value(self, query: str, timeout_s: float = _START_S) -> float:
        """The first value that a query has. Raises SourceError: none came."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._running.is_alive():
            found = self.value(query)
            if found is not None:
                return found
            time.sleep(0.2)
        raise SourceError(f"Prometheus must have a value of {query}, got none in {timeout_s:g} s: "
                          f"{Path(self._log).read_text(errors='replace')[-300:]}")

    def value(self, query: str) -> float | None:
        """What a query gives now, None where it gives nothing or nobody answers."""
        try:
            with _OPENER.open(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}",
                              timeout=5) as answer:
                found = orjson.loads(answer.read())["data"]["result"]
        except OSError:
            return None
        return float(found[0]["value"][1]) if found else None

    def series(self, query: str, start_s: float, end_s: float, step_s: float) -> tuple[list[float], list[float]]:
        """Unix times and values of a query that gives one series. Raises SourceError: it gives none or several."""
        asked = urllib.parse.urlencode({"query": query, "start": start_s, "end": end_s, "step": step_s})
        with _OPENER.open(f"{self.url}/api/v1/query_range?{asked}", timeout=30) as answer:
            found = orjson.loads(answer.read())["data"]["result"]
        if len(found) != 1:
            raise SourceError(f"Prometheus must have one series of {query}, got {len(found)}")
        return [float(at) for at, _ in found[0]["values"]], [float(value) for _, value in found[0]["values"]]
