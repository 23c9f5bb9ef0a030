"""The generic policy of a control task beside its rules, on applications that neither was trained or tuned on.

    python -m benchmarks cpu-frequency-policies [--seeds 3]

What `assay run` does before it comes to a workload: rules tuned and policies trained on the training applications, the
policy that stays chosen there, and all of them in the same held-out episodes (models/tasks/control/held_out.py), once
for each seed of training and tuning. A system's own benchmark names its task (`measure`). Resumable: a seed that
is there for the same code is kept.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import mean_and_spread, paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from models.tasks.control.pretraining import load_pretrained, pretrain
from models.tasks.task import load_task

FORMAT = "assay-generic-policies/1"
SEEDS = 3
POLICY = "policy"


def output_of(task: str) -> Path:
    """Result file of a task."""
    return RESULTS / f"{task}_policies.json"


def add_seeds(parser: argparse.ArgumentParser) -> None:
    """The option of all such benchmarks."""
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of training and tuning; default: {SEEDS}")


def measure(name: str, options: argparse.Namespace) -> None:
    """Measures what is not there yet. name: of a task that comes with Assay."""
    task = load_task(name)
    code = with_task(task, code_digest("models.tasks.control.pretraining", "models"),
                     code_digest(f"systems.{name}.environment", (f"systems.{name}", "models.control")))
    entries = Entries(options.output, FORMAT, lambda one: one["seed"], made_by(code))
    entries.content |= {"machine": describe_machine(), "date": now_utc(), "task": name,
                        "violating_share": task.objective.violating_share}
    for seed in range(options.seeds):
        if entries.has(seed):
            continue
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = Path(folder) / "checkpoints"
            checkpoints.mkdir()
            pretrain(task, seed, Path(folder) / "made", checkpoints, lambda event: None)
            made = load_pretrained(Path(folder) / "made")
        found = made.training["held_out"]
        entries.add({"seed": seed, "code": code, "method": made.training["method"], "best_rule": found["best_rule"],
                     "metrics": found["metrics"], "episodes": found["episodes"],
                     "controllers": {who: one["figures"] for who, one in found["controllers"].items()}})
        print(f"seed {seed}: {found['best_rule']} is the best rule, cost saved {found['metrics']['cost_saved']:.2%}",
              flush=True)


def policies_table(results: Mapping[str, Any]) -> str:
    """A row a controller, least cost first: means over the seeds, and the spread of these."""
    entries: Sequence[Mapping[str, Any]] = results["entries"]
    names = [name for name in entries[0]["controllers"] if all(name in one["controllers"] for one in entries)]

    def of(name: str, figure: str) -> list[float]:
        return [one["controllers"][name][figure][0] for one in entries]

    rows = [[f"**{name}**" if name == POLICY else name, mean_and_spread(of(name, "cost"), 3),
             f"{mean_and_spread(of(name, 'violating_share'), 2, 100.0)} %", mean_and_spread(of(name, "reward"), 3)]
            for name in sorted(names, key=lambda name: sum(of(name, "cost")))]
    saved = [100.0 * one["metrics"][f"cost_saved{end}"] for end in ("_lower", "", "_upper") for one in entries]
    third = len(entries)
    against = "; ".join(f"{saved[third + at]:.2g} % ({saved[at]:.2g} to {saved[2 * third + at]:.2g}) of "
                        f"{entries[at]['best_rule']}" for at in range(third))
    return "\n".join([
        table(("controller", "cost", "violating steps", "reward"), rows, (1, 2, 3)), "",
        paragraph(f"Means of {third} seeds of training and tuning ± their standard deviation, "
                  f"{entries[0]['episodes']} held-out episodes each; at most "
                  f"{100 * results['violating_share']:g} % of the steps may violate. The episodes are the same for all "
                  "seeds.",
                  "Cost that the policy saves against the best rule at its violations, each end of an interval at "
                  f"99 %, by seed: {against}."),
    ])
