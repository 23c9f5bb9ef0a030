"""What a server is to the scaling campaign: how an instance is made and started, and what it is asked.

One file per server; recording/scaling/servers/catalogue.py names them all. An instance is one copy of the server with
a control group of its own, what Kubernetes calls a replica.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np

from recording.loopback import accepts_connections
from recording.workloads.base import Place, RunCommand, StartCommand


class ScalableServer(ABC):
    """One server under open-loop load.

    Attributes:
        name: value of the column `server` in the data.
        tools: programs that it needs, keys of recording.tools.PACKAGES.
        protocol: key of recording.scaling.protocols.READERS.
        connections: connections that the load generator holds open to each instance.
        most_workers: worker processes or threads that one instance can use, 1 where it has a single thread.
        request_text: what one request does, for the data card.
    """

    name: ClassVar[str]
    tools: ClassVar[tuple[str, ...]]
    protocol: ClassVar[str]
    connections: ClassVar[int]
    most_workers: ClassVar[int]
    request_text: ClassVar[str]

    @abstractmethod
    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Makes what every instance needs, once per campaign, under `place.home`."""

    def copy(self, home: Path, instance: Path) -> Path:
        """The state that one instance works on: `home` itself where instances share it, or a copy in `instance`."""
        return home

    @abstractmethod
    def command(self, place: Place, workers: int) -> list[str | Path]:
        """Command of one instance, in the foreground, on loopback only, without root's rights (`unprivileged`)."""

    def is_ready(self, place: Place) -> bool:
        """Whether an instance accepts connections."""
        return accepts_connections(place.port)

    def address(self, place: Place) -> str:
        """Where the load generator reaches the instance."""
        return place.address

    @abstractmethod
    def requests(self, random: np.random.Generator, count: int) -> list[bytes]:
        """`count` different requests as they go over the wire, drawn as the server's users draw them."""

    def set_workers(self, place: Place, workers: int, leader: int) -> None:
        """Changes the number of workers of a running instance; only where `most_workers` is above 1.

        Args:
            place: of the instance.
            workers: how many from now on.
            leader: process id of the instance's first process.
        """
        raise NotImplementedError(f"{self.name} has one worker")
