"""What the service tells Prometheus of itself, at /metrics.

    assay_serve_requests_total{model,status}         answers; model: "" where an address names none that is known
    assay_serve_request_seconds{model}               from the head of a request until its answer is handed over
    assay_serve_rows_total{model}                    rows predicted
    assay_serve_rows_outside_box_total{model}        of them those that were moved to the edge of the proved box
    assay_serve_nodes_total{model,outcome}           nodes that a scheduler asked for: predicted, no_prediction
    assay_serve_node_query_age_seconds{query}        of an extender's query: since its last answer was asked for
    assay_serve_model_ready{model}                   1: it is served
    assay_serve_model_trouble{model}                 1: it is not, or what the ledger names cannot take its place
    assay_serve_model_last_good{model}               1: the service's own copy answers (last_good.py)
    assay_serve_model_info{model,version,sha256}     1 of the version that answers
    assay_serve_ledger_unseen_seconds                since the ledger was looked at; NaN where none is followed
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from serving.predictions.champions import Models

_SECONDS = (0.0003, 0.001, 0.002, 0.003, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """Counts requests. registry: what is exposed."""

    def __init__(self, models: Models, unseen_s: Callable[[], float]) -> None:
        """unseen_s: seconds since the ledger was looked at."""
        self.registry = CollectorRegistry()
        self._models = models

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"assay_serve_{name}", meaning, ("model", *labels), registry=self.registry)

        self._requests = counter("requests", "answers by status", "status")
        self._seconds = Histogram("assay_serve_request_seconds", "time of a request", ("model",), buckets=_SECONDS,
                                  registry=self.registry)
        self._rows = counter("rows", "rows predicted")
        self._outside = counter("rows_outside_box", "rows moved to the edge of the proved box")
        self._nodes = counter("nodes", "nodes that a scheduler asked for", "outcome")
        self.registry.register(_Now(models, unseen_s))

    def answered(self, model: str, status: int, seconds: float) -> None:
        """Takes one answer. A name that is no model's counts as "": clients must not make labels."""
        known = model if model in self._models() else ""
        self._requests.labels(known, str(status)).inc()
        self._seconds.labels(known).observe(seconds)

    def predicted(self, model: str, rows: int, outside: int) -> None:
        """Takes the rows of one prediction."""
        self._rows.labels(model).inc(rows)
        self._outside.labels(model).inc(outside)

    def ranked(self, model: str, predicted: int, without: int) -> None:
        """Takes the nodes of one question of a scheduler."""
        self._nodes.labels(model, "predicted").inc(predicted)
        self._nodes.labels(model, "no_prediction").inc(without)


class _Now(Collector):
    """What holds at the moment of a scrape."""

    def __init__(self, models: Models, unseen_s: Callable[[], float]) -> None:
        self._models, self._unseen_s = models, unseen_s

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        ready = GaugeMetricFamily("assay_serve_model_ready", "1: it is served", labels=("model",))
        trouble = GaugeMetricFamily("assay_serve_model_trouble", "1: see the model's ready address", labels=("model",))
        last_good = GaugeMetricFamily("assay_serve_model_last_good", "1: the service's own copy", labels=("model",))
        info = GaugeMetricFamily("assay_serve_model_info", "1 of the version that answers",
                                 labels=("model", "version", "sha256"))
        for name, one in self._models().items():
            ready.add_metric((name,), one.predictor is not None)
            trouble.add_metric((name,), bool(one.reason))
            last_good.add_metric((name,), one.is_last_good)
            if one.predictor:
                info.add_metric((name, one.version, one.predictor.sha256), 1)
        yield from (ready, trouble, last_good, info)
        yield GaugeMetricFamily("assay_serve_ledger_unseen_seconds", "since the ledger was looked at", self._unseen_s())
