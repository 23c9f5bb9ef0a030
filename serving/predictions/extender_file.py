"""The file that a Kubernetes scheduler's extender is declared in (`assay serve --extender FILE`).

    pod_label: app.kubernetes.io/name
    prometheus:
      address: http://prometheus.monitoring.svc:9090
      queries: {psi_cpu_some: "rate(node_pressure_cpu_waiting_seconds_total[1m])"}
    workloads:
      redis:
        model: performance.redis
        best: 1.0
        worst: 20.0
        features:
          psi_cpu_some: {node_query: psi_cpu_some}
          connections: {constant: 16}

serving/predictions/extender.py ranks nodes by it, serving/predictions/node_queries.py asks Prometheus.
"""

from typing import Literal

from pydantic import Field, model_validator

from feature_store.errors import nearest
from feature_store.written.field_errors import FieldError
from feature_store.written.fields import ColumnName, PositiveNumber, Text
from feature_store.written.model import Written


class PrometheusFields(Written):
    """What a Prometheus server is asked of all nodes."""

    address: Text = Field(description="Base address of the server")
    node_label: Text = Field(
        default="instance", description="Label of every series that names its node, by the node's name or by an "
                                        "address in its status; a port behind it is cut off")
    every_s: float = Field(default=15.0, gt=0, le=3600, description="Seconds between two looks")
    at_most_age_s: PositiveNumber = Field(default=60.0, description="Seconds after which a number counts as missing")
    newest: Text | None = Field(
        default=None, description="PromQL of the Unix time of each node's newest sample, from which ages count (of "
                                  "several for a node, the oldest); default: they count from the answer")
    queries: dict[ColumnName, Text] = Field(min_length=1, description="PromQL by name: one series a node")

    @model_validator(mode="after")
    def _numbers_outlive_a_look(self) -> "PrometheusFields":
        if not self.every_s < self.at_most_age_s:
            raise ValueError(f"expected every_s below at_most_age_s, got {self.every_s:g} and {self.at_most_age_s:g}")
        return self


class FeatureFields(Written):
    """Where an input of the model comes from, raw units: exactly one of these."""

    node_annotation: Text | None = Field(default=None, description="Annotation of the node that holds the number")
    node_label: Text | None = Field(default=None, description="Label of the node that holds the number")
    pod_annotation: Text | None = Field(default=None, description="Annotation of the pod that holds the number")
    pod_label: Text | None = Field(default=None, description="Label of the pod that holds the number")
    node_query: Text | None = Field(default=None, description="Query of `prometheus` that gives the number")
    constant: float | None = Field(default=None, description="The number itself")

    @model_validator(mode="after")
    def _exactly_one(self) -> "FeatureFields":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("expected exactly one of node_annotation, node_label, pod_annotation, pod_label, "
                             f"node_query and constant, got {' and '.join(given) or 'none'}")
        return self


class WorkloadFields(Written):
    """How the nodes for a pod of one workload are ranked."""

    model: Text = Field(description="Model that predicts for it, as /v2/models names it: `<task>.<workload>`")
    output: ColumnName | None = Field(default=None, description="Its output that nodes are ranked by, less is better; "
                                                                "default: the only one")
    best: float = Field(description="Predicted value from which down a node gets the score 10, unit of the output")
    worst: float = Field(description="Predicted value from which up a node gets the score 0, unit of the output")
    most: float | None = Field(default=None, description="Predicted value above which a node is filtered out, unit of "
                                                         "the output; default: none is")
    unknown: Literal["keep", "refuse"] = Field(
        default="keep", description="What the filter does with a node that nothing can be predicted for")
    features: dict[ColumnName, FeatureFields] = Field(min_length=1, description="Inputs of the model, all of them")

    @model_validator(mode="after")
    def _best_is_below_worst(self) -> "WorkloadFields":
        if not self.best < self.worst:
            raise ValueError(f"expected best below worst, got {self.best:g} and {self.worst:g}")
        return self


class ExtenderFile(Written):
    """A Kubernetes scheduler's extender."""

    pod_label: Text = Field(description="Label of a pod that says which of `workloads` it is; pods without "
                                       "it are left alone")
    prometheus: PrometheusFields | None = Field(default=None, description="Where `node_query` gets its numbers")
    workloads: dict[Text, WorkloadFields] = Field(min_length=1, description="By the value of that label")

    @model_validator(mode="after")
    def _queries_are_there(self) -> "ExtenderFile":
        queries = self.prometheus.queries if self.prometheus else {}
        for workload, fields in self.workloads.items():
            for name, feature in fields.features.items():
                if feature.node_query is not None and feature.node_query not in queries:
                    raise FieldError(["workloads", workload, "features", name, "node_query"],
                                     f"expected a query of prometheus.queries, got {feature.node_query!r}; "
                                     f"{nearest(feature.node_query, queries)}")
        return self
