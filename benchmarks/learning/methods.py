"""The methods of the learning benchmark, and the task that a data set gives each of them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from benchmarks.learning import lipschitz_monotone
from models.tasks.task import parse_task
from pipelines.request import ROOT

# What decides how a learner comes out; the rest of the code may change between two runs of this benchmark.
LEARNING_CODE = ("models/learners", "models/training", "models/verification", "models/tasks", "models/export",
                 "feature_store/features.py", "feature_store/splits.py", "feature_store/scaling.py",
                 "feature_store/cleaning.py")


@dataclass(frozen=True)
class Method:
    """Training settings that differ from the task's, what it is, and its cost beside the others', for the order.

    peer: another project's learner (lipschitz_monotone.py), which our verifier cannot read.
    """

    overrides: Mapping[str, Any]
    meaning: str
    expected_cost: float
    peer: bool = False


METHODS: dict[str, Method] = {
    "monotone": Method({"method": "monotone"}, "monotone by construction, pretrained", 1.0),
    "counterexample_guided": Method({"method": "counterexample_guided"},
                                    "trained, verified, counterexamples added, repeated (Algorithm 1)", 3.0),
    "certified": Method({"method": "certified"}, "a loss on certified bounds of the derivatives", 3.0),
    "certified_guided": Method({"method": "certified_guided"}, "Algorithm 1, started from certified training", 3.5),
    "plain": Method({"method": "plain"}, "never verified in training", 1.1),
    "monotone_not_pretrained": Method({"method": "monotone", "pretrain_epochs": 0},
                                      "monotone by construction, without pretraining", 1.0),
    "lipschitz_monotone": Method({"method": "plain", "pretrain_epochs": 0},
                                 "Lipschitz monotone network, a peer's", 8.0, peer=True),
}


@dataclass(frozen=True)
class MethodTask:
    """A method's task as text, its workloads, its training settings in full."""

    text: str
    workloads: tuple[str, ...]
    settings: dict[str, Any]

    @property
    def pretrain_epochs(self) -> int:
        return int(self.settings["pretrain_epochs"])


def make_tasks(task: Mapping[str, Any], methods: Sequence[str], settings: Mapping[str, Any]) -> dict[str, MethodTask]:
    """A data set's task for each method; `settings` overrule its training where not None.

    A method that this task makes equal to an earlier one is left out: without pretraining, where none is planned.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    tasks: dict[str, MethodTask] = {}
    for method in methods:
        training = {**(task.get("training") or {}), **given, **METHODS[method].overrides}
        content = {**task, "training": training}
        parsed = parse_task(content, f"method {method}")
        own = parsed.training.model_dump() | (lipschitz_monotone.own_settings() if METHODS[method].peer else {})
        if all(own != earlier.settings for earlier in tasks.values()):
            tasks[method] = MethodTask(yaml.safe_dump(content, sort_keys=False), tuple(parsed.workloads), own)
    return tasks


def learning_code_version() -> str:
    """Digest of the files under LEARNING_CODE."""
    digest = hashlib.sha256()
    for name in LEARNING_CODE:
        path = ROOT / name
        for file in [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.yaml")]):
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
