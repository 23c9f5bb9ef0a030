"""verify of supervised kinds: what a learner becomes, to be proved and shipped."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from models.export.network_product import network_product
from models.export.product import Product, Versions
from models.tasks.supervised.task import SupervisedTask
from models.training.workload import load_network, load_workload


def product_of_learner(task: SupervisedTask, workload: str, versions: Mapping[str, Any], features: Path, learner: Path,
                       encoder: tuple[bytes, Mapping[str, Any]] | None = None) -> Product:
    """The network behind its scaling, with the workload's specification.

    Args:
        versions: code_version, data_version, seed.
        encoder: of a few-shot model, see network_product.
    """
    torch.set_num_threads(1)
    data = load_workload(features / workload, task, workload)
    return network_product(
        task, workload, load_network(learner / "network.npz"), data.scaling, data.raw_specification,
        Versions(**versions), task.training.verify_seconds, data.scaling.features.unscale(data.x), encoder)
