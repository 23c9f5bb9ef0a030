"""Groonga's full-text search over HTTP, with queries of two words."""

from pathlib import Path
from typing import ClassVar

import numpy as np

from feature_store.errors import SourceError
from recording.scaling.protocols import answers, http_get
from recording.scaling.servers.base import ScalableServer
from recording.workloads.base import Place, RunCommand, StartCommand
from recording.workloads.search import VOCABULARY, Search

_DOCUMENTS = 20_000
_ANSWER_TIMEOUT_S = 5.0
_QUERY = ("/d/select?table=Documents&match_columns=body&limit=10&sort_keys=-_score&cache=no"
          "&output_columns=_id,_score,body&query={}+OR+{}")


class ScalableSearch(ScalableServer):
    """Full-text search engine; instances share the index, which nobody changes."""

    name: ClassVar[str] = "search"
    tools: ClassVar[tuple[str, ...]] = ("groonga",)
    protocol: ClassVar[str] = "http"
    connections: ClassVar[int] = 32
    most_workers: ClassVar[int] = 2
    request_text: ClassVar[str] = "a query of two words, ten best documents of 20,000"

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Builds the index."""
        Search().make_index(place, run, _DOCUMENTS)

    def command(self, place: Place, workers: int) -> list[str | Path]:
        """Groonga's HTTP server with a thread for each worker."""
        command = Search().server({"table_rows": float(_DOCUMENTS)}, place)
        return [*command[:-1], "-t", str(workers), command[-1]]

    def set_workers(self, place: Place, workers: int, leader: int) -> None:
        """Groonga's command `thread_limit`."""
        if not answers(self.protocol, place.address, http_get(f"/d/thread_limit?max={workers}"), _ANSWER_TIMEOUT_S):
            raise SourceError(f"search engine must accept {workers} threads, got no answer (search)")

    def requests(self, random: np.random.Generator, count: int) -> list[bytes]:
        """Words log-uniform over the ranks, below the few most common ones."""
        first, second = (least * (VOCABULARY / least) ** random.random(count) for least in (3, 30))
        return [http_get(_QUERY.format(f"w{int(one):05d}", f"w{int(two):05d}"))
                for one, two in zip(first, second, strict=True)]
