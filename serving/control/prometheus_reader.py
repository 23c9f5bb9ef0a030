"""Measurements of the last interval from a Prometheus server, with their age by the server's own clock.

An instant query answers with the time at which it was evaluated, not with that of its samples; and a rate over a window
goes on for minutes after the last sample. So the time of the newest sample is asked for by a query of its own
(`newest`), and its age is the server's time less that: a clock of this machine that jumps makes nothing fresh or stale.
"""

import math
from collections.abc import Mapping
from functools import partial

from feature_store.errors import SourceError
from feature_store.sources.prometheus_api import PrometheusApi
from serving.control.parts import Readings
from serving.control.query import TIMEOUT_S, Query
from serving.control.side_by_side import SideBySide, TooLate


class PrometheusReader:
    """Implements `Reader`."""

    def __init__(self, url: str, queries: Mapping[str, Query], fixed: Mapping[str, float] = {},
                 timeout_s: float = TIMEOUT_S) -> None:
        """Args:
            url: base address of the server.
            queries: by input.
            fixed: input -> value, in place of a measurement.
            timeout_s: for all queries of a step together; they run side by side, and none is repeated.

        Raises:
            InputError: the address is unusable.
        """
        self._api = PrometheusApi(url, timeout_s, retries=0)
        self._queries, self._fixed = dict(queries), dict(fixed)
        asked = {query.newest for query in queries.values() if query.newest}
        self._expressions = tuple(dict.fromkeys([*(query.query for query in queries.values()), *sorted(asked)]))
        self._timeout_s, self._threads = timeout_s, SideBySide[tuple[float, float]]()

    @property
    def address(self) -> str:
        """Of the server, as messages show it."""
        return self._api.address

    @property
    def interval_s(self) -> None:
        """See `Reader`: as the operator says."""
        return None

    @property
    def fresh_s(self) -> dict[str, float]:
        """Input -> the most that its age may be."""
        return {name: query.fresh_s for name, query in self._queries.items()}

    def read(self) -> Readings:
        """One value an input, NaN where the server has none.

        Raises:
            SourceError: the server does not answer, refuses a query, or a query has more than one series.
        """
        calls = [partial(self._instant, expression) for expression in self._expressions]
        try:
            found = self._threads.answers(calls, self._timeout_s)
        except TooLate as late:
            before = f"; {late.hanging} queries of earlier steps still wait" if late.hanging else ""
            raise SourceError(f"server must answer, got none within {self._timeout_s:g} s to "
                              f"{len(calls) - late.answered} of {len(calls)} queries{before} "
                              f"({self._api.address})") from None
        answers = dict(zip(self._expressions, found, strict=True))
        values, ages = dict(self._fixed), {}
        for name, query in self._queries.items():
            value, _ = answers[query.query]
            values[name] = value * query.scale
            if query.newest:
                newest, evaluated = answers[query.newest]
                # without a sample there is no age: that is as old as can be
                ages[name] = evaluated - newest if math.isfinite(newest) else math.inf
        return Readings(values, ages)

    def close(self) -> None:
        """Lets no query wait any longer."""
        self._threads.close()

    def _instant(self, expression: str) -> tuple[float, float]:
        """Value and the server's time; NaN where there is no series."""
        series = self._api.series("query", {"query": expression})
        if not series:
            return math.nan, math.nan
        if len(series) == 1 and len(series[0].values) != 1:
            raise SourceError(f"query must give one number, got {len(series[0].values)} samples of a series "
                              f"({expression}, {self._api.address}); take a function of the range, such as rate(...)")
        if len(series) > 1:
            raise SourceError(f"query must give one number, got {len(series)} series ({expression}, "
                              f"{self._api.address}); aggregate them, for example by sum(...)")
        return float(series[0].values[-1]), float(series[0].times_s[-1])
