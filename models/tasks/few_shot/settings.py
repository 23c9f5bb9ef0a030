"""A task whose workloads are learned from one to a few measured runs each: the `few_shot` part of a task.

Its telemetry is a file of measurements (feature_store/measurements.py). Some workloads of the file are the pool; every
other one is adapted from `runs` of its own. Inputs of its model are the encoded configuration and an embedding of those
runs (models/adaptation/pool/pool_encoder.py).

    few_shot:
      pool: [w1, w2, ...]        # as the expansion wrote it; see models/tasks/few_shot/measurements_task.py
      runs: 3
      bases: sequential          # or planned, chosen, random: which configurations are measured
      embedding: 8
      deadline: 600              # units of the target; optional: what the recommendation has to meet
"""

from typing import Literal

from pydantic import Field

from feature_store.written.fields import ColumnName, PositiveNumber, PositiveWholeNumber, WholeNumber
from feature_store.written.model import ListOf, Written

# Folder of the features that holds what all workloads share.
POOL = "_pool"
Bases = Literal["sequential", "planned", "chosen", "random"]


class FewShot(Written):
    """How workloads are learned from one to a few measured runs each."""

    pool: ListOf[ColumnName] = Field(
        default=(), description="Workloads that are not adapted; leave it out below a mapping's `task`")
    runs: PositiveWholeNumber = Field(
        default=3, description="Size of the support: runs that a workload is learned from")
    bases: Bases = Field(
        default="sequential", description="How the support is chosen: `sequential` (each run after seeing the last), "
                                          "`planned` (the best set, the same for everybody), `chosen` (the same for "
                                          "everybody, best first), `random`")
    embedding: PositiveWholeNumber = Field(default=8, description="Most entries of the embedding")
    radius: PositiveNumber = Field(
        default=1.0, json_schema_extra={"unit": "sd of the pool"},
        description="How far a workload's box reaches around its own embedding")
    trials: WholeNumber = Field(
        default=0, description="Trials of Optuna over the pool learner's settings, 0: none; kept in a journal in the "
                               "state folder, so that a search that was ended goes on; the settings are logged with "
                               "the MLflow run")
    coverage: float = Field(default=0.9, gt=0, lt=1, description="Of the conformal intervals")
    deadline: PositiveNumber | None = Field(
        default=None, json_schema_extra={"unit": "unit of the target"},
        description="What the recommendation has to meet")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the embedding's entries among a model's inputs."""
        return tuple(f"embedding_{k + 1}" for k in range(self.embedding))
