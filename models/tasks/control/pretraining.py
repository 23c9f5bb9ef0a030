"""pretrain: the generic policy over randomised applications, and the rules tuned on the same.

    pretrained.zip    policy.safetensors; pretrained.json: rules with their settings, training history, the choice of seed
"""

import json
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from models.environments.environments import environment_of
from models.learners.policy import Policy
from models.tasks.control.choosing import best_member
from models.tasks.control.policies import first_policy
from models.tasks.control.rule_tuning import TunedRule, tune
from models.tasks.control.task import ControlTask
from models.tasks.control.training import train
from models.tasks.kind import OnProgress
from models.training.denormal_numbers import denormals_flushed

_POLICY, _REST = "policy.safetensors", "pretrained.json"
_NORMALISING_STEPS = 50


@dataclass(frozen=True)
class Pretrained:
    """What all workloads start from.

    Attributes:
        policy: the generic one.
        rules: by name, tuned on the training applications.
        training: history, which seed was chosen, seconds, whether training diverged.
    """

    policy: Policy
    rules: Mapping[str, TunedRule]
    training: Mapping[str, Any]


def pretrain(task: ControlTask, seed: int, output: Path, progress: OnProgress) -> None:
    """Writes the file `output`."""
    environment, settings = environment_of(task.environment), task.training
    torch.set_num_threads(1)
    rules: dict[str, TunedRule] = {}
    for name in environment.rules:
        progress({"done": len(rules) / len(environment.rules), "said": f"rule {name}"})
        rules[name] = tune(task, name, environment, seed)
    with denormals_flushed():
        first = first_policy(task, environment, seed, settings.seeds)
        first.normalise(_observations(task, environment, rules[task.fallback], seed))
        trained = train(task, environment, first, settings.times_budget(settings.updates), seed, progress)
        number, score = best_member(task, environment, trained.policies, seed)
    training = {"history": list(trained.history), "seed_chosen": number, "seeds": settings.seeds,
                "diverged_in_update": trained.diverged, "score": vars(score)}
    save_pretrained(Pretrained(trained.policies.member(number), rules, training), output)


def _observations(task: ControlTask, environment: Any, rule: TunedRule, seed: int) -> torch.Tensor:
    """(T, N, n) of the fallback: what features are normalised by."""
    from models.tasks.control.judging import play, rule_acting

    count = task.training.episodes
    controller = environment.rules[rule.name].make(rule.settings)
    episodes = environment.draw("train", count, _NORMALISING_STEPS, seed)
    played = play(environment, episodes, _NORMALISING_STEPS, rule_acting(environment, controller, count))
    return torch.from_numpy(played.observations)


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
