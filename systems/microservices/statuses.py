"""Says each second of every service what coordinator.py needs to know, from live traces and control groups.

    python -m systems.microservices.statuses statuses.yaml [--seconds 600]

    port: 4318                        # takes OTLP over HTTP, on loopback: http://127.0.0.1:4318/v1/traces
    status: /run/services             # NAME.json is written here
    groups: {cart: services/cart}     # control group of each service, by its name in the traces
    objectives_ms: {checkout: 250}    # 99th percentile, end to end, of each type of requests: operation of their root
    window_s: 10                      # of traces that a status is about
    cpu_s: 3                          # of CPU time
    settles_s: 1                      # after its end, until all spans of a request are here
    host_cores: 1                     # cores of this host that count as one, as in the coordinator's file
    root: /sys/fs/cgroup              # where control groups are mounted

A window should hold a hundred requests of a type or so. Of fewer, the 99th percentile is nearly the slowest one: often
quicker than that percentile really is, and told, once it has ended and settled, for as long as the window. A request
that failed counts as one that took four times its objective, or what it took, if longer.

A status is of the requests that ended in a window: who has not answered yet is not in the traces, so that what arrives
at a service counts as what it served, and a queue shows as latency and as usage of the limit. A type of requests that
none came of says nothing; a service that none came by gets no status, and its agent is blind. All that has come of a
trace lately counts as one request.
"""

import argparse
import json
import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from feature_store.control_group_limits import version_of
from feature_store.errors import InputError
from feature_store.strict_yaml import read_located_yaml
from feature_store.whole_files import write_file
from models.control.contract.derived_signals import NEAR
from serving.control.coordinator import read_groups
from serving.control.file_part import FilePart
from systems.microservices.application.containers import cpu_seconds
from systems.microservices.application.receiver import Receiver
from systems.microservices.coordinator import TELLER
from systems.microservices.interface import STEP_SECONDS
from systems.microservices.traces.critical_paths import critical_paths
from systems.microservices.traces.otlp import frame_of, rows_of_protobuf
from systems.microservices.traces.spans import COLUMNS, link
from systems.microservices.traces.windows import of_services

Row = tuple[Any, ...]  # a span, as of `rows_of_protobuf`
TRACE, OPERATION, START, DURATION = (COLUMNS.index(name) for name in ("trace", "operation", "start_us", "duration_us"))
LONGEST_S = 60.0  # of a request: its first spans are kept as long, and for the window in which it ends


@dataclass(frozen=True)
class Told:
    """Of the file."""

    port: int
    status: Path
    groups: Mapping[str, str]
    objectives_ms: Mapping[str, float]
    window_s: float
    cpu_s: float
    settles_s: float
    host_cores: float
    root: Path


def read_told(path: Path) -> Told:
    """Raises InputError."""
    part = FilePart(read_located_yaml(path, "file of statuses")[0], "", str(path))
    part.only(("port", "status", "groups", "objectives_ms", "window_s", "cpu_s", "settles_s", "host_cores", "root"))
    objectives = part.part("objectives_ms").numbers()
    if not objectives or min(objectives.values()) <= 0:
        raise InputError("objectives_ms must name the objective of a type of requests, above 0 ms, got "
                         f"{objectives or 'none'} ({path})")
    return Told(part.whole("port", 4318), Path(part.text("status")), read_groups(part, TELLER.many, path), objectives,
                part.number("window_s", 10.0), part.number("cpu_s", 3.0), part.number("settles_s", 1.0),
                part.number("host_cores", 1.0), Path(part.text("root", "/sys/fs/cgroup")))


class _Used(NamedTuple):
    at_s: float
    cpu_s: Mapping[str, float]


class Statuses:
    """Keeps what came lately, and derives statuses from it."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._came: deque[tuple[float, Row]] = deque()
        self._traces: dict[str, deque[tuple[float, Row]]] = {}  # spans of each, and when they came
        base = told.root if version_of(told.root) == 2 else told.root / "cpuacct"
        self._folders = {name: base / group for name, group in told.groups.items()}
        self._used: deque[_Used] = deque()

    def keep(self, body: bytes) -> None:
        """Takes an exported request of traces, that was checked to be one."""
        now = time.monotonic()
        self._came.extend((now, row) for row in rows_of_protobuf(body, "export"))

    def statuses(self, now: float, clock_s: float) -> dict[str, dict[str, float]]:
        """Service -> its status (coordinator.STATUS); only services that requests came by.

        Args:
            now: Unix s, as traces have it.
            clock_s: of a clock that nobody sets, s.

        Raises:
            OSError: a control group is gone.
        """
        told = self._told
        self._sort_by_trace(clock_s - LONGEST_S - told.settles_s - told.window_s)
        self._used.append(_Used(clock_s, {name: cpu_seconds(folder) for name, folder in self._folders.items()}))
        while len(self._used) > 2 and clock_s - self._used[1].at_s >= told.cpu_s:
            self._used.popleft()
        seconds = clock_s - self._used[0].at_s
        until_us = 1e6 * (now - told.settles_s)
        after_us = until_us - 1e6 * told.window_s
        ended = _ended_within(frame_of(self._may_have_ended(after_us, until_us)), after_us, until_us,
                              told.objectives_ms)
        if ended.empty or not seconds:
            return {}
        spans = link(ended)
        roots = pd.DataFrame({"type": [spans.operations[one] for one in spans.operation[spans.roots]],
                              "ms": spans.duration_us[spans.roots] / 1000.0, "failed": spans.error[spans.roots]})
        known = roots[roots["type"].isin(list(told.objectives_ms))]  # of others a part has not come yet
        if known.empty:
            return {}
        least_ms = NEAR * known["type"].map(told.objectives_ms).where(known["failed"], 0.0)
        tails = known["ms"].clip(lower=least_ms).groupby(known["type"]).quantile(0.99)
        worst = max(tails.index, key=lambda name: tails[name] / told.objectives_ms[name])
        of_all = {"latency_ms": float(tails[worst]), "most_latency_ms": told.objectives_ms[worst],
                  "type_share": float((known["type"] == worst).mean())}
        found = {}
        blamed = (roots["type"] == worst).to_numpy()
        for name, of in of_services(spans, critical_paths(spans), blamed).to_dict("index").items():
            if name in self._folders:
                used = (self._used[-1].cpu_s[name] - self._used[0].cpu_s[name]) / seconds / told.host_cores
                rate = of["visits"] / told.window_s
                found[name] = {**of_all, "rate_rps": rate, "served_rps": rate, "used_cores": used,
                               "importance": min(max(of["relative_importance"], 0.0), 1.0),
                               "congestion_intensity": max(of["tail_ms"] / max(of["median_ms"], 1e-3), 1.0),
                               "own_latency_ms": of["tail_ms"]}
        return found

    def _sort_by_trace(self, oldest_s: float) -> None:
        """Places what came, and drops what came before a moment of the clock."""
        while self._came:
            at_s, row = self._came.popleft()
            self._traces.setdefault(row[TRACE], deque()).append((at_s, row))
        for name, rows in list(self._traces.items()):
            while rows and rows[0][0] < oldest_s:
                rows.popleft()
            if not rows:
                del self._traces[name]

    def _may_have_ended(self, after_us: float, until_us: float) -> list[Row]:
        """All spans of the traces of which one that may be a root ended within the time: few, to be looked at more
        closely each second."""
        def may_be_root(row: Row) -> bool:
            return row[OPERATION] in self._told.objectives_ms and (
                after_us < (row[START] or 0) + row[DURATION] <= until_us)

        return [row for rows in self._traces.values() if any(may_be_root(row) for _, row in rows) for _, row in rows]

    def write(self) -> None:
        """Writes the statuses of now."""
        for name, values in self.statuses(time.time(), time.monotonic()).items():
            known = {part: value for part, value in values.items() if math.isfinite(value)}
            write_file(self._told.status / f"{name}.json", json.dumps(
                {**known, "host_cores": self._told.host_cores}))


def _ended_within(frame: pd.DataFrame, after_us: float, until_us: float, types: Mapping[str, float]) -> pd.DataFrame:
    """All spans of the requests of these types whose root ended within the time. A root is whose parent, such as a span
    of the client, is not here."""
    ends = frame["start_us"] + frame["duration_us"]
    ended = (ends > after_us) & (ends <= until_us) & frame["operation"].isin(list(types))
    roots = ended & ~frame["parent"].isin(frame["span"])
    return frame[frame["trace"].isin(frame.loc[roots, "trace"])]


def main(arguments: list[str] | None = None) -> int:
    """Writes statuses until it is ended. Exit codes: 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m systems.microservices.statuses", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what to tell, and where")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end after so many; default: never")
    given: Any = parser.parse_args(arguments)
    try:
        told = read_told(given.file)
        told.status.mkdir(parents=True, exist_ok=True)
        statuses, due = Statuses(told), time.monotonic()
        end = due + given.seconds
        with Receiver(statuses.keep, told.port):
            while due < end:
                try:
                    statuses.write()
                except (OSError, InputError) as error:  # what is not told makes agents blind
                    print(f"no status: {error}", file=sys.stderr, flush=True)
                due = max(due + STEP_SECONDS, time.monotonic())
                time.sleep(max(0.0, due - time.monotonic()))
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
