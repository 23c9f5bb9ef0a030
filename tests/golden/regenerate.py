"""Makes the golden files again: `make golden`, after a change that is meant.

    train.yaml       the compiled pipeline, as a cluster gets it
    contract.json    the contract of a small bundle, as a controller gets it
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.bundle import make_contract
from models.export.onnx_model import build_onnx
from models.tasks.task import parse_task
from models.training.workload import raw_specification
from models.verification.network.fully_connected import ReluNetwork
from pipelines.compiled import compile_train
from tests.e2e import tiny

FOLDER = Path(__file__).parent
PIPELINE, CONTRACT = FOLDER / "train.yaml", FOLDER / "contract.json"
VERSIONS = {"code_version": "c0de", "data_version": "da7a", "seed": 0}


def compiled_pipeline() -> str:
    """The YAML of the train pipeline, without the comment that names the kfp release that wrote it."""
    with tempfile.TemporaryDirectory() as folder:
        text = compile_train(Path(folder) / "train.yaml").read_text()
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("sdkVersion:"))


def tiny_contract() -> dict[str, Any]:
    """The contract of a network with round weights over the tiny task's ranges."""
    task = parse_task(tiny.task(), "tiny")
    names = tuple(quantity.name for quantity in task.features("redis"))
    frame = tiny.telemetry(("redis",))
    scaling = FeatureScaling(MinMaxScaling.from_frame(frame, names), MinMaxScaling.from_frame(frame, ("latency_ms",)))
    network = ReluNetwork((np.full((2, 3), 0.5, np.float32), np.full((1, 2), 0.5, np.float32)),
                          (np.zeros(2, np.float32), np.zeros(1, np.float32)))
    model = build_onnx(network, scaling, "latency_ms", {})
    return make_contract(task, "redis", scaling, raw_specification(task, "redis", scaling), model, VERSIONS)


def contract_text() -> str:
    """Numbers with nine digits, which every libm agrees on; the digest of the file is tested elsewhere."""
    contract = tiny_contract()
    contract["model"]["sha256"] = "0" * 64
    rounded = json.loads(json.dumps(contract), parse_float=lambda text: float(f"{float(text):.9g}"))
    return json.dumps(rounded, indent=1) + "\n"


def main() -> None:
    """Writes both files."""
    PIPELINE.write_text(compiled_pipeline(), encoding="utf-8")
    CONTRACT.write_text(contract_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
