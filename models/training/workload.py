"""One workload's training data as the learners see it, read from its folder of features.

Symbols: m rows, n features; x (m, n) and y (m,) scaled by the training side's ranges.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from torch import nn

from feature_store.errors import InputError
from feature_store.scaling import FeatureScaling
from models.learners.mlp import linear_layers
from models.tasks.supervised.specifications import raw_specification, scaled_specification
from models.tasks.supervised.task import SupervisedTask
from models.training.pretraining import UNREADABLE, WorkloadData
from models.verification.language.specification import FloatArray, Specification
from models.verification.network.fully_connected import ReluNetwork


@dataclass(frozen=True)
class Workload:
    """Scaled data of both sides of the split, their scaling, and the specification in scaled and raw coordinates."""

    name: str
    x: FloatArray
    y: FloatArray
    x_test: FloatArray
    y_test: FloatArray
    scaling: FeatureScaling
    specification: Specification
    raw_specification: Specification

    def pool_share(self) -> WorkloadData:
        """What pretraining sees of it: the training side."""
        return WorkloadData(self.scaling.features.names, self.x, self.y, self.specification.queries)


def load_workload(folder: Path, task: SupervisedTask, name: str) -> Workload:
    """Reads train.parquet, test.parquet and scaling.json of one workload.

    Raises:
        InputError: the columns are not the task's, or the specification does not fit them.
    """
    scaling = FeatureScaling.from_json((folder / "scaling.json").read_text())
    names = tuple(quantity.name for quantity in task.features(name))
    if scaling.features.names != names:
        raise InputError(f"features must be {', '.join(names)}, got {', '.join(scaling.features.names)} "
                         f"(workload {name})")
    sides = {}
    for side in ("train", "test"):
        frame = pd.read_parquet(folder / f"{side}.parquet")
        sides[side] = (scaling.features.scale(frame[list(names)].to_numpy(dtype=np.float64)),
                       scaling.target.scale(frame[[task.target.name]].to_numpy(dtype=np.float64))[:, 0])
    raw = raw_specification(task, name, scaling)
    return Workload(name, *sides["train"], *sides["test"], scaling, scaled_specification(raw, scaling), raw)


def few_shot_pool(folder: Path, workloads: Mapping[str, Workload]) -> WorkloadData:
    """rows.parquet of a pool, scaled as all its workloads are; directions that every adapted workload demands."""
    any_workload = next(iter(workloads.values()))
    names = any_workload.scaling.features.names
    rows = pd.read_parquet(folder / "rows.parquet")
    queries = [query for query in any_workload.specification.queries
               if all(query in data.specification.queries for data in workloads.values())]
    x = any_workload.scaling.features.scale(rows[list(names)].to_numpy(dtype=np.float64))
    target = rows.columns[-1]
    return WorkloadData(names, x, any_workload.scaling.target.scale(rows[[target]].to_numpy(dtype=np.float64))[:, 0],
                        queries)


def save_network(network: nn.Sequential, path: Path) -> None:
    """Writes the weights as an .npz of plain arrays: weight_0, bias_0, weight_1, ..."""
    arrays: dict[str, np.ndarray] = {}
    for k, layer in enumerate(linear_layers(network)):
        arrays |= {f"weight_{k}": layer.weight.detach().numpy(), f"bias_{k}": layer.bias.detach().numpy()}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_network(path: Path) -> ReluNetwork:
    """Reads what save_network wrote. Raises InputError for any other file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            layers = len(stored.files) // 2
            return ReluNetwork(tuple(stored[f"weight_{k}"] for k in range(layers)),
                               tuple(stored[f"bias_{k}"] for k in range(layers)))
    except UNREADABLE as error:
        raise InputError(f"network must be readable, got {error} ({path})") from error
