"""finetune of supervised kinds: Algorithm 1 of vPALs on each workload, and its unverified twin."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch

from models.tasks.attempts import attempt
from models.tasks.kind import OnFinished, OnProgress
from models.tasks.supervised.task import SupervisedTask
from models.training.counterexample_loop import CounterexampleLoop, LoopResult
from models.training.denormal_numbers import denormals_flushed
from models.training.pretraining import Pretrained, load_pretrained, nothing_to_pretrain
from models.training.stacked_training import train_together
from models.training.workload import load_workload, save_network

# Workloads whose data are held at once: what is trained as one tensor operation is fewer (stacked_training.py).
AT_ONCE = 100


def finetune_workloads(task: SupervisedTask, workloads: Sequence[str], seed: int, features: Path, pretrained: Path,
                       folders: Mapping[str, Path], finished: OnFinished, progress: OnProgress) -> None:
    """Writes network.npz, twin.npz, counterexamples.npz and loop.json into each workload's folder.

    Arguments as of Kind.finetune.
    """
    fresh = nothing_to_pretrain([task.workload(name).hidden for name in workloads], task.training)
    pool = Pretrained((), (), {}) if fresh else load_pretrained(pretrained)
    torch.set_num_threads(1)  # shards run side by side
    with denormals_flushed():
        for first in range(0, len(workloads), AT_ONCE):
            _finetune_together(task, workloads[first: first + AT_ONCE], seed, features, pool, folders, finished,
                               progress)


def _finetune_together(task: SupervisedTask, workloads: Sequence[str], seed: int, features: Path, pool: Pretrained,
                       folders: Mapping[str, Path], finished: OnFinished, progress: OnProgress) -> None:
    loops: dict[str, CounterexampleLoop] = {}

    def begin(name: str) -> None:
        loops[name] = _loop(task, name, seed, features, pool, progress)

    def end(name: str, result: LoopResult | Exception) -> None:
        if isinstance(result, Exception):
            raise result
        _save(result, loops[name].x.shape[1], folders[name])

    for name in workloads:
        if message := attempt(partial(begin, name)):
            finished(name, message)
    begun = list(loops)
    for position, result in train_together(list(loops.values())):
        finished(begun[position], attempt(partial(end, begun[position], result)))


def _loop(task: SupervisedTask, name: str, seed: int, features: Path, pool: Pretrained,
          progress: OnProgress) -> CounterexampleLoop:
    settings, hidden = task.training, task.workload(name).hidden
    data = load_workload(features / name, task, name)
    names, queries = data.scaling.features.names, data.specification.queries
    kind = "monotone" if settings.method == "monotone" else "plain"
    network = pool.start(name, names, hidden, queries, kind, seed)
    twin = pool.start(name, names, hidden, queries, "plain", seed)
    return CounterexampleLoop(network, twin, data.x, data.y, data.specification, settings, seed, progress)


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
