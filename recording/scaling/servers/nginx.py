"""nginx compressing text files: an HTTP front end whose cost is CPU, in proportion to the file's size."""

import os
import signal
from pathlib import Path
from typing import ClassVar

import numpy as np

from recording.nginx_command import nginx_command, write_configuration
from recording.scaling.protocols import http_get
from recording.scaling.servers.base import ScalableServer
from recording.workloads.base import Place, RunCommand, StartCommand

_FILES = 200
# Sizes follow a lognormal law, as those of files on the web do (Crovella and Bestavros, 1997).
_MEDIAN_BYTES = 32_768
_SIGMA = 0.7
_SEED = 1



class ScalableNginx(ScalableServer):
    """Text files over HTTP, compressed for each request."""

    name: ClassVar[str] = "nginx"
    tools: ClassVar[tuple[str, ...]] = ("nginx",)
    protocol: ClassVar[str] = "http"
    connections: ClassVar[int] = 64
    most_workers: ClassVar[int] = 2
    request_text: ClassVar[str] = "GET of a text file (lognormal sizes, median 32 KiB), compressed for each request"

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Writes files of words."""
        place.home.mkdir(parents=True)
        random = np.random.default_rng(_SEED)
        words = [f"{word:x}" for word in random.integers(16, 2**24, 4000)]
        sizes = _MEDIAN_BYTES * np.exp(_SIGMA * random.standard_normal(_FILES))
        for index, size in enumerate(sizes.astype(int)):
            text = " ".join(random.choice(words, size // 4))
            (place.home / f"{index}.txt").write_text(text[:size])

    def command(self, place: Place, workers: int) -> list[str | Path]:
        """nginx in the foreground."""
        return nginx_command(place.run, self._http(place), workers=workers, files=place.home)

    def set_workers(self, place: Place, workers: int, leader: int) -> None:
        """A reload: new workers take over, old ones end once their connections have."""
        write_configuration(place.run, self._http(place), workers=workers)
        os.kill(leader, signal.SIGHUP)

    def requests(self, random: np.random.Generator, count: int) -> list[bytes]:
        """Files at random."""
        files = random.integers(0, _FILES, count)
        return [http_get(f"/{file}.txt", "Accept-Encoding: gzip") for file in files]

    def _http(self, place: Place) -> str:
        # Each worker has a listening socket of its own (reuseport): of connections that come at once one worker would
        # take all.
        return f"""access_log off;
  gzip on; gzip_comp_level 6; gzip_types text/plain; default_type text/plain;
  server {{ listen {place.address} reuseport; root {place.home}; }}"""
