"""Redis reading a basket of keys and writing one, in one script: one thread, an append-only file synced each second."""

import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np

from feature_store.errors import SourceError
from recording.processes import unprivileged
from recording.scaling.protocols import answers, redis_command
from recording.scaling.servers.base import ScalableServer
from recording.workloads.base import Place, RunCommand, StartCommand

_KEYS = 50_000
_VALUE_BYTES = 512
_MEAN_BASKET = 400
_FILL_TIMEOUT_S = 60.0
_FILL = "for key = 0, ARGV[1] - 1 do redis.call('SET', 'key:' .. key, string.rep('v', ARGV[2])) end return 1"
_BASKET = (
    "local found, first, keys = 0, tonumber(ARGV[1]), tonumber(ARGV[3]) for at = first, first + ARGV[2] do "
    "found = found + #redis.call('GET', 'key:' .. (at * 7919) % keys) end "
    "redis.call('SET', 'key:' .. first, string.rep('w', ARGV[4])) return found"
)


class ScalableRedis(ScalableServer):
    """Key-value store with a single thread: more of it means more instances."""

    name: ClassVar[str] = "redis"
    tools: ClassVar[tuple[str, ...]] = ("redis-server",)
    protocol: ClassVar[str] = "redis"
    connections: ClassVar[int] = 32
    most_workers: ClassVar[int] = 1
    request_text: ClassVar[str] = "a script that reads a basket of keys (geometric size, mean 400) and writes one"

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Fills a store; its append-only file is what an instance loads when it starts."""
        (place.home / "data").mkdir(parents=True)
        stop = start(self._daemon(place, place.home / "data"))
        try:
            fill = redis_command("EVAL", _FILL, "0", str(_KEYS), str(_VALUE_BYTES))
            if not answers(self.protocol, place.address, fill, _FILL_TIMEOUT_S):
                raise SourceError("store must be filled before the campaign, got no answer (redis)")
        finally:
            stop()

    def copy(self, home: Path, instance: Path) -> Path:
        """A copy: an instance appends to its file."""
        shutil.copytree(home / "data", instance / "data", symlinks=True)  # a server laid it down: none is followed
        return instance

    def command(self, place: Place, workers: int) -> list[str | Path]:
        """Redis on its copy."""
        return self._daemon(place, place.home / "data")

    def requests(self, random: np.random.Generator, count: int) -> list[bytes]:
        """Baskets of geometric size from a random key on."""
        firsts, sizes = random.integers(0, _KEYS, count), random.geometric(1 / _MEAN_BASKET, count)
        return [redis_command("EVAL", _BASKET, "0", str(first), str(size), str(_KEYS), str(_VALUE_BYTES))
                for first, size in zip(firsts, sizes, strict=True)]

    def _daemon(self, place: Place, folder: Path) -> list[str | Path]:
        return [
            *unprivileged(folder),
            *("redis-server", "--bind", "127.0.0.1", "--port", str(place.port), "--dir", folder, "--daemonize", "no"),
            *("--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"),
        ]
