"""pretrain: the generic policy over randomised applications, and the rules tuned on the same.

    pretrained.zip    policy.npz; pretrained.json: tuned rules, training history, which policy was chosen
"""

import json
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.tasks.control.choosing import best_of, member_scores
from models.tasks.control.experience import of_fallback
from models.tasks.control.held_out import on_held_out_applications
from models.tasks.control.task import ControlTask
from models.tasks.control.training import never_acts, train
from models.tasks.control.tuned_rule import TunedRule, tune
from models.tasks.kind import OnProgress
from models.training.denormal_numbers import denormals_flushed

_POLICY, _REST = "policy.npz", "pretrained.json"


@dataclass(frozen=True)
class Pretrained:
    """What all workloads start from.

    Attributes:
        policy: the generic one.
        rules: by name, tuned on the training applications.
        training: history, the policies that were trained, which was chosen, why training stopped early.
    """

    policy: Policy
    rules: Mapping[str, TunedRule]
    training: Mapping[str, Any]


def pretrain(task: ControlTask, seed: int, output: Path, checkpoints: Path, progress: OnProgress) -> None:
    """Writes the file `output`."""
    environment, settings = environment_of(task.environment), task.training
    torch.set_num_threads(1)
    rules: dict[str, TunedRule] = {}
    for name in environment.rules:
        progress({"done": len(rules) / len(environment.rules), "said": f"rule {name}"})
        rules[name] = tune(task, name, environment, seed)
    with denormals_flushed():
        rounds = settings.times_budget(settings.rounds)
        watched = of_fallback(task, environment, rules[task.fallback], rounds, seed) if never_acts(task) else None
        trained = train(task, environment, rounds, seed, checkpoints / "policy.npz", progress, experience=watched)
        scores = member_scores(task, environment, trained.policies, seed)
        number = best_of(task, scores)
    training = {"method": task.training.method, "experience": None if watched is None else len(watched),
                "history": list(trained.history), "stopped": trained.stopped, "chosen": number,
                "policies": [{"aim": aim, **vars(score)} for aim, score in zip(trained.aims, scores, strict=True)],
                "held_out": on_held_out_applications(task, environment, trained, number, rules)}
    save_pretrained(Pretrained(trained.policies.member(number), rules, training), output)


def save_pretrained(made: Pretrained, path: Path) -> None:
    """The same content gives the same bytes."""
    rest = {"rules": [rule.to_json() for rule in made.rules.values()], "training": dict(made.training)}
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path, "w") as archive:
        made.policy.save(Path(folder) / _POLICY)
        archive.writestr(zipfile.ZipInfo(_POLICY), (Path(folder) / _POLICY).read_bytes())
        archive.writestr(zipfile.ZipInfo(_REST), json.dumps(rest))


def load_pretrained(path: Path) -> Pretrained:
    """Reads what `save_pretrained` wrote."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
        policy, rest = Policy.load(Path(folder) / _POLICY), json.loads((Path(folder) / _REST).read_text())
    rules = {rule.name: rule for rule in map(TunedRule.from_json, rest["rules"])}
    return Pretrained(policy, rules, rest["training"])
