"""verify: the final proof of one workload's learner, with the full budget."""

import json
import shutil
from pathlib import Path

import numpy as np
import torch

from components.progress import step
from components.workload_status import guarded
from models.tasks.task import read_task
from models.training.workload import load_network, load_workload
from models.verification.search.branch_and_bound import Budget, Progress
from models.verification.verify import verify as verify_network


def run_verify(task_yaml: str, workload: str, seed: int, features: Path, learner: Path, output: Path) -> None:
    """Adds verdict.json, witnesses.npz and, where PROVED, tree.npz to a copy of the learner's folder."""
    with step("verify", workload) as progress:
        torch.set_num_threads(1)

        def work(folder: Path) -> None:
            task = read_task(task_yaml)
            data = load_workload(features / workload, task, workload)

            def report(state: Progress) -> None:
                progress({"proved_share": state.proved_share, "open_boxes": state.open_boxes,
                          "worst_bound": state.worst_bound})

            verdict = verify_network(load_network(learner / "network.npz"), data.specification,
                                     Budget(seconds=task.training.verify_seconds), data.x, int(seed), report)
            shutil.copytree(learner, folder, dirs_exist_ok=True)
            (folder / "verdict.json").write_text(json.dumps(verdict.to_json()))
            if verdict.tree is not None:
                np.savez_compressed(folder / "tree.npz", split_dimension=verdict.tree.split_dimension,
                                    split_value=verdict.tree.split_value)

        guarded("verify", learner, output, work)
