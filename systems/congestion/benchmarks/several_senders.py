"""One to ten senders of one kind on one simulated link: do they share it, fill it, and keep its queue short?

    python -m benchmarks congestion-several-senders [--seeds 3]

`policy` is trained as for congestion-rules, on links of one sender each, and rules have the settings that they were
tuned to there for links of all families: none of them has seen a link that is shared. `sharing policy` is trained in
the same way on links of two (systems/congestion/shared.py). Senders begin at rates from a tenth to twice a fair share.
Resumable: what is there for the same code and task is kept.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from models.control.simulation.rollout import roll_out
from models.tasks.task import load_task
from systems.congestion.benchmarks.against_rules import RULES, trained_policy, tuned_settings
from systems.congestion.rules import RULES as FAMILIES_OF_RULES
from systems.congestion.shared import ENVIRONMENT
from systems.congestion.simulator import Congestion

OUTPUT = RESULTS / "congestion_several_senders.json"
FORMAT = "assay-congestion-several-senders/1"
LINKS, SENDERS = ("aurora", "wide", "changing"), (1, 2, 5, 10)
POLICIES = ("policy", "sharing policy")
COUNT, STEPS, WARM_UP, SEED = 256, 360, 120, 3
SEEDS = 3
SHOWN = ("fairness", "utilization", "queueing_s", "loss_share")
MANY = 5  # of which use, queueing and loss are shown


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of training; default: {SEEDS}")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    torch.set_num_threads(1)
    code = with_task(load_task("congestion"), code_digest(
        "systems.congestion.benchmarks.several_senders", ("systems.congestion", "models.control")))
    names = [*RULES, *(f"{one} {seed}" for one in POLICIES for seed in range(options.seeds))]
    entries = Entries(options.output, FORMAT, lambda one: names.index(one["controller"]), made_by(code))
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    for name in names:
        if entries.has(names.index(name)):
            continue
        controller, found = _made(name), []
        for links in LINKS:
            for senders in SENDERS:
                environment = Congestion(agents=senders)
                episodes = environment.draw("held_out", COUNT, STEPS + 1, SEED, links)
                came = roll_out(environment, controller, episodes, STEPS, WARM_UP)
                figures = {"reward": came.reward, **came.measures}
                found.append({"links": links, "senders": senders, **{
                    name: round(float(figures[name].mean()), 5) for name in ("reward", *SHOWN) if name in figures}})
        entries.add({"controller": name, "code": code, "found": found})
        print(f"{name}: " + ", ".join(f"{one['links']} {one['senders']} {one['fairness']:.3f}" for one in found
                                     if one["senders"] > 1),
              flush=True)


def _made(name: str) -> Any:
    if name not in RULES:
        kind, seed = name.rsplit(" ", 1)
        return trained_policy(int(seed), None if kind == POLICIES[0] else ENVIRONMENT)
    return FAMILIES_OF_RULES[name].make(tuned_settings([name])[name])


def sharing_table(results: Mapping[str, Any]) -> str:
    """A kind of sender a row, means over the families of links."""
    rows = []
    for kind in (*RULES, *POLICIES):
        of = [one["found"] for one in results["entries"] if one["controller"].rstrip(" 0123456789") == kind]

        def said(measure: str, senders: int, scale: float, digits: int, of: list[Any] = of) -> str:
            each = [scale * float(np.mean([one[measure] for one in found if one["senders"] == senders]))
                    for found in of]
            spread = f" ({min(each):.{digits}f} to {max(each):.{digits}f})" if len(each) > 1 else ""
            return f"{np.mean(each):.{digits}f}{spread}"

        rows.append([kind, *(said("fairness", senders, 1.0, 2) for senders in SENDERS[1:]),
                     said("utilization", MANY, 100.0, 1), said("queueing_s", MANY, 1e3, 0),
                     said("loss_share", MANY, 100.0, 1), said("reward", 1, 1.0, 2)])
    header = ["senders of one kind", *(f"Jain's index, {senders}" for senders in SENDERS[1:]),
              f"of the link used by {MANY}, %", "queueing, ms", "lost, %", "reward of one alone"]
    return table(header, rows, range(1, 8))


def sharing_conditions(results: Mapping[str, Any]) -> str:
    """How it was measured."""
    seeds = sum(one["controller"].startswith(f"{POLICIES[0]} ") for one in results["entries"])
    return paragraph(
        f"Means over {COUNT} held-out links of each of {', '.join(LINKS)}, in intervals {WARM_UP} to {STEPS}; Jain's",
        "index of what gets through in an interval, 1 where all get the same. Policies: mean and range of",
        f"{seeds} seeds. {results['machine']['date'][:10]}.")
