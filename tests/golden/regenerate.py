"""Makes the golden files again: `make golden`, after a change that is meant.

    train.yaml            the compiled pipeline, as a cluster gets it
    contract.json         the contract of a small bundle, as a controller gets it
    specification.yaml    and its specification
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.bundle import write_bundle
from models.export.product import Versions
from models.tasks.supervised.product import network_product
from models.tasks.supervised.specifications import raw_specification
from models.tasks.task import parse_task
from models.verification.network.fully_connected import ReluNetwork
from pipelines.compiled import compile_train
from tests.e2e import tiny

FOLDER = Path(__file__).parent
PIPELINE, CONTRACT, SPECIFICATION = (FOLDER / name for name in ("train.yaml", "contract.json", "specification.yaml"))
VERSIONS = Versions("c0de", "da7a", 0)


def compiled_pipeline() -> str:
    """The YAML of the train pipeline, without the comment that names the kfp release that wrote it."""
    with tempfile.TemporaryDirectory() as folder:
        text = compile_train(Path(folder) / "train.yaml").read_text()
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("sdkVersion:"))


def tiny_bundle() -> tuple[dict[str, Any], str]:
    """Contract and specification of a network with round weights over the tiny task's ranges."""
    task = parse_task(tiny.task(), "tiny")
    names = tuple(quantity.name for quantity in task.features("redis"))
    frame = tiny.telemetry(("redis",))[[*names, "latency_ms"]].round(3)  # which every libm agrees on
    scaling = FeatureScaling(MinMaxScaling.from_frame(frame, names), MinMaxScaling.from_frame(frame, ("latency_ms",)))
    network = ReluNetwork((np.full((2, 3), 0.5, np.float32), np.full((1, 2), 0.5, np.float32)),
                          (np.zeros(2, np.float32), np.zeros(1, np.float32)))
    product = network_product(task, "redis", network, scaling, raw_specification(task, "redis", scaling), VERSIONS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "bundle"
        write_bundle(folder, product)
        return json.loads((folder / "contract.json").read_text()), (folder / "specification.yaml").read_text()


def contract_text(contract: dict[str, Any]) -> str:
    """The digests of the files are tested elsewhere."""
    for name in ("model", "specification"):
        contract = {**contract, name: {**contract[name], "sha256": "0" * 64}}
    return json.dumps(contract, indent=1) + "\n"


def main() -> None:
    """Writes all files."""
    PIPELINE.write_text(compiled_pipeline(), encoding="utf-8")
    contract, specification = tiny_bundle()
    CONTRACT.write_text(contract_text(contract), encoding="utf-8")
    SPECIFICATION.write_text(specification, encoding="utf-8")


if __name__ == "__main__":
    main()
