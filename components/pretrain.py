"""pretrain: one model over all workloads that have features, from which each workload's learner starts."""

import json
from pathlib import Path

from components.progress import step
from models.tasks.few_shot.settings import POOL
from models.tasks.task import read_task
from models.training.pretraining import POOL_HEAD, save_pretrained
from models.training.pretraining import pretrain as pretrain_pool
from models.training.workload import few_shot_pool, load_workload


def run_pretrain(task_yaml: str, seed: int, features: Path, output: Path) -> None:
    """Trains the shared backbone and writes it to the file `output`; an empty pool writes an empty file."""
    with step("pretrain") as progress:
        task = read_task(task_yaml)
        status = json.loads((features / "status.json").read_text())
        usable = [name for name, message in status.items() if not message]
        output.parent.mkdir(parents=True, exist_ok=True)
        if not usable:
            output.write_bytes(b"")
            return
        loaded = {name: load_workload(features / name, task, name) for name in usable}
        if task.few_shot is not None:
            pool = {POOL_HEAD: few_shot_pool(features / POOL, loaded)}
        else:
            pool = {name: data.pool_share() for name, data in loaded.items()}
        save_pretrained(pretrain_pool(pool, task.training, int(seed), progress), output)
