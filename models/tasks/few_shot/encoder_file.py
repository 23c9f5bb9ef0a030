"""encoder.onnx of a few-shot model, and what its contract says of the embedding."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from feature_store.scaling import FeatureScaling
from models.adaptation.pool.pool_encoder import PoolEncoder
from models.export.encoder_model import build_encoder
from models.tasks.few_shot.task import FewShotTask


def few_shot_encoder(folder: Path, pool: Path, scaling: FeatureScaling, task: FewShotTask,
                     versions: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """The file's bytes and the contract's `embedding`, without the file's name and digest.

    Args:
        folder: the workload's features; pool: the pool's (models/tasks/few_shot/features.py).
        versions: code and data.
    """
    facts = json.loads((folder / "few_shot.json").read_text())
    predictability = json.loads((pool / "pool.json").read_text())["predictability"]
    options = pd.read_parquet(folder / "options.parquet")
    inputs = list(task.few_shot.inputs)
    configuration = [name for name in scaling.features.names if name not in inputs]
    table = options[[f"input:{name}" for name in configuration]].to_numpy(dtype="float64")
    metadata = {"task": task.name, "code_version": str(versions["code_version"]),
                "data_version": str(versions["data_version"])}
    model = build_encoder(PoolEncoder.load(pool / "encoder.npz"), table, task.few_shot.runs, len(inputs),
                          predictability["reach"], metadata)
    return model, {"inputs": inputs, "configuration": configuration, "target": task.target.name.removeprefix("log_"),
                   "runs": task.few_shot.runs, "own": facts["embedding"], "similarity": facts["similarity"],
                   "threshold": facts["threshold"]}
