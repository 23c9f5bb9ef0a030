"""A live service whose number of instances may change: a proxy in front, and time to start for each further one.

The first instances are there from the beginning. One that is asked for later starts after `start_up_s`, drawn anew for
each, which stands for what an image pull and a warm-up take elsewhere; it serves once it answers. One that goes is
drained first. What of it can be asked for at any time: `scale`, `set_quota`.
"""

import threading
import time
from pathlib import Path
from typing import Self

import numpy as np

from recording.control_groups import ControlGroups
from recording.live.proxy import Proxy
from recording.live.service import TIMEOUT_S, LiveService
from recording.processes import Guard
from recording.scaling.plan import Deployment

_LOOK_S = 0.1


class ReplicatedService(LiveService):
    """A `LiveService` behind a proxy, whose further instances take time to start."""

    def __init__(self, guard: Guard, groups: ControlGroups, home: Path, name: str, deployment: Deployment,
                 memory_mib: float, most: int, start_up_s: tuple[float, float], seed: int) -> None:
        """Args:
        most: instances, at most.
        start_up_s: least and most time from when an instance is asked for until it is started, s.
        seed: of these times: the k-th start of two services with the same seed takes equally long.
        """
        super().__init__(guard, groups, home, name, deployment, memory_mib)
        self._most, self._start_up_s, self._random = most, start_up_s, np.random.default_rng(seed)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._asked, self._due = deployment.instances, list[float]()  # due: when those that were asked for start
        self._tending = threading.Thread(target=self._tend, name=f"{name}-instances", daemon=True)
        self._serving = 0  # instances behind the proxy, the first ones of all
        self._failure: Exception | None = None
        self._proxy: Proxy | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            each = self._live.server.connections
            self._proxy = Proxy(self._guard, self.name, self._most, each)
            self._proxy_address, self._connections = self._proxy.address, self._most * each
            for number, one in enumerate(self._live.instances):
                self._proxy.serve(number, one.place.port)
            self._serving = len(self._live.instances)
            self._tending.start()
        except BaseException:
            super().__exit__()
            raise
        return self

    def __exit__(self, *arguments: object) -> None:
        self._ended.set()
        self._tending.join()
        super().__exit__(*arguments)

    @property
    def asked(self) -> int:
        """Instances that were asked for last."""
        return self._asked

    @property
    def ready(self) -> int:
        """Instances that serve."""
        return self._serving

    @property
    def quota_cores(self) -> float:
        """CPU quota of each instance, cores."""
        return self._live.quota_cores

    def scale(self, instances: int) -> None:
        """Asks for so many instances; what was asked for last counts. Raises ValueError: fewer than 1, or too many."""
        if not 1 <= instances <= self._most:
            raise ValueError(f"instances must be from 1 to {self._most}, got {instances} ({self.name})")
        with self._lock:
            self._asked = instances
            del self._due[max(0, instances - self.ready):]
            while self.ready + len(self._due) < instances:
                self._due.append(time.monotonic() + float(self._random.uniform(*self._start_up_s)))
            self._tell(instances, self.ready)

    def set_quota(self, cores: float) -> None:
        """Changes the CPU quota of every instance, and of those that start later."""
        with self._lock:
            self._live.set_quota(cores)

    def require_alive(self) -> None:
        """See `LiveService`; also raises what starting or stopping an instance has raised."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            super().require_alive()

    def _tend(self) -> None:
        while not self._ended.wait(_LOOK_S):
            try:
                while self.ready > self._asked:
                    self._remove_newest()
                with self._lock:
                    now = time.monotonic()
                    late, self._due = [due for due in self._due if due <= now], [due for due in self._due if due > now]
                    for _ in late:
                        self._add()
            except Exception as error:
                self._failure = error
                return

    def _add(self) -> None:
        assert self._proxy is not None
        one = self._live.start_instance()
        self._live.await_answer(one)
        self._proxy.serve(self._serving, one.place.port)
        self._serving += 1
        self._tell(self._asked, self.ready)

    def _remove_newest(self) -> None:
        """Drains it without holding anybody up, then stops it."""
        assert self._proxy is not None
        with self._lock:
            if self.ready <= self._asked:  # asked for again meanwhile
                return
            self._serving -= 1
            self._tell(self._asked, self.ready)
        self._proxy.drain(self.ready, TIMEOUT_S)  # the one after those that serve
        with self._lock:
            self._live.stop_instance()
