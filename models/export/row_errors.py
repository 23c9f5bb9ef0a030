"""Errors of an exported model on its test set, row by row: how champion and challenger are measured alike.

Flow: `export` measures the new model, `gate` the standing champion on the same rows; `register` compares them
(serving/succession.py). Both by onnxruntime on the file that ships, fed with the rows as they are: float32, raw units.

    frame          test.parquet in order of time (task.split_by), so that neighbours are neighbours
    residuals (m,) prediction - measured, unit of the target
    test_mse       mean of (residual / span)^2; span: range of the target's scaling
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from models.paired_cases import Cases, recorded
from models.verification.language.specification import FloatArray
from models.verification.network.runtime_session import open_session


def ordered_test_set(folder: Path, split_by: Sequence[str]) -> pd.DataFrame:
    """test.parquet of a workload's folder, sorted by the columns of `split_by` that it has."""
    frame = pd.read_parquet(folder / "test.parquet")
    keys = [name for name in split_by if name in frame]
    return frame.sort_values(keys, kind="stable", ignore_index=True) if keys else frame


def residuals(model: bytes, input_name: str, columns: Sequence[str], frame: pd.DataFrame, target: str) -> FloatArray:
    """(m,) of an ONNX file with one input and one output.

    Raises:
        KeyError: the frame lacks a column.
    """
    rows = frame[list(columns)].to_numpy(dtype=np.float32)
    (out,) = open_session(model).run(None, {input_name: rows})
    return np.asarray(out, dtype=np.float64)[:, 0] - frame[target].to_numpy(dtype=np.float64)


def squared_errors(found: FloatArray, span: float, unit: str, test_set: str) -> Cases:
    """A model's squared errors as paired cases that bear test_mse.

    Args:
        found: (m,) residuals.
        span: range of the target's scaling, in `unit`.
        unit: of the target.
        test_set: digest of test.parquet.
    """
    return Cases("squared error", "test_mse", "smaller", f"{unit}²", recorded(found**2), test_set, scale=span**2)
