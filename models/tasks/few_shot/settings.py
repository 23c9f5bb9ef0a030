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

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.names import check_label

# Folder of the features that holds what all workloads share.
POOL = "_pool"
BASES = ("sequential", "planned", "chosen", "random")


@dataclass(frozen=True)
class FewShot:
    """See the module docstring.

    pool: names of workloads that are not adapted. runs: of a support. embedding: its most entries. radius: how far a
    workload's box reaches around its own embedding, in standard deviations of the pool. trials: of Optuna over the
    pool's hyperparameters; 0: none. coverage: of the conformal intervals.
    """

    pool: tuple[str, ...] = ()
    runs: int = 3
    bases: str = "sequential"
    embedding: int = 8
    radius: float = 1.0
    trials: int = 0
    coverage: float = 0.9
    deadline: float | None = None

    def __post_init__(self) -> None:
        if self.bases not in BASES:
            raise InputError(f"bases must be one of {', '.join(BASES)}, got {self.bases!r}; "
                             + nearest(str(self.bases), BASES))
        for name, least in (("runs", 1), ("embedding", 1), ("trials", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be a whole number from {least}, got {value!r} (few_shot)")
        for name in ("radius", "coverage", "deadline"):
            value = getattr(self, name)
            if value is None and name == "deadline":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
                raise InputError(f"{name} must be a number above 0, got {value!r} (few_shot)")
        if self.coverage >= 1:
            raise InputError(f"coverage must be below 1, got {self.coverage!r} (few_shot)")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the embedding's entries among a model's inputs."""
        return tuple(f"embedding_{k + 1}" for k in range(self.embedding))


def parse_few_shot(data: Any, where: str) -> FewShot:
    """From parsed YAML. Raises InputError: a field is unknown or of the wrong kind."""
    if not isinstance(data, Mapping):
        raise InputError(f"a mapping must stand here, got {data!r} ({where})")
    known = {f.name for f in fields(FewShot)}
    for key in data:
        if key not in known:
            raise InputError(f"field must be known, got {key!r} ({where}); {nearest(str(key), known)}")
    pool = data.get("pool", [])
    if not isinstance(pool, list) or not all(isinstance(name, str) for name in pool):
        raise InputError(f"a list of workloads must stand here, got {pool!r} ({where}.pool)")
    for name in pool:
        check_label(name, "workload of the pool", f"{where}.pool")
    return FewShot(**{**data, "pool": tuple(pool)})
