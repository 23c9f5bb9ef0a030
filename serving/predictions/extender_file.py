"""The file that a Kubernetes scheduler's extender is declared in (`assay serve --extender FILE`).

    pod_label: app.kubernetes.io/name
    workloads:
      redis:
        model: performance.redis
        best: 1.0
        worst: 20.0
        features:
          psi_cpu_some: {node_annotation: assay.dev/psi-cpu-some}
          connections: {constant: 16}

serving/predictions/extender.py ranks nodes by it.
"""

from typing import Literal

from pydantic import Field, model_validator

from feature_store.written.fields import ColumnName, Text
from feature_store.written.model import Written


class FeatureFields(Written):
    """Where an input of the model comes from, raw units: exactly one of these."""

    node_annotation: Text | None = Field(default=None, description="Annotation of the node that holds the number")
    node_label: Text | None = Field(default=None, description="Label of the node that holds the number")
    pod_annotation: Text | None = Field(default=None, description="Annotation of the pod that holds the number")
    pod_label: Text | None = Field(default=None, description="Label of the pod that holds the number")
    constant: float | None = Field(default=None, description="The number itself")

    @model_validator(mode="after")
    def _exactly_one(self) -> "FeatureFields":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("expected exactly one of node_annotation, node_label, pod_annotation, pod_label and "
                             f"constant, got {' and '.join(given) or 'none'}")
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
    workloads: dict[Text, WorkloadFields] = Field(min_length=1, description="By the value of that label")
