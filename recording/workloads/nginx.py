"""nginx serving static files from disk, under wrk. Latency: mean response time of a request.

The files do not fit the memory limit of the server's control group and requests are written to an
access log, so that the latency responds to the disk as well as to the CPU.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from recording.loopback import accepts_connections
from recording.nginx_command import nginx_command
from recording.page_cache import drop_from_cache
from recording.workloads.base import (
    Configuration,
    Interval,
    Place,
    RecordedWorkload,
    RunCommand,
    StartCommand,
)
from recording.workloads.wrk import parse_wrk, wrk_command

# Bytes of files for each payload size: three times the largest memory limit would be slow to write,
# and this already misses the cache for most requests at the smaller limits.
_CORPUS_BYTES = 160 * 2**20

_REQUEST = """
local count = {count}
function init(args) math.randomseed(seed) end
function request() return wrk.format("GET", "/" .. math.random(0, count - 1)) end
"""


class Nginx(RecordedWorkload):
    """Static files over HTTP."""

    name: ClassVar[str] = "nginx"
    tools: ClassVar[tuple[str, ...]] = ("nginx", "wrk")

    def ranges(self, profile: str) -> Mapping[str, tuple[float, ...]]:
        """Quota, memory limit (page cache), connections, request rate and file size."""
        if profile == "shifted":
            return {
                "cpu_quota_cores": (0.3, 0.6),
                "memory_mb": (48.0, 96.0),
                "connections": (24.0, 48.0),
                "rate_per_s": (800.0, 1600.0),
                "payload_bytes": (65536.0, 131072.0),
            }
        return {
            "cpu_quota_cores": (0.4, 0.7, 1.0),
            "memory_mb": (48.0, 96.0, 256.0),
            "connections": (4.0, 8.0, 16.0, 32.0),
            "rate_per_s": (100.0, 250.0, 600.0),
            "payload_bytes": (16384.0, 65536.0, 131072.0),
        }

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Writes a corpus of random files for each size."""
        block = os.urandom(2**20)
        for size in sorted({int(size) for profile in ("base", "shifted") for size in self._sizes(profile)}):
            folder = place.home / str(size)
            folder.mkdir(parents=True)
            for index in range(_CORPUS_BYTES // size):
                (folder / str(index)).write_bytes(block[:size])
        os.sync()  # the page cache drops clean pages only

    def memory_limit_mb(self, configuration: Configuration) -> float | None:
        """The page cache that its files may fill; nginx itself needs a few MB."""
        return configuration["memory_mb"]

    def server(self, configuration: Configuration, place: Place) -> list[str | Path]:
        """One worker; the corpus starts out of the page cache."""
        files = place.home / str(int(configuration["payload_bytes"]))
        drop_from_cache(files)
        return nginx_command(place.run, "access_log access.log; sendfile on; "
                                        f"server {{ listen {place.address}; root {files}; }}", files=files)

    def is_ready(self, place: Place) -> bool:
        """Whether it accepts connections."""
        return accepts_connections(place.port)

    def load(self, configuration: Configuration, place: Place) -> list[str | Path] | None:
        """wrk asking for files at random."""
        count = _CORPUS_BYTES // int(configuration["payload_bytes"])
        return wrk_command(
            place.address,
            place.run / "requests.lua",
            _REQUEST.format(count=count),
            int(configuration["connections"]),
            configuration["rate_per_s"],
        )

    def parse(self, log: str) -> list[Interval]:
        """wrk's bursts."""
        return parse_wrk(log)

    def _sizes(self, profile: str) -> tuple[float, ...]:
        return self.ranges(profile)["payload_bytes"]
