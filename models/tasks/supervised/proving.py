"""verify and export of supervised kinds: the final proof of a learner, and its bundle."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.export.bundle import write_bundle
from models.export.parity import replays
from models.tasks.kind import OnProgress
from models.tasks.supervised.task import SupervisedTask
from models.training.workload import Workload, load_network, load_workload
from models.verification.search.branch_and_bound import Budget, Progress
from models.verification.verdict import Status, Verdict, restore_verdict
from models.verification.verify import verify as verify_network


def verify_learner(task: SupervisedTask, workload: str, seed: int, features: Path, learner: Path, output: Path,
                   progress: OnProgress) -> Verdict:
    """Adds verdict.json, witnesses.npz and, where PROVED, tree.npz to a copy of the learner's folder."""
    torch.set_num_threads(1)
    data = load_workload(features / workload, task, workload)

    def report(state: Progress) -> None:
        progress({"proved_share": state.proved_share, "open_boxes": state.open_boxes,
                  "worst_bound": state.worst_bound})

    verdict = verify_network(load_network(learner / "network.npz"), data.specification,
                             Budget(seconds=task.training.verify_seconds), data.x, seed, report)
    shutil.copytree(learner, output, dirs_exist_ok=True)
    (output / "verdict.json").write_text(json.dumps(verdict.to_json()))
    if verdict.tree is not None:
        np.savez_compressed(output / "tree.npz", split_dimension=verdict.tree.split_dimension,
                            split_value=verdict.tree.split_value)
    return verdict


def bundle_learner(task: SupervisedTask, workload: str, versions: Mapping[str, Any], features: Path, verified: Path,
                   output: Path, encoder: tuple[bytes, Mapping[str, Any]] | None = None) -> Verdict:
    """Writes model.onnx, contract.json and certificate.* (PROVED only).

    Args:
        encoder: of a few-shot model, see write_bundle.
    """
    torch.set_num_threads(1)
    data = load_workload(features / workload, task, workload)
    tree = verified / "tree.npz"
    verdict = restore_verdict(json.loads((verified / "verdict.json").read_text()), tree if tree.is_file() else None)
    model, verdict = write_bundle(output, task, workload, load_network(verified / "network.npz"), data.scaling,
                                  data.raw_specification, verdict, versions, encoder)
    return _replayed(verdict, model, data)


def _replayed(verdict: Verdict, model: bytes, data: Workload) -> Verdict:
    """REFUTED stands only if a witness violates the order in onnxruntime on the exported file."""
    if verdict.status is not Status.REFUTED:
        return verdict
    if any(replays(model, witness, data.scaling, data.raw_specification) for witness in verdict.witnesses):
        return verdict
    return verdict.because(Status.UNKNOWN, "no witness replays on the exported file")
