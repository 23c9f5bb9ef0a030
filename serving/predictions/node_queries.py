"""What Prometheus says of each node, for a scheduler's extender (extender.py): it is asked in a thread of its own, so
that no request of a scheduler waits for it.

    NodeQueries.look(), every `every_s`:    query  ->  Answer: node -> its values and the age of its newest sample
    NodeQueries(), once a request:          Measured: the answers as they stand, by this machine's monotonic clock

A query is for all nodes at once; a label of each series names the node. An instant query goes on answering for minutes
after the last sample, a rate over a window too: so ages count from the newest sample where the file asks for its time
(`newest`), by the server's own clock; else from when the answer was asked for. An answer is held as texts and floats
alone, not as an object a node: Python's garbage collector would walk through thousands of them while requests wait.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from feature_store.errors import AssayError, InputError, SourceError
from feature_store.sources.prometheus_api import PrometheusApi, Series
from serving.control.side_by_side import Within
from serving.polling import poll_in_thread
from serving.predictions.extender_file import PrometheusFields

_TIMEOUT_S = 5.0  # for one query
_WITH_PORT = re.compile(r"(?:\[(.+)\]|([^:]+)):\d+", re.ASCII)  # 10.0.0.1:9100, [fd00::1]:9100


@dataclass(frozen=True)
class Answer:
    """To one query.

    Attributes:
        values: node as its label names it, without a port -> a value for each of its series; there should be one.
        asked_s: monotonic time.
        ages_s: node -> of its newest sample, when it was asked for; None: the file does not ask.
    """

    values: Mapping[str, tuple[float, ...]]
    asked_s: float
    ages_s: Mapping[str, float] | None = None

    def age_s(self, names: Iterable[str], now_s: float) -> float:
        """For a node of these names. Infinite where it has no newest sample: nobody knows."""
        if self.ages_s is None:
            return now_s - self.asked_s
        # of several series the oldest counts
        return now_s - self.asked_s + max((self.ages_s[one] for one in names if one in self.ages_s), default=math.inf)


@dataclass(frozen=True)
class Measured:
    """The answers at one moment.

    Attributes:
        answers: by the query's name in the file.
        now_s: monotonic time.
        at_most_age_s: of a value.
    """

    answers: Mapping[str, Answer]
    now_s: float
    at_most_age_s: float

    def number(self, query: str, names: Iterable[str]) -> float:
        """The value for a node.

        Args:
            query: by its name in the file.
            names: of the node, and its addresses; the series under all of them count together.

        Raises:
            InputError: there is none, it is too old, or there are several.
        """
        answer = self.answers[query]
        names = set(names)  # a node's name is often one of its addresses, too
        values = [value for name in names for value in answer.values.get(name, ())]
        if not values:
            raise InputError(f"node_query {query} must give a number for the node, got none")
        if len(values) != 1:
            raise InputError(f"node_query {query} must give one series for the node, got {len(values)}; "
                             "aggregate them, for example by max by (instance) (...)")
        if (age_s := answer.age_s(names, self.now_s)) > self.at_most_age_s:
            raise InputError(f"node_query {query} must give a number at most {self.at_most_age_s:g} s old, got one of "
                             f"{age_s:.3g} s")
        return values[0]


NOTHING_MEASURED = Measured({}, 0.0, 0.0)


class NodeQueries(Collector):
    """The queries of an extender's file, and their last answers. Threads may share it."""

    def __init__(self, file: PrometheusFields, tell: Callable[[str], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
            tell: called with a line where a query fails, and where it is answered again.
            clock: seconds, never going back.

        Raises:
            InputError: the address is unusable.
        """
        self._file, self._tell, self._clock = file, tell, clock
        self._api = PrometheusApi(file.address, _TIMEOUT_S, retries=0)
        # no query of the file has an empty name; time() is the server's
        texts = {**file.queries, **({} if file.newest is None else {"": f"time() - ({file.newest})"})}
        self._ask = {name: Within(partial(self._api.series, "query", {"query": text}), _TIMEOUT_S, "Prometheus")
                     for name, text in texts.items()}
        self._answers = dict.fromkeys(file.queries, Answer({}, -math.inf))
        self._failing: set[str] = set()

    def __call__(self) -> Measured:
        """The answers as they stand; a look meanwhile changes nothing in them."""
        return Measured(dict(self._answers), self._clock(), self._file.at_most_age_s)

    def follow(self, stopped: threading.Event) -> threading.Thread:
        """Looks now, for at most the time limit of one query, then in a thread of its own until `stopped`."""
        with suppress(AssayError):  # that look goes on: the service need not wait for its end
            Within(self.look, _TIMEOUT_S, "Prometheus")()
        return poll_in_thread(self.look, self._file.every_s, stopped, "node queries")

    def look(self) -> None:
        """Asks each query once. What fails keeps its last answer, which grows old. Raises nothing."""
        asked_s, ages_s = self._clock(), None
        if self._file.newest is not None:
            if (newest := self._values_by_node("newest", "")) is None:
                return
            # of several series the oldest counts; a sample ahead of the server's clock is new
            ages_s = {node: max(max(0.0, age_s) if math.isfinite(age_s) else math.inf for age_s in found)
                      for node, found in newest.items()}
        for query in self._file.queries:
            if (values := self._values_by_node(f"node_query {query}", query)) is not None:
                self._answers[query] = Answer(values, asked_s, ages_s)

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        ages = GaugeMetricFamily("assay_serve_node_query_age_seconds",
                                 "since its last answer was asked for; +Inf: there is none", labels=("query",))
        for query, answer in self().answers.items():
            ages.add_metric((query,), self._clock() - answer.asked_s)
        yield ages

    def _values_by_node(self, what: str, query: str) -> Mapping[str, tuple[float, ...]] | None:
        """The answer; None: there is none, which is told once."""
        try:
            found = _by_node(self._ask[query](), self._file.node_label)
        except Exception as error:  # whatever a client or a full host raises: the thread goes on
            if query not in self._failing:
                self._failing.add(query)
                self._tell(f"{what}: {' '.join(str(error).split()) or type(error).__name__}")
            return None
        if query in self._failing:
            self._failing.discard(query)
            self._tell(f"{what}: is answered again")
        return found


def _by_node(series: Iterable[Series], label: str) -> Mapping[str, tuple[float, ...]]:
    found: dict[str, tuple[float, ...]] = {}
    for one in series:
        if label not in one.labels or len(one.values) != 1:
            raise SourceError(f"query must give one number a series, with the label {label} that names the node, got "
                              f"{len(one.values)} with {', '.join(one.labels) or 'no label'}")
        name, match = one.labels[label], _WITH_PORT.fullmatch(one.labels[label])
        node = (match[1] or match[2]) if match else name
        found[node] = (*found.get(node, ()), float(one.values[0]))
    return found
