"""One entry of the learning benchmark: the pipeline's steps for one method, seed and workload, in one process.

    work/<seed>/features            split and scaled once a seed, by the data gate's rules
    work/<seed>/pretrained-<epochs> shared backbones, the same for every method
"""

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.measurements.task_file import read_task
from components.progress import PROGRESS_VARIABLE
from components.workload_status import failure
from models.tasks.task import parse_task
from pipelines.request import ROOT, code_version

# What decides how a learner comes out; the rest of the code may change between two runs of this benchmark.
LEARNING_CODE = ("models/learners", "models/training", "models/verification", "models/tasks", "models/export",
                 "feature_store/features.py", "feature_store/splits.py", "feature_store/scaling.py",
                 "feature_store/cleaning.py")


@dataclass(frozen=True)
class Method:
    """Training settings that differ from the task's, what it is, and its cost beside the others', for the order."""

    overrides: Mapping[str, Any]
    meaning: str
    expected_cost: float


METHODS: dict[str, Method] = {
    "monotone": Method({"method": "monotone"}, "monotone by construction, pretrained", 1.0),
    "counterexample_guided": Method({"method": "counterexample_guided"},
                                    "trained, verified, counterexamples added, repeated (Algorithm 1)", 3.0),
    "plain": Method({"method": "plain"}, "never verified in training", 1.1),
    "monotone_not_pretrained": Method({"method": "monotone", "pretrain_epochs": 0},
                                      "monotone by construction, without pretraining", 1.0),
}


@dataclass(frozen=True)
class Job:
    """Which entry."""

    method: str
    seed: int
    workload: str


@dataclass(frozen=True)
class MethodTask:
    """A method's task as text, its workloads, its training settings in full."""

    text: str
    workloads: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def pretrain_epochs(self) -> int:
        return int(self.settings["pretrain_epochs"])


@dataclass(frozen=True)
class Prepared:
    """What all jobs share: a folder, the telemetry, and the task of each method."""

    work: Path
    telemetry: str
    tasks: Mapping[str, MethodTask]


def make_tasks(methods: Sequence[str], settings: Mapping[str, Any]) -> dict[str, MethodTask]:
    """The performance task for each method; `settings` overrule the task's training where not None."""
    given = {name: value for name, value in settings.items() if value is not None}
    tasks = {}
    for method in methods:
        content = read_task()
        content["training"] = {**(content.get("training") or {}), **given, **METHODS[method].overrides}
        parsed = parse_task(content, f"method {method}")
        tasks[method] = MethodTask(yaml.safe_dump(content, sort_keys=False), tuple(parsed.workloads),
                                   asdict(parsed.training))
    return tasks


def learning_code_version() -> str:
    """Digest of the files under LEARNING_CODE."""
    digest = hashlib.sha256()
    for name in LEARNING_CODE:
        path = ROOT / name
        for file in [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.yaml")]):
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def prepare(prepared: Prepared, seed: int) -> None:
    """Ingests, validates and featurizes for one seed."""
    from components.featurize import run_featurize
    from components.ingest import run_ingest
    from components.validate import run_validate

    folder = _silently(prepared, seed)
    task = next(iter(prepared.tasks.values()))
    workloads = list(task.workloads)
    run_ingest(prepared.telemetry, "", folder / "samples")
    run_validate(task.text, workloads, folder / "samples", folder / "validated", folder / "data-docs")
    run_featurize(task.text, workloads, seed, folder / "validated", folder / "features")


def run_pretraining(prepared: Prepared, method: str, seed: int) -> None:
    """Backbones of one seed and number of epochs."""
    from components.pretrain import run_pretrain

    folder, task = _silently(prepared, seed), prepared.tasks[method]
    run_pretrain(task.text, seed, folder / "features", _pretrained(folder, task))


def run_job(prepared: Prepared, job: Job) -> dict[str, Any]:
    """The entry, or {"status": "failed", "error"} where a step says that the workload is lost."""
    from components.export import run_export
    from components.finetune import run_finetune
    from components.verify import run_verify

    folder, task = _silently(prepared, job.seed), prepared.tasks[job.method]
    features, own = folder / "features", folder / f"{job.method}-{job.workload}"
    clock = time.perf_counter()
    run_finetune(task.text, job.workload, job.seed, features, _pretrained(folder, task), own / "learner")
    run_verify(task.text, job.workload, job.seed, features, own / "learner", own / "verified")
    run_export(task.text, job.workload, job.seed, code_version(), features, own / "verified", own / "bundle")
    seconds = time.perf_counter() - clock
    lost = failure(own / "bundle")
    if lost:
        return {**asdict(job), "status": "failed", "error": f"{lost['step']}: {lost['message']}"}
    evidence = json.loads((own / "bundle" / "evidence.json").read_text())
    metrics = {**evidence["metrics"], **_on_own_counterexamples(task, job, features, own / "verified")}
    shutil.rmtree(own)
    return {**asdict(job), "status": "done", "seconds": round(seconds, 2), "verdict": evidence["verdict"]["status"],
            "twin_verdict": evidence["twin_verdict"]["status"], "metrics": _finite(metrics),
            "rows": {side: evidence["data"][f"{side}_rows"] for side in ("train", "test")}}


def _on_own_counterexamples(task: MethodTask, job: Job, features: Path, verified: Path) -> dict[str, float]:
    """Accuracy on what the verifier found on the learner alone, as in vPALs: the twin was not attacked for it.

    The evidence's set also holds what was found on the twin itself, which the twin gets wrong by selection.
    Empty where the verifier found nothing, as on a network that is monotone by construction.
    """
    from models.training.counterexample_loop import counterexample_accuracy
    from models.training.workload import load_network, load_workload

    loop = json.loads((verified / "loop.json").read_text())
    limit = int(task.settings["counterexamples_per_iteration"])
    count = sum(min(one["counterexamples"], limit) for one in loop["rounds"])  # the learner's stand first
    if not count:
        return {"own_counterexamples": 0.0}
    with np.load(verified / "counterexamples.npz", allow_pickle=False) as stored:
        pairs = {name: stored[name][:count] for name in stored.files}
    tolerance = load_workload(features / job.workload, parse_task(yaml.safe_load(task.text), "task"),
                              job.workload).specification.tolerance
    return {"own_counterexamples": float(count)} | {
        f"own_{prefix}counterexample_accuracy": counterexample_accuracy(load_network(verified / name), pairs, tolerance)
        for prefix, name in (("", "network.npz"), ("twin_", "twin.npz"))}


def _silently(prepared: Prepared, seed: int) -> Path:
    """The seed's folder; progress events go to a file in it instead of the terminal."""
    folder = prepared.work / str(seed)
    folder.mkdir(exist_ok=True)
    os.environ[PROGRESS_VARIABLE] = str(folder / "events.jsonl")
    return folder


def _pretrained(folder: Path, task: MethodTask) -> Path:
    return folder / f"pretrained-{task.pretrain_epochs}"


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics as strict JSON: null where a number is not finite."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


