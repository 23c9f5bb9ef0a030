"""Starts the whole application on this host and stops it: databases, services, nginx, relays.

Everything listens on loopback behind a relay of its own (relay.py), so that its network can be slowed, and runs in a
control group of its own (containers.py).
"""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

from feature_store.errors import SourceError
from recording.loopback import ADDRESS, accepts_connections, free_port
from recording.nginx_command import nginx_command
from recording.preparation import START_TIMEOUT_S, STOP_GRACE_S, Prepare, prepare_state
from recording.processes import Guard, Running
from recording.scaling.generator import python_environment
from recording.scaling.protocols import answers, http_get
from recording.scaling.servers.redis import ScalableRedis
from recording.tools import ENVIRONMENT
from recording.workloads.base import Place
from recording.workloads.mysql import MySQL
from systems.microservices.application.containers import Containers
from systems.microservices.application.graph import ENTRY, FRONT, REQUESTS, SERVICES, STORES, TABLE_ROWS
from systems.microservices.application.relay import Relay

TOOLS = ("nginx", "redis-server", "mariadbd", "sysbench", "stress-ng")
_BUFFER_MB = 8.0  # less than the table, so that reads come to the disk
_PROGRAM = "systems.microservices.application.service"


def prepare_stores(guard: Guard) -> dict[str, Path]:
    """Fills the databases and returns where they lie. Raises SourceError as `prepare_state` does."""
    prepare: dict[str, Prepare] = {
        "redis": ScalableRedis().prepare, "mariadb": partial(MySQL().make_tables, tables=1, rows=TABLE_ROWS)}
    is_ready = {"redis": ScalableRedis().is_ready, "mariadb": MySQL().is_ready}
    return {name: prepare_state(guard, name, prepare[name], is_ready[name]) for name in STORES}


class Application:
    """The application while it runs; a context manager.

    Attributes:
        containers: its control groups, by the service's name.
        running: its processes, by the service's name.
        relay: what stands in front of each service.
        address: where requests from outside go to.
    """

    def __init__(self, guard: Guard, homes: Mapping[str, Path], traces: str) -> None:
        """Args:
        guard: owns its processes and folders.
        homes: of the databases.
        traces: address that takes the services' traces.
        """
        self.guard, self._homes, self._traces = guard, homes, traces
        self.containers = Containers(guard, guard.folder)
        self.relay = Relay()
        self.running: dict[str, Running] = {}
        self._groups: dict[str, tuple[Path, ...]] = {}
        self._beside: list[Running] = []
        self.folder = guard.folder / "application"
        self._places: dict[str, Place] = {}
        self._leaving = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as leaving:
            leaving.callback(self.containers.remove_all)
            leaving.enter_context(self.relay)
            leaving.callback(self._stop)
            self._start()
            self._leaving = leaving.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.close()

    def start_beside(self, name: str, command: list[str]) -> Running:
        """Starts a program in the control group of a service."""
        running = self.guard.start(f"beside {name}", command, output=self.folder / f"beside-{name}.log",
                                   groups=self._groups[name], environment=ENVIRONMENT)
        self._beside.append(running)
        return running

    def stop_beside(self, running: Running) -> None:
        """Ends a program that `start_beside` started."""
        self.guard.stop([running], grace_s=0)
        self._beside.remove(running)

    def require_alive(self) -> None:
        """Raises SourceError, with the end of its output, where a service has ended by itself."""
        for name, running in self.running.items():
            if not running.is_alive():
                output = (self.folder / f"{name}.log").read_text(errors="replace")[-300:]
                raise SourceError(f"service must keep running, but it ended ({name}): {output}")

    def _start(self) -> None:
        self.folder.mkdir()
        for name in SERVICES:
            run = self.folder / name
            run.mkdir()
            home = self._homes.get(name, run)
            self._places[name] = Place(home, run, free_port())
        relayed = {name: f"{ADDRESS}:{self.relay.add(name, place.port)}" for name, place in self._places.items()}
        self.address = relayed[FRONT]
        for name, place in self._places.items():
            (place.run / "addresses.json").write_text(json.dumps(relayed))
            (place.run / "traces").write_text(self._traces)
            self._groups[name] = self.containers.make(name)
        for name in SERVICES:
            self.running[name] = self.guard.start(
                name, self._command(name, relayed), output=self.folder / f"{name}.log", groups=self._groups[name],
                environment=python_environment() if SERVICES[name].kernel else ENVIRONMENT)
        self._await_answers()
        for name, service in SERVICES.items():  # not earlier: they start at full speed
            self.containers.limit_cpu(name, service.cpu_limit_cores)

    def _command(self, name: str, relayed: Mapping[str, str]) -> list[str | Path]:
        place = self._places[name]
        if name == "redis":
            return ScalableRedis().command(place, 1)
        if name == "mariadb":
            # Its relay needs a port; whoever logs in there acts as no more than the server's account.
            return [*MySQL().server({"memory_mb": _BUFFER_MB}, place),
                    *("--skip-networking=OFF", f"--bind-address={ADDRESS}", f"--port={place.port}")]
        if name == FRONT:
            return nginx_command(place.run, f"""access_log off;
  upstream entry {{ server {relayed[ENTRY]}; keepalive 128; }}
  server {{
    listen {place.address} backlog=1024;
    location / {{ proxy_pass http://entry; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}""", connections=1024)
        return [sys.executable, "-m", _PROGRAM, name, str(place.port), place.run]

    def _await_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(accepts_connections(place.port) for place in self._places.values()):
            self._give_up_after(deadline, "every service")
        for request in REQUESTS:
            while not answers("http", self.address, http_get(f"/{request}"), 2.0):
                self._give_up_after(deadline, f"a request {request}")

    def _give_up_after(self, deadline: float, what: str) -> None:
        self.require_alive()
        if time.monotonic() > deadline:
            raise SourceError(f"application must answer within {START_TIMEOUT_S:g} s of its start, got none of {what}")
        time.sleep(0.1)

    def _stop(self) -> None:
        self.guard.stop(self._beside, grace_s=0)  # no control group goes while something is in it
        self.guard.stop(list(self.running.values()), grace_s=STOP_GRACE_S)
