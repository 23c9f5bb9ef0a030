"""Redis with an append-only file synced at every write, under redis-benchmark. Latency: mean of a query.

A query is a read-modify-write of one key (YCSB's workload F in one round trip).
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from recording.loopback import accepts_connections
from recording.processes import unprivileged
from recording.stamped_log import split_stamped
from recording.workloads.base import (
    Configuration,
    Interval,
    Place,
    RecordedWorkload,
    RunCommand,
    StartCommand,
)

_SCRIPT = (
    "local old = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return old and #old or 0"
)
# redis-benchmark has no rate: it sends a burst of rate * pause requests, then waits for the pause.
_PAUSE_S = 0.25

# End of a line of `redis-benchmark --csv`: requests per second, then mean, min, p50, p95, p99, max in ms.
_RESULT = re.compile(r'"(\d+\.\d+)","(\d+\.\d+)"(?:,"\d+\.\d+"){5}$')
_BURST = re.compile(r"^burst requests=(\d+)$")


class Redis(RecordedWorkload):
    """Key-value store."""

    name: ClassVar[str] = "redis"
    tools: ClassVar[tuple[str, ...]] = ("redis-server", "redis-benchmark")

    def ranges(self, profile: str) -> Mapping[str, tuple[float, ...]]:
        """Quota, `maxmemory`, connections, request rate, number of keys and size of a value."""
        if profile == "shifted":
            return {
                "cpu_quota_cores": (0.3, 0.6),
                "memory_mb": (48.0, 64.0),
                "connections": (24.0, 48.0),
                "rate_per_s": (3000.0, 8000.0),
                "table_rows": (100000.0,),
                "payload_bytes": (1024.0,),
            }
        return {
            "cpu_quota_cores": (0.4, 0.7, 1.0),
            "memory_mb": (64.0, 128.0),
            "connections": (4.0, 8.0, 16.0, 32.0),
            "rate_per_s": (500.0, 1500.0, 4000.0),
            "table_rows": (10000.0, 100000.0),
            "payload_bytes": (128.0, 1024.0),
        }

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Nothing: each combination starts with an empty store."""

    def memory_limit_mb(self, configuration: Configuration) -> float | None:
        """None: its own `maxmemory` limits it, a control group would kill it instead."""
        return None

    def server(self, configuration: Configuration, place: Place) -> list[str | Path]:
        """Every write is synced to the append-only file before it is answered."""
        return [
            *unprivileged(place.run),
            *("redis-server", "--bind", "127.0.0.1", "--port", str(place.port), "--dir", place.run),
            *("--daemonize", "no", "--save", "", "--appendonly", "yes", "--appendfsync", "always"),
            *("--maxmemory", f"{int(configuration['memory_mb'])}mb", "--maxmemory-policy", "allkeys-lru"),
        ]

    def is_ready(self, place: Place) -> bool:
        """Whether it accepts connections."""
        return accepts_connections(place.port)

    def load(self, configuration: Configuration, place: Place) -> list[str | Path] | None:
        """redis-benchmark in bursts with pauses."""
        requests = max(100, int(configuration["rate_per_s"] * _PAUSE_S))
        benchmark = shlex.join(
            [
                *("redis-benchmark", "-h", "127.0.0.1", "-p", str(place.port), "--csv"),
                *("-c", str(int(configuration["connections"])), "-n", str(requests)),
                *("-r", str(int(configuration["table_rows"])), "eval", _SCRIPT, "1", "key:__rand_int__"),
                "v" * int(configuration["payload_bytes"]),
            ]
        )
        # Only the result line, without the command in it: with the value it would fill the log.
        shorten = r"""sed -n 's/.*\("[0-9.]*"\(,"[0-9.]*"\)\{6\}\)$/\1/p'"""
        loop = f"while echo burst requests={requests} && {benchmark} | {shorten}; do sleep {_PAUSE_S}; done"
        return ["/bin/sh", "-c", loop]

    def parse(self, log: str) -> list[Interval]:
        """redis-benchmark's bursts."""
        return parse_redis_benchmark(log)


def parse_redis_benchmark(log: str) -> list[Interval]:
    """One interval for each burst: its request count is announced, its result line gives rate and mean."""
    intervals = []
    requests = 0
    for stamp, line in split_stamped(log):
        if match := _BURST.match(line):
            requests = int(match[1])
        elif (match := _RESULT.search(line)) and requests > 0 and float(match[1]) > 0:
            intervals.append(Interval(stamp - requests / float(match[1]), stamp, requests, float(match[2])))
            requests = 0
    return intervals
