"""How often a live observation would be out of distribution: where it should not be, and where it should.

    python -m benchmarks autoscaling-distribution STATE_FOLDER [STATE_FOLDER ...]

State folders of finished `assay run --task autoscaling`. For each policy the ranges that a contract would say
(models/tasks/control/seen.py) are held against what it sees in episodes of the later part of its load, as they are and
changed: other loads, work a request and objectives, and another workload's service.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import table
from benchmarks.harness.result_file import RESULTS, write_results
from feature_store.errors import InputError
from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.control.simulation.rollout import Acting, acting_of
from models.tasks.control.judging import play
from models.tasks.control.product import POLICY, read_rules
from models.tasks.control.seen import MARGIN, seen_in_training
from models.tasks.control.workload import twin_of
from models.tasks.task import read_task
from serving.seen_spec import Familiar, seen_spec

OUTPUT = RESULTS / "autoscaling_distribution.json"
FORMAT = "assay-autoscaling-distribution/1"
EPISODES, STEPS, SEED = 480, 120, 7
LOADS, WORK = (10.0, 3.0, 0.1), 4.0
OTHER_MARGINS = (1.2, 1.0)
ROWS: Mapping[str, str] = {
    "policy": "as it is, the policy acts", "fallback": "as it is, the fallback acts",
    "margin 1.2": "as it is, with a margin of 1.2", "margin 1": "as it is, without a margin",
    "load x10": "ten times the load", "load x3": "three times the load", "load x0.1": "a tenth of the load",
    "work x4": "four times the CPU time a request", "objective x2": "twice the objective",
    "beside": "beside another workload's server, its own objective"}


@dataclass(frozen=True)
class _Known:
    """One workload's policy: what it saw (T, N, n) and the ranges of its training."""

    workload: str
    seen: NDArray[np.float32]
    familiar: Familiar
    objective: int

    def flagged(self, seen: NDArray[np.float32], margin: float | None = None) -> float:
        """Share of the steps."""
        return float(self.familiar.beyond(seen.reshape(-1, seen.shape[-1]), margin).any(axis=1).mean())


def measure(home: Path) -> list[dict[str, Any]]:
    """A row for each workload of a run. Raises InputError: it is none of this task that has finished."""
    known = dict(_measured(home))
    if not known:
        raise InputError(f"state folder must hold a finished run of autoscaling, got none ({home})")
    rows = []
    for one, shares in known.values():
        beside = {}
        for other, _ in known.values():
            if other is not one:
                seen = other.seen.copy()
                seen[..., one.objective] = one.seen[0, 0, one.objective]
                beside[other.workload] = one.flagged(seen)
        rows.append({"workload": one.workload, "shares": shares, "beside": beside})
    return rows


def _measured(home: Path) -> Iterator[tuple[str, tuple[_Known, dict[str, float]]]]:
    for learner in sorted(home.glob(f"runs/*/outputs/*/for-loop-*/finetune/learners/*/{POLICY}")):
        workload = learner.parent.name
        request = json.loads((learner.parents[6] / "request.json").read_text())
        task = read_task(request["arguments"]["task_yaml"])
        environment = twin_of(task, workload, learner.parents[4] / "audit" / "audited")
        policy, (_, own) = Policy.load(learner), read_rules(learner.parent)

        def acting(observation: torch.Tensor, seconds: float, policy: Policy = policy) -> torch.Tensor:
            return policy(observation)

        signals = environment.signals
        spec = seen_spec(seen_in_training(task, environment, acting, own), [one.name for one in signals])
        familiar = Familiar(spec, {one.name: one.high - one.low for one in signals})
        episodes = environment.draw("held_out", EPISODES, STEPS, SEED)
        fallback = task.fallback_of(workload)
        rule = environment_of(task.environment).rules[fallback].make(own[fallback].settings)

        def seen(changed: Any, who: Acting, environment: Any = environment) -> NDArray[np.float32]:
            return play(environment, changed, STEPS, who).observations

        mine = seen(episodes, acting)
        one = _Known(workload, mine, familiar, [signal.name for signal in signals].index("slo_ms"))
        shares = {"policy": one.flagged(mine), "fallback": one.flagged(seen(episodes, acting_of(environment, rule)))}
        shares |= {f"margin {margin:g}": one.flagged(mine, margin) for margin in OTHER_MARGINS}
        shares |= {f"load x{times:g}": one.flagged(seen(replace(episodes, rate=episodes.rate * times), acting))
                   for times in LOADS}
        shares[f"work x{WORK:g}"] = one.flagged(seen(replace(episodes, cpu_s=episodes.cpu_s * WORK), acting))
        doubled = mine.copy()
        doubled[..., one.objective] *= 2
        shares["objective x2"] = one.flagged(doubled)
        yield workload, (one, shares)


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("homes", nargs="+", type=Path, metavar="STATE_FOLDER")


def run(options: argparse.Namespace) -> None:
    """Measures all."""
    torch.set_num_threads(1)
    entries = [{"run": number, **row} for number, home in enumerate(options.homes, 1) for row in measure(home)]
    write_results(options.output, {"format": FORMAT, "machine": {**describe_machine(), "date": now_utc()},
                                   "margin": MARGIN, "episodes": EPISODES, "steps": STEPS, "entries": entries})


def flagged_table(results: Mapping[str, Any]) -> str:
    """Smallest, median and largest share of the steps over all policies."""
    rows = []
    for name, label in ROWS.items():
        values = [100 * share for one in results["entries"]
                  for share in (one["beside"].values() if name == "beside" else [one["shares"][name]])]
        if values:
            rows.append([label, str(len(values)), *(f"{figure:.3g}" for figure in
                                                    (min(values), float(np.median(values)), max(values)))])
    header = ["what is observed", "cases", "out of distribution, % of the steps: least", "median", "most"]
    return table(header, rows, range(1, 5))
