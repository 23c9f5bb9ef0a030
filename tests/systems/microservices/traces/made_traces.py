"""Spans for tests: tables written by hand, and random trees."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from systems.microservices.traces.spans import COLUMNS


def table(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """(span, parent, service, start_us, duration_us[, background]), all of trace 0."""
    return pd.DataFrame([(0, span, parent, service, f"{service}.do", start, duration, bool(rest), False)
                         for span, parent, service, start, duration, *rest in rows], columns=list(COLUMNS))


def random_traces(seed: int, traces: int, services: Sequence[str] = ("a", "b", "c", "d"), slow: str = "",
                  factor: float = 1.0) -> pd.DataFrame:
    """Trees of a few levels whose children lie within their parents; `slow` takes `factor` times as long."""
    random = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []

    def grow(trace: int, parent: int, service: int, start: int, budget: int, level: int) -> None:
        own = len(rows)
        rows.append((trace, own, parent, services[service], f"{services[service]}.do", start, budget, False, False))
        for _ in range(int(random.integers(0, 4)) if level < 3 else 0):
            begin = int(random.integers(0, max(budget - 20, 1)))
            child = (service + int(random.integers(1, len(services)))) % len(services)  # never its parent's
            grow(trace, own, child, start + begin, int(random.integers(0, budget - begin + 1)), level + 1)

    for trace in range(traces):
        grow(trace, -1, 0, 100_000 * trace, int(random.integers(1000, 50_000)), 0)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame.loc[frame["service"] == slow, "duration_us"] = (frame["duration_us"] * factor).astype(int)
    return frame


def chain(seed: int, traces: int, slow: str = "", factor: float = 1.0, first_us: int = 0) -> pd.DataFrame:
    """front calls one, then two; two calls three: a request every 50 ms, times of their own around 1 ms each."""
    random = np.random.default_rng(seed)
    rows: list[tuple[Any, ...]] = []
    for trace in range(traces):
        own = {name: int(random.normal(1000, 50) * (factor if name == slow else 1)) for name in
               ("front", "one", "two", "three")}
        two = own["two"] + own["three"]
        start = first_us + 50_000 * trace
        places = {"front": (-1, start, own["front"] + own["one"] + two), "one": (0, start + 10, own["one"]),
                  "two": (0, start + 10 + own["one"], two), "three": (2, start + 20 + own["one"], own["three"])}
        rows += [(trace, 4 * trace + number, parent if parent < 0 else 4 * trace + parent, name, name, begin, duration,
                  False, False) for number, (name, (parent, begin, duration)) in enumerate(places.items())]
    return pd.DataFrame(rows, columns=list(COLUMNS))
