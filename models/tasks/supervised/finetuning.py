"""finetune of supervised kinds: Algorithm 1 of vPALs on each workload, and its unverified twin."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch

from models.tasks.attempts import attempt
from models.tasks.kind import OnProgress
from models.tasks.supervised.task import SupervisedTask
from models.training.counterexample_loop import CounterexampleLoop, LoopResult
from models.training.pretraining import Pretrained, load_pretrained
from models.training.workload import load_workload, save_network


def finetune_workloads(task: SupervisedTask, workloads: Sequence[str], seed: int, features: Path, pretrained: Path,
                       folders: Mapping[str, Path], progress: OnProgress) -> dict[str, str]:
    """Writes network.npz, twin.npz, counterexamples.npz and loop.json into each workload's folder.

    Returns:
        workload -> "" or why it has no learner.
    """
    pool = load_pretrained(pretrained)
    with _fast_training():
        return {name: attempt(partial(_finetune, task, name, seed, features, pool, folders[name], progress))
                for name in workloads}


def _finetune(task: SupervisedTask, name: str, seed: int, features: Path, pool: Pretrained, folder: Path,
              progress: OnProgress) -> None:
    settings, hidden = task.training, task.workload(name).hidden
    data = load_workload(features / name, task, name)
    names, queries = data.scaling.features.names, data.specification.queries
    kind = "monotone" if settings.method == "monotone" else "plain"
    network = pool.start(name, names, hidden, queries, kind, seed)
    twin = pool.start(name, names, hidden, queries, "plain", seed)
    _save(CounterexampleLoop(network, twin, data.x, data.y, data.specification, settings, seed, progress).run(),
          len(names), folder)


def _save(result: LoopResult, inputs: int, folder: Path) -> None:
    save_network(result.network, folder / "network.npz")
    save_network(result.twin, folder / "twin.npz")
    with (folder / "counterexamples.npz").open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **result.counterexamples.arrays(inputs))
    (folder / "loop.json").write_text(json.dumps({
        "epochs": [asdict(epoch) for epoch in result.epochs],
        "rounds": [asdict(one) for one in result.rounds],
        "verdict": result.verdict.to_json(), "twin_verdict": result.twin_verdict.to_json(),
        "seconds": result.seconds}))


@contextmanager
def _fast_training() -> Iterator[None]:
    """One thread, for shards run side by side; and the moments of weights that stay zero decay into denormal numbers,
    which are many times slower."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)  # it is the whole process's
