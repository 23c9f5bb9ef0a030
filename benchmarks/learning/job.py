"""One entry of the learning benchmark: the pipeline's steps for one method, seed and workload, in one process.

    work/<data>/<seed>/features                  split and scaled once a seed, by the data gate's rules
    work/<data>/<seed>/pretrained-<epochs>       shared backbones, the same for every method
    work/<data>/<seed>/pretrained-<epochs>.json  seconds that they took

Seconds until PROVED: those of the learner alone, its twin and the baseline left out: training, its share of the
pretraining, the verifications in the loop, the final proof, and the check of its certificate on the exported file.
"""

import json
import math
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.learning import lipschitz_monotone
from benchmarks.learning.data_sets import DataSet
from benchmarks.learning.methods import METHODS, MethodTask
from components.progress import PROGRESS_VARIABLE
from models.tasks.supervised.task import SupervisedTask
from models.tasks.task import parse_task
from pipelines.request import code_version

if TYPE_CHECKING:
    from models.training.workload import Workload

BY_CONSTRUCTION = "by construction (not checked)"
KINDS_OF_BACKBONE = 2  # pretraining makes the verified learners' and the twins'


@dataclass(frozen=True)
class Job:
    """Which entry."""

    data: str
    method: str
    seed: int
    workload: str


@dataclass(frozen=True)
class Prepared:
    """What all jobs share: a folder, the data sets by name, and for each of them the task of each method."""

    work: Path
    data: Mapping[str, DataSet]
    tasks: Mapping[str, Mapping[str, MethodTask]]


def prepare(prepared: Prepared, data: str, seed: int) -> None:
    """Ingests, validates and featurizes a data set for one seed."""
    from components.featurize import run_featurize
    from components.ingest import run_ingest
    from components.validate import run_validate

    folder, source = _silently(prepared, data, seed), prepared.data[data]
    task = next(iter(prepared.tasks[data].values()))
    workloads = list(task.workloads)
    run_ingest(task.text, str(source.telemetry), source.mapping_yaml, folder / "samples")
    run_validate(task.text, workloads, folder / "samples", folder / "validated", folder / "data-docs")
    run_featurize(task.text, workloads, seed, folder / "validated", folder / "features")


def run_pretraining(prepared: Prepared, data: str, method: str, seed: int) -> None:
    """Backbones of one data set, seed and number of epochs."""
    from components.pretrain import run_pretrain

    folder, task = _silently(prepared, data, seed), prepared.tasks[data][method]
    clock = time.perf_counter()
    run_pretrain(task.text, seed, code_version(), folder / "features", _pretrained(folder, task))
    _pretrained(folder, task).with_suffix(".json").write_text(json.dumps(time.perf_counter() - clock))


def find_directions(prepared: Prepared, data: str, seed: int, workload: str) -> dict[str, Any]:
    """What a workload's training side says about its specification's directions (directions.py); {} if it is lost."""
    from benchmarks.learning.directions import measure_directions

    folder = _silently(prepared, data, seed) / "features"
    if _lost(folder, workload):
        return {}
    loaded = _load(prepared, Job(data, next(iter(prepared.tasks[data])), seed, workload))
    return measure_directions(loaded.x, loaded.y, _groups(folder / workload, prepared.data[data]),
                              loaded.specification.queries, loaded.scaling.features.names, seed)


def run_job(prepared: Prepared, job: Job) -> dict[str, Any]:
    """The entry, or {"status": "failed", "error"} where a step says that the workload is lost."""
    from components.workload_status import failure

    folder = _silently(prepared, job.data, job.seed)
    if message := _lost(folder / "features", job.workload):
        return {**asdict(job), "status": "failed", "error": f"featurize: {message}"}
    clock = time.perf_counter()
    if METHODS[job.method].peer:
        made = _peer(prepared, job)
    else:
        job_folder = folder / f"{job.method}-{job.workload}"
        _run_steps(prepared, job, job_folder)
        lost = failure(job_folder / "bundle" / job.workload)
        if lost:
            return {**asdict(job), "status": "failed", "error": f"{lost['step']}: {lost['message']}"}
        made = _entry(prepared, job, job_folder)
        shutil.rmtree(job_folder)
    made["metrics"] = _finite({**made["metrics"], **_constant_scores(prepared, job)})
    return {**asdict(job), "status": "done", "seconds": round(time.perf_counter() - clock, 2), **made}


def _run_steps(prepared: Prepared, job: Job, job_folder: Path) -> None:
    from components.export import run_export
    from components.finetune import run_finetune
    from components.verify import run_verify

    folder, task = _folder(prepared, job.data, job.seed), prepared.tasks[job.data][job.method]
    features = folder / "features"
    run_finetune(task.text, [job.workload], job.seed, code_version(), features, _pretrained(folder, task),
                 job_folder / "learner")
    run_verify(task.text, [job.workload], job.seed, code_version(), features, job_folder / "learner",
               job_folder / "verified")
    run_export(task.text, [job.workload], job.seed, code_version(), "", features, job_folder / "verified",
               job_folder / "bundle")


def _entry(prepared: Prepared, job: Job, job_folder: Path) -> dict[str, Any]:
    """Verdicts, metrics and rows of the exported bundle."""
    evidence = json.loads((job_folder / "bundle" / job.workload / "evidence.json").read_text())
    folder, task = _folder(prepared, job.data, job.seed), prepared.tasks[job.data][job.method]
    metrics = {**evidence["metrics"], **_on_own_counterexamples(prepared, job, job_folder / "verified" / job.workload)}
    pretraining = json.loads(_pretrained(folder, task).with_suffix(".json").read_text())
    share = 1 / len(task.workloads) / KINDS_OF_BACKBONE if task.pretrain_epochs else 0.0
    metrics |= {"pretraining_seconds": pretraining * share,
                "proof_seconds": evidence["verdict"]["seconds"]}
    if evidence["verdict"]["status"] == "PROVED":
        metrics["checking_seconds"] = _check_again(job_folder / "bundle" / job.workload)
        metrics["proved_seconds"] = sum(metrics[f"{part}_seconds"] for part in
                                        ("training", "pretraining", "verification", "proof", "checking"))
    return {"verdict": evidence["verdict"]["status"], "twin_verdict": evidence["twin_verdict"]["status"],
            "metrics": metrics, "rows": {side: evidence["data"][f"{side}_rows"] for side in ("train", "test")}}


def _check_again(bundle: Path) -> float:
    """Seconds that the independent checker takes for the proof."""
    from models.verification.proof_file import check_proof

    clock = time.perf_counter()
    result = check_proof(bundle / "proof.npz", bundle / "model.onnx", bundle / "specification.yaml")
    seconds = time.perf_counter() - clock
    if not result.accepted:
        raise ValueError(f"a proof must pass its check again, got {result.reason}")
    return seconds


def _peer(prepared: Prepared, job: Job) -> dict[str, Any]:
    """The peer's learner on the same split, and the baseline beside it."""
    import torch

    from models.training.baseline import monotone_gradient_boosting
    from models.training.denormal_numbers import denormals_flushed
    from models.training.evaluation import scores

    data, task = _load(prepared, job), _task(prepared, job)
    group = _groups(_folder(prepared, job.data, job.seed) / "features" / job.workload, prepared.data[job.data])
    chosen = np.random.default_rng(job.seed).permutation(group.max() + 1)
    held_out = chosen[group] < lipschitz_monotone.HELD_OUT_SHARE * len(chosen)
    queries, tolerance = data.specification.queries, task.accuracy_tolerance
    torch.set_num_threads(1)
    with denormals_flushed():  # as the step finetune does for our learners
        trained = lipschitz_monotone.tune_and_train(data.x, data.y, held_out, queries,
                                                    task.workload(job.workload).hidden, task.training, job.seed)
    baseline = monotone_gradient_boosting(data.x, data.y, queries, job.seed)
    metrics = {**scores("train", trained.predict, data.x, data.y, tolerance),
               **scores("test", trained.predict, data.x_test, data.y_test, tolerance),
               **scores("baseline", baseline.predict, data.x_test, data.y_test, tolerance),
               "training_seconds": trained.training_seconds, "tuning_seconds": trained.tuning_seconds,
               "learning_rate": trained.learning_rate, "lipschitz_constant": trained.constant}
    return {"verdict": BY_CONSTRUCTION, "metrics": metrics, "rows": {"train": len(data.x), "test": len(data.x_test)}}


def _constant_scores(prepared: Prepared, job: Job) -> dict[str, float]:
    """Of the training side's mean as the prediction: what any error of this workload is to be read against."""
    from models.training.evaluation import scores

    data = _load(prepared, job)
    mean = float(data.y.mean())
    return scores("constant", lambda x: np.full(len(x), mean), data.x_test, data.y_test,
                  _task(prepared, job).accuracy_tolerance)


def _on_own_counterexamples(prepared: Prepared, job: Job, verified: Path) -> dict[str, float]:
    """Accuracy on what the verifier found on the learner alone, as in vPALs: the twin was not attacked for it.

    The evidence's set also holds what was found on the twin itself, which the twin gets wrong by selection.
    Empty where the verifier found nothing, as on a network that is monotone by construction.
    """
    from models.training.counterexample_loop import counterexample_accuracy
    from models.training.workload import load_network

    loop = json.loads((verified / "loop.json").read_text())
    limit = _task(prepared, job).training.counterexamples_per_iteration
    count = sum(min(one["counterexamples"], limit) for one in loop["rounds"])  # the learner's stand first
    if not count:
        return {"own_counterexamples": 0.0}
    with np.load(verified / "counterexamples.npz", allow_pickle=False) as stored:
        pairs = {name: stored[name][:count] for name in stored.files}
    tolerance = _load(prepared, job).specification.tolerance
    return {"own_counterexamples": float(count)} | {
        f"own_{prefix}counterexample_accuracy": counterexample_accuracy(load_network(verified / name), pairs, tolerance)
        for prefix, name in (("", "network.npz"), ("twin_", "twin.npz"))}


def _silently(prepared: Prepared, data: str, seed: int) -> Path:
    """The seed's folder; progress events go to a file in it instead of the terminal."""
    folder = _folder(prepared, data, seed)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[PROGRESS_VARIABLE] = str(folder / "events.jsonl")
    return folder


def _folder(prepared: Prepared, data: str, seed: int) -> Path:
    return prepared.work / data / str(seed)


def _task(prepared: Prepared, job: Job) -> SupervisedTask:
    return parse_task(yaml.safe_load(prepared.tasks[job.data][job.method].text), "task")


def _load(prepared: Prepared, job: Job) -> "Workload":
    """The workload's scaled data, as training reads them."""
    from models.training.workload import load_workload

    features = _folder(prepared, job.data, job.seed) / "features"
    return load_workload(features / job.workload, _task(prepared, job), job.workload)


def _groups(folder: Path, data: DataSet) -> np.ndarray:
    """(m,) int, from 0: rows of the training side with equal keys of the split."""
    keys = list(parse_task(dict(data.task), "task").split_by)
    return np.asarray(pd.read_parquet(folder / "train.parquet", columns=keys).groupby(keys, sort=False).ngroup())


def _lost(features: Path, workload: str) -> str:
    """Why the data gate or the split stopped a workload; "" where neither did."""
    return str(json.loads((features / "status.json").read_text())[workload])


def _pretrained(folder: Path, task: MethodTask) -> Path:
    return folder / f"pretrained-{task.pretrain_epochs}"


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics as strict JSON: null where a number is not finite."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


