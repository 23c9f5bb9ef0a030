"""finetune: Algorithm 1 on one workload, and its unverified twin."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from components.progress import step
from components.workload_status import guarded
from feature_store.errors import InputError
from models.tasks.task import read_task
from models.training.counterexample_loop import CounterexampleLoop
from models.training.pretraining import load_pretrained
from models.training.workload import load_workload, save_network


def run_finetune(task_yaml: str, workload: str, seed: int, features: Path, pretrained: Path, output: Path) -> None:
    """Writes network.npz, twin.npz, counterexamples.npz and loop.json to the folder `output`."""
    with step("finetune", workload) as progress:
        torch.set_num_threads(1)  # two workloads train at once

        def work(folder: Path) -> None:
            message = json.loads((features / "status.json").read_text()).get(workload, "the telemetry has no such rows")
            if message:
                raise InputError(message)
            task = read_task(task_yaml)
            settings, hidden = task.training, task.workload(workload).hidden
            data = load_workload(features / workload, task, workload)
            pool, names = load_pretrained(pretrained), data.scaling.features.names
            queries = data.specification.queries
            kind = "monotone" if settings.method == "monotone" else "plain"
            network = pool.start(workload, names, hidden, queries, kind, int(seed))
            twin = pool.start(workload, names, hidden, queries, "plain", int(seed))
            result = CounterexampleLoop(network, twin, data.x, data.y, data.specification, settings, int(seed),
                                        progress).run()
            save_network(result.network, folder / "network.npz")
            save_network(result.twin, folder / "twin.npz")
            with (folder / "counterexamples.npz").open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **result.counterexamples.arrays(len(names)))
            (folder / "loop.json").write_text(json.dumps({
                "epochs": [asdict(epoch) for epoch in result.epochs],
                "rounds": [asdict(one) for one in result.rounds],
                "verdict": result.verdict.to_json(), "twin_verdict": result.twin_verdict.to_json(),
                "seconds": result.seconds}))

        # the moments of weights that stay zero decay into denormal numbers, which are many times slower
        torch.set_flush_denormal(True)
        try:
            guarded("finetune", None, output, work)
        finally:
            torch.set_flush_denormal(False)  # it is the whole process's
