"""verify: the final network becomes the file that ships, and its specification is decided on that file."""

import json
import shutil
from pathlib import Path

import torch

from components.progress import step
from components.workload_status import guarded
from models.export.bundle import write_bundle
from models.export.network_product import network_product
from models.export.product import Versions
from models.tasks.few_shot.encoder_file import few_shot_encoder
from models.tasks.few_shot.settings import POOL
from models.tasks.task import read_task
from models.training.workload import load_network, load_workload
from models.verification.search.search_result import Progress

PRODUCT = "product"  # the folder of the bundle, as yet without evidence


def run_verify(task_yaml: str, workload: str, seed: int, code_version: str, features: Path, learner: Path,
               output: Path) -> None:
    """Adds product/ (the bundle but for its evidence) and verdict.json to a copy of the learner's folder."""
    with step("verify", workload) as progress:
        torch.set_num_threads(1)

        def work(folder: Path) -> None:
            task = read_task(task_yaml)
            data = load_workload(features / workload, task, workload)
            quality = json.loads((features / workload / "quality.json").read_text())
            versions = Versions(code_version, str(quality["data_version"]), int(seed))
            encoder = None if task.few_shot is None else few_shot_encoder(
                features / workload, features / POOL, data.scaling, task, vars(versions))
            product = network_product(task, workload, load_network(learner / "network.npz"), data.scaling,
                                      data.raw_specification, versions, encoder)

            def report(part: str, state: Progress) -> None:
                progress({"proved_share": state.proved_share, "open_boxes": state.open_boxes,
                          "worst_bound": state.worst_bound})

            shutil.copytree(learner, folder, dirs_exist_ok=True)
            verdict = write_bundle(folder / PRODUCT, product, task.training.verify_seconds,
                                   data.scaling.features.unscale(data.x), int(seed), report)
            (folder / "verdict.json").write_text(json.dumps(verdict.evidence()))

        guarded("verify", learner, output, work)
