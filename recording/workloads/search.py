"""Groonga's full-text search over HTTP, which stands for the paper's Solr. Latency: mean of a query.

The corpus is synthetic text whose words follow Zipf's law, as words of natural languages do.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from recording.loopback import accepts_connections
from recording.page_cache import drop_from_cache
from recording.processes import unprivileged
from recording.workloads.base import (
    Configuration,
    Interval,
    Place,
    RecordedWorkload,
    RunCommand,
    StartCommand,
)
from recording.workloads.wrk import parse_wrk, wrk_command

VOCABULARY = 20_000
_WORDS_PER_DOCUMENT = 50
_ZIPF_EXPONENT = 1.2
_CORPUS_SEED = 1

_SCHEMA = """table_create Documents TABLE_NO_KEY
column_create Documents body COLUMN_SCALAR ShortText
table_create Terms TABLE_PAT_KEY ShortText --default_tokenizer TokenDelimit --normalizer NormalizerAuto
column_create Terms body_index COLUMN_INDEX|WITH_POSITION Documents body
"""

# One word, log-uniform over the ranks below the few most common ones, and one of any rank.
_REQUEST = """
local words = {words}
function init(args) math.randomseed(seed) end
local function word(least)
  return string.format("w%05d", math.floor(least * math.exp(math.random() * math.log(words / least))))
end
function request()
  return wrk.format("GET", "/d/select?table=Documents&match_columns=body&limit=10&sort_keys=-_score&cache=no"
    .. "&output_columns=_id,_score,body&query=" .. word(3) .. "+OR+" .. word(30))
end
"""


class Search(RecordedWorkload):
    """Full-text search engine."""

    name: ClassVar[str] = "search"
    tools: ClassVar[tuple[str, ...]] = ("groonga", "wrk")

    def ranges(self, profile: str) -> Mapping[str, tuple[float, ...]]:
        """Quota, memory limit (page cache), connections, query rate and number of documents."""
        if profile == "shifted":
            return {
                "cpu_quota_cores": (0.4, 0.7),
                "memory_mb": (80.0, 128.0),
                "connections": (6.0, 8.0),
                "rate_per_s": (200.0, 400.0),
                "table_rows": (20000.0,),
            }
        return {
            "cpu_quota_cores": (0.4, 0.7, 1.0),
            "memory_mb": (80.0, 128.0, 256.0),
            "connections": (2.0, 4.0, 8.0),
            "rate_per_s": (30.0, 80.0, 200.0),
            "table_rows": (10000.0, 20000.0),
        }

    def prepare(self, place: Place, run: RunCommand, start: StartCommand) -> None:
        """Builds an index for each number of documents."""
        sizes = {int(rows) for profile in ("base", "shifted") for rows in self.ranges(profile)["table_rows"]}
        for rows in sorted(sizes):
            self.make_index(place, run, rows)

    def make_index(self, place: Place, run: RunCommand, rows: int) -> None:
        """Builds an index of `rows` documents."""
        folder = place.home / str(rows)
        folder.mkdir(parents=True)
        commands = place.home / f"{rows}.grn"
        commands.write_text(_SCHEMA + _load_command(rows))
        run(["groonga", "-n", folder / "db", "quit"])
        run(["groonga", "--file", commands, folder / "db"])
        commands.unlink()
        os.sync()  # the page cache drops clean pages only

    def memory_limit_mb(self, configuration: Configuration) -> float | None:
        """The page cache that its index may fill, and what it allocates beside."""
        return configuration["memory_mb"]

    def server(self, configuration: Configuration, place: Place) -> list[str | Path]:
        """Groonga's HTTP server; the index starts out of the page cache."""
        folder = place.home / str(int(configuration["table_rows"]))
        drop_from_cache(folder)
        return [
            # It loads any library for whoever asks it to (plugin_register).
            *unprivileged(folder),
            *("groonga", "-s", "--protocol", "http", "--bind-address", "127.0.0.1", "-p", str(place.port)),
            *("--log-path", "/dev/null", "--working-directory", folder, folder / "db"),
        ]

    def is_ready(self, place: Place) -> bool:
        """Whether it accepts connections."""
        return accepts_connections(place.port)

    def load(self, configuration: Configuration, place: Place) -> list[str | Path] | None:
        """wrk with queries of two words."""
        return wrk_command(
            place.address,
            place.run / "requests.lua",
            _REQUEST.format(words=VOCABULARY),
            int(configuration["connections"]),
            configuration["rate_per_s"],
        )

    def parse(self, log: str) -> list[Interval]:
        """wrk's bursts."""
        return parse_wrk(log)


def _load_command(rows: int) -> str:
    """Groonga's `load` command for `rows` documents of Zipf-distributed words."""
    random = np.random.default_rng(_CORPUS_SEED)
    weights = np.arange(1, VOCABULARY + 1, dtype=float) ** -_ZIPF_EXPONENT
    words = random.choice(VOCABULARY, size=(rows, _WORDS_PER_DOCUMENT), p=weights / weights.sum())
    documents = (json.dumps({"body": " ".join(f"w{word:05d}" for word in row)}) for row in words)
    return "load --table Documents\n[\n" + ",\n".join(documents) + "\n]\n"
