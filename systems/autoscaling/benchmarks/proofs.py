"""How long the default specification of the autoscaler takes to prove, and whether fine-tuning leaves it proved.

    python -m benchmarks autoscaling-proofs [--policies 8] [--rounds 30] [--finetune-rounds 6]

Policies of several seeds are trained side by side, monotone by construction (monotone.py in
models/control/training); each is then fine-tuned for one application, once as it was trained and once plainly,
from the same weights on the same episodes. Every exported file is decided against the specification of
systems/autoscaling/autoscaling.yaml, with its certificate. The rules under conditions are part of the network in all
of them (models/control/policy/policy.py).
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from models.control.contract.environment import Environment
from models.control.policy.policy import Policy, PolicyShape
from models.control.policy.policy_chain import chain
from models.control.policy.policy_model import chain_onnx
from models.control.training.monotone import Demands, NoDemands
from models.control.training.through_environment import Settings, ThroughEnvironment
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.training import training_settings
from models.tasks.task import load_task
from models.verification.decide import decide
from systems.autoscaling.simulator.simulator import Autoscaling

OUTPUT = RESULTS / "autoscaling_proofs.json"
FORMAT = "assay-autoscaling-proofs/1"
TASK = Path(__file__).parents[3] / "systems/autoscaling/autoscaling.yaml"
SECONDS, VIOLATING = 20.0, 0.02


class Each:
    """The environment in which policy k of K meets application k alone."""

    def __init__(self, environment: Environment, numbers: Sequence[int]) -> None:
        self._environment, self._numbers = environment, list(numbers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Any:
        """As of the environment; of what was held out of training, whatever the split: these are fine-tuned for."""
        each = count // len(self._numbers)
        chosen = [number for number in self._numbers for _ in range(each)]
        return self._environment.draw("held_out", len(chosen), steps, seed, scenario, chosen)


def verdict(policy: Policy, properties: Sequence[Any]) -> dict[str, Any]:
    """What the specification is decided to be of the exported file, and how long it took."""
    shape = policy.shape
    with tempfile.TemporaryDirectory() as folder:
        model, specification = Path(folder, "model.onnx"), Path(folder, "specification.yaml")
        model.write_bytes(chain_onnx(*chain(policy), {}))
        specification.write_text(yaml.safe_dump({
            "features": [signal.name for signal in shape.signals], "outputs": [one.name for one in shape.controls],
            "box": {signal.name: [signal.low, signal.high] for signal in shape.signals}, "properties": properties}))
        started = time.monotonic()
        found = decide(model, specification, SECONDS, certificate=Path(folder, "proof.npz"))
    return {"status": str(found.status), "seconds": time.monotonic() - started,
            "proving_seconds": sum(part.seconds for part in found.parts),
            "boxes": sum(part.boxes for part in found.parts)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--policies", type=int, default=8, help="seeds, and applications to fine-tune for")
    parser.add_argument("--rounds", type=int, default=30, help="of training")
    parser.add_argument("--finetune-rounds", type=int, default=6, help="of fine-tuning, an episode each")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    code = with_task(load_task("autoscaling"), code_digest("systems.autoscaling.benchmarks.proofs", "models.control"),
                     code_digest("models.control.policy.policy_chain", "models.control"))
    wanted = {"code": code, "policies": options.policies, "rounds": options.rounds,
              "finetune_rounds": options.finetune_rounds}
    entries = Entries(options.output, FORMAT, lambda entry: 0, lambda _, entry: wanted.items() <= entry.items())
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    if not entries.has(0):
        entries.add({**measure(options.policies, options.rounds, options.finetune_rounds), **wanted})


def measure(policies: int, rounds: int, finetune_rounds: int) -> dict[str, Any]:
    """Verdicts of all policies, trained and fine-tuned in both ways."""
    written = yaml.safe_load(TASK.read_text())
    task, environment = load_task("autoscaling"), Autoscaling()
    shape, monotone = policy_shape(task, environment), demands_of(task)
    seeds, targets = list(range(policies)), [VIOLATING] * policies
    settings = replace(training_settings(task, rounds), judged_from=1.0, applications=32)
    trained = ThroughEnvironment(environment.differentiable, environment, shape, settings, seeds, targets,
                                 monotone).run()
    numbers = environment.draw("held_out", policies, 2, 1).numbers.tolist()
    own, judge = Each(environment.differentiable, numbers), environment
    found: dict[str, Any] = {"trained": _all(trained.policy, written)}
    ways: dict[str, Demands] = {"finetuned_monotone": monotone, "finetuned_plainly": NoDemands()}
    for name, demands in ways.items():
        tuned = _finetuned(own, judge, shape, replace(settings, rounds=finetune_rounds), seeds, targets, demands,
                           trained.policy)
        found[name] = _all(tuned, written)
        print(name, [one["status"] for one in found[name]], flush=True)
    return found


def _finetuned(own: Any, judge: Environment, shape: PolicyShape, settings: Settings, seeds: Sequence[int],
               targets: Sequence[float], demands: Demands, start: Policy) -> Policy:
    run = ThroughEnvironment(own, judge, shape, settings, seeds, targets, demands, start)
    run.run()
    return run.state.policy


def _all(policies: Policy, written: Any) -> list[dict[str, Any]]:
    return [verdict(policies.member(k), written["specification"]["properties"]) for k in range(policies.members[0])]
