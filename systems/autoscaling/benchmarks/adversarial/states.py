"""What a policy that is not proved does in adversarial states, in units and plots that an operator understands.

    python -m benchmarks autoscaling-adversarial-states [--seeds 3] [--rounds 100]

Two policies are trained on the same seeds and episodes: `proved` as systems/autoscaling/autoscaling.yaml says, and
`plain`, without gates and demands, what one would train without Assay. Both keep the limits of a step. For each demand
the falsifier finds the worst that the plain policy does, in all that can be observed and near states that occurred
(worst.py); the proved one is asked in the same states; and it is counted in how many steps of held-out episodes, under
made loads, each policy breaks the demand by what an operator sees (demands.py). All of it is computed by onnxruntime on
the exported files.

Resumable: a seed that is there for the same code and options is kept.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from models.control.contract.environment import Environment
from models.control.policy.policy import Gates, Policy
from models.control.training.through_environment import ThroughEnvironment
from models.tasks.control.judging import play
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.task import ControlTask
from models.tasks.control.training import training_settings
from models.tasks.task import load_task
from models.verification.language.broken import missed_by
from models.verification.language.properties import OutputOrder
from systems.autoscaling.benchmarks.adversarial.demands import Array, Row, alone, noticed, rows_of, set_targets
from systems.autoscaling.benchmarks.adversarial.sweeps import sweep
from systems.autoscaling.benchmarks.adversarial.worst import ExportedPolicy, Violation, chosen, swept, worst
from systems.autoscaling.benchmarks.proofs import verdict
from systems.autoscaling.simulator.simulator import Autoscaling

OUTPUT = RESULTS / "autoscaling_adversarial_states.json"
FORMAT = "assay-autoscaling-adversarial-states/1"
FORMS = ("plain", "proved")
APPLICATIONS = 64  # of each policy in a round of training
EPISODES, STEPS, WARM_UP, SEED = 400, 280, 40, 12345  # held-out ones, as those of autoscaling-rules
STARTS = 1000  # states that occurred, near which the falsifier looks
ASKED = 20_000  # states that occurred, in which a signal is swept to see whether a monotone demand is kept
PLACES = 9


def trained(task: ControlTask, environment: Autoscaling, form: str, seeds: int, rounds: int) -> Policy:
    """Policies of one form, side by side."""
    shape = policy_shape(task, environment)
    shape = shape if form == "proved" else replace(shape, gates=Gates())
    settings = replace(training_settings(task, rounds), applications=APPLICATIONS)
    share = task.objective.violating_share
    return ThroughEnvironment(environment.differentiable, environment, shape, settings, list(range(seeds)),
                              [share] * seeds, demands_of(task) if form == "proved" else None).run().policy


@dataclass(frozen=True)
class Seen:
    """What a policy saw and set in held-out episodes: (P, n), (P, m) raw, and means."""

    states: Array
    targets: Array
    violating_share: float
    cost: float


def seen(environment: Environment, policy: ExportedPolicy, episodes: Any, steps: int, warm_up: int) -> Seen:
    """Lets the exported file act."""
    played = play(environment, episodes, steps, policy.acting, warm_up)
    states, targets = (part[warm_up:].reshape(-1, part.shape[-1]).astype(np.float64)
                       for part in (played.observations, played.targets))
    return Seen(states, targets, float(played.violating_share.mean()), float(played.cost.mean()))


@dataclass(frozen=True)
class Occurrence:
    """How often a demand is broken in held-out episodes.

    Attributes:
        states: (P, n) that it is about.
        amounts: (P,) by how much each misses it, as targets are set; not above 0 where it is kept.
        applies: share of all steps that it is about.
        broken: share of these in which an operator sees that it is missed.
    """

    states: Array
    amounts: Array
    applies: float
    broken: float


def occurrence(policy: ExportedPolicy, row: Row, own: Seen) -> Occurrence:
    """Of a policy in its own episodes.

    A monotone demand is about every state, and broken where something is taken away when the signal gets worse from
    where it stands, to as much as the near states of worst.py have it; it is asked in ASKED states.
    """
    shape = policy.shape
    if row.feature is None:
        set_ = set_targets(shape, own.targets)
        found = [missed_by(rule, own.states, set_) for rule in row.rules if isinstance(rule, OutputOrder)]
        about = np.any([where for where, _ in found], axis=0)
        states = own.states[about]
        amounts = np.max([np.where(where, amount, -np.inf) for where, amount in found], axis=0)[about]
        applies = float(about.mean())
    else:
        states, applies = own.states[::max(1, len(own.states) // ASKED)], 1.0
        amounts = _falls(policy, row, row.feature, states)
    broken = noticed(row, shape, states, amounts)
    return Occurrence(states, amounts, applies, float(broken.mean()) if len(broken) else 0.0)


def _falls(policy: ExportedPolicy, row: Row, feature: int, states: Array) -> Array:
    """(P,) by how much the target falls below what it is in the state while the signal gets worse."""
    column = policy.shape.controls.index(row.control)
    low, high = swept(policy.shape, feature, states)
    begin = states[:, feature]
    end = np.maximum(begin, high[:, feature]) if row.worse > 0 else np.minimum(begin, low[:, feature])
    places = np.repeat(states[:, None], PLACES, axis=1)
    places[:, :, feature] = begin[:, None] + (end - begin)[:, None] * np.linspace(0.0, 1.0, PLACES)
    commanded = set_targets(policy.shape, policy.targets(places))[..., column]
    return np.asarray(commanded[:, 0] - commanded.min(axis=1))


def measure_row(policies: Mapping[str, ExportedPolicy], row: Row, held_out: Mapping[str, Seen], folder: Path,
                ) -> dict[str, Any]:
    """One demand on one target: what was found, and how often it occurs."""
    plain = policies["plain"]
    occurred = {form: occurrence(policies[form], row, held_out[form]) for form in FORMS}
    own = occurred["plain"]
    apart = alone(row, plain.shape, own.states)
    starts = chosen(own.states[apart], own.amounts[apart], STARTS, 0)
    found: dict[str, Violation | None] = {"near": worst(plain, row, folder, starts, True)}
    near = found["near"]
    if near is not None:
        starts = np.concatenate([starts, near.states])
    found["anywhere"] = worst(plain, row, folder, starts, False)
    entry = {"demand": row.demand, "control": row.control.name, "current": row.control.current,
             "unit": row.control.unit, "whole": row.control.whole,
             "shares": {form: {"applies": one.applies, "broken": one.broken} for form, one in occurred.items()},
             **{where: None if one is None else _told(policies, row, one) for where, one in found.items()}}
    if near is not None:
        entry["near"]["sweep"] = sweep(policies, row, near)
    return entry


def _told(policies: Mapping[str, ExportedPolicy], row: Row, found: Violation) -> dict[str, Any]:
    """A violation by names, with what each policy sets."""
    shape = policies["plain"].shape
    column = shape.controls.index(row.control)
    names = [signal.name for signal in shape.signals]
    return {"amount": found.amount, "present": float(found.states[0, shape.column(row.control.current)]),
            "states": [dict(zip(names, state.tolist(), strict=True)) for state in found.states],
            "targets": {form: set_targets(shape, policy.targets(found.states))[:, column].tolist()
                        for form, policy in policies.items()}}


def measure(policies: Mapping[str, Policy], rows: Sequence[Row], properties: Sequence[Any], environment: Environment,
            episodes: Any, steps: int = STEPS, warm_up: int = WARM_UP) -> dict[str, Any]:
    """Both policies of one seed."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = {form: ExportedPolicy.of(policies[form], folder / f"{form}.onnx") for form in FORMS}
        held_out = {form: seen(environment, files[form], episodes, steps, warm_up) for form in FORMS}
        found = [measure_row(files, row, held_out, folder) for row in rows]
    for row, entry in zip(rows, found, strict=True):
        refuted = entry["near"] or entry["anywhere"]
        entry["plain"] = "REFUTED" if refuted else verdict(policies["plain"], row.written)["status"]
    return {"proved": verdict(policies["proved"], properties)["status"], "rows": found,
            "held_out": {form: {"violating_share": one.violating_share, "cost": one.cost, "steps": len(one.states)}
                         for form, one in held_out.items()}}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, default=3, help="policies of each form, trained side by side")
    parser.add_argument("--rounds", type=int, default=100, help="of training")


def run(options: argparse.Namespace) -> None:
    """Measures the seeds that are not there yet."""
    code = with_task(
        load_task("autoscaling"),
        code_digest("systems.autoscaling.benchmarks.adversarial.states", "systems.autoscaling.benchmarks"),
        code_digest("models.control.training.through_environment", "models.control"),
        code_digest("models.control.policy.policy_chain", "models.control"))
    wanted = {"code": code, "seeds": options.seeds, "rounds": options.rounds}
    entries = Entries(options.output, FORMAT, lambda entry: entry["seed"],
                      lambda _, entry: wanted.items() <= entry.items())
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    missing = [seed for seed in range(options.seeds) if not entries.has(seed)]
    if not missing:
        return
    task, environment = load_task("autoscaling"), Autoscaling()
    properties = task.specification["properties"]
    rows = rows_of(task, policy_shape(task, environment), properties)
    policies = {form: trained(task, environment, form, options.seeds, options.rounds) for form in FORMS}
    numbers = environment.draw("held_out", EPISODES, 2, 0).numbers.tolist()
    episodes = environment.draw("held_out", EPISODES, STEPS + 1, SEED, applications=numbers)
    for seed in missing:
        found = measure({form: policies[form].member(seed) for form in FORMS}, rows, properties, environment, episodes)
        entries.add({"seed": seed, **found, **wanted})
        print(f"seed {seed}: {_summary(found)}", flush=True)


def _summary(found: Mapping[str, Any]) -> str:
    broken = sum(row["plain"] == "REFUTED" for row in found["rows"])
    return f"proved policy {found['proved']}, plain one refuted in {broken} of {len(found['rows'])} rows"
