"""finetune: the generic policy in a workload's own environment; what it becomes there ships unless that is worse.

Worse: on the same training episodes (choosing.py), or no longer proved.
"""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from models.control.contract.environment import Environment
from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.export.bundle import write_bundle
from models.export.product import Versions
from models.tasks.attempts import attempt
from models.tasks.control.choosing import best_of, better, member_scores
from models.tasks.control.experience import of_fallback, of_log
from models.tasks.control.policies import with_limits
from models.tasks.control.pretraining import Pretrained, load_pretrained
from models.tasks.control.product import policy_product, write_learner
from models.tasks.control.task import ControlTask
from models.tasks.control.training import never_acts, train
from models.tasks.control.tuned_rule import TunedRule, tune
from models.tasks.control.workload import twin_of
from models.tasks.kind import OnFinished, OnProgress
from models.training.denormal_numbers import denormals_flushed
from models.verification.verdict import Status


def finetune(task: ControlTask, workloads: Sequence[str], seed: int, features: Path, pretrained: Path,
             folders: Mapping[str, Path], checkpoints: Path, finished: OnFinished, progress: OnProgress) -> None:
    """Arguments as of `Kind.finetune`."""
    start = load_pretrained(pretrained)
    torch.set_num_threads(1)  # shards run side by side
    for name in workloads:
        def work(name: str) -> None:
            _finetune_one(task, name, seed, features, start, folders[name], checkpoints / name, progress)

        with denormals_flushed():
            finished(name, attempt(partial(work, name)))


def _finetune_one(task: ControlTask, name: str, seed: int, features: Path, start: Pretrained, folder: Path,
                  checkpoints: Path, progress: OnProgress) -> None:
    environment, settings = twin_of(task, name, features), task.training
    own = {rule: tune(task, rule, environment, seed) for rule in environment_of(task.environment).rules}
    generic = with_limits(start.policy, environment)
    policy, choice = generic, {"taken": "generic", "reason": "fine-tuning is switched off"}
    if rounds := settings.times_budget(settings.finetune_rounds):
        policy, choice = _better(task, name, environment, generic, rounds, seed, own, checkpoints, progress, features)
    write_learner(folder, policy, {**choice, "pretraining": dict(start.training)}, start.rules, own)


def _better(task: ControlTask, name: str, environment: Environment, generic: Policy, rounds: int, seed: int,
            rules: Mapping[str, TunedRule], checkpoints: Path, progress: OnProgress,
            features: Path) -> tuple[Policy, dict[str, Any]]:
    """The fine-tuned policy or the generic one, and why."""
    known = of_log(task, name, environment, features)
    if known is None and never_acts(task):
        known = of_fallback(task, environment, rules[task.fallback_of(name)], rounds, seed)
    trained = train(task, environment, rounds, seed + 1, checkpoints / "policy.npz", progress, generic, known)
    scores = member_scores(task, environment, trained.policies, seed)
    tuned = trained.policies.member(best_of(task, scores, task.training.finetune_reward_weight))
    found = better(task, environment, tuned, generic, seed)
    choice: dict[str, Any] = {"experience": None if known is None else len(known),
                              "history": list(trained.history), "stopped": trained.stopped,
                              "policies": [{"aim": aim, **vars(score)}
                                           for aim, score in zip(trained.aims, scores, strict=True)]}
    if not found.taken:
        return generic, {**choice, "taken": "generic", "reason": found.reason}
    status = _proved(task, name, environment, tuned, rules[task.fallback_of(name)])
    if status is not Status.PROVED:
        return generic, {**choice, "taken": "generic", "reason": f"{found.reason}; but {status}, not PROVED"}
    return tuned, {**choice, "taken": "finetuned", "reason": found.reason}


def _proved(task: ControlTask, name: str, environment: Environment, policy: Policy, fallback: TunedRule) -> Status:
    with tempfile.TemporaryDirectory() as folder:
        product = policy_product(task, name, environment, policy, Versions("", "", 0), fallback)
        return write_bundle(Path(folder) / "product", product, 0, lambda part, state: None).status
