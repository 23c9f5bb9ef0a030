"""Two, five and ten senders of one kind on one simulated link: do they share it, fill it, and keep its queue short?

    python -m benchmarks congestion-several-senders [--seeds 3]

Policies are trained as for congestion-rules, on links of one sender each, and rules have the settings that they were
tuned to there for links of all families: nobody has seen a link that is shared. Senders begin at rates from a tenth to
twice a fair share. Resumable: what is there for the same code is kept.
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
from benchmarks.harness.result_file import RESULTS, read_results
from feature_store.errors import InputError
from models.control.simulation.rollout import roll_out
from systems.congestion.benchmarks.against_rules import OUTPUT as TUNED
from systems.congestion.benchmarks.against_rules import RULES, trained_policy
from systems.congestion.rules import RULES as FAMILIES_OF_RULES
from systems.congestion.simulator import Congestion

OUTPUT = RESULTS / "congestion_several_senders.json"
FORMAT = "assay-congestion-several-senders/1"
LINKS, SENDERS = ("aurora", "wide", "changing"), (2, 5, 10)
COUNT, STEPS, WARM_UP, SEED = 256, 360, 120, 3
SEEDS = 3
SHOWN = ("fairness", "utilization", "queueing_s", "loss_share")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of training; default: {SEEDS}")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    torch.set_num_threads(1)
    code = code_digest("systems.congestion.benchmarks.several_senders", ("systems.congestion", "models.control"))
    names = [*RULES, *(f"policy {seed}" for seed in range(options.seeds))]
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
                found.append({"links": links, "senders": senders, "reward": round(float(came.reward.mean()), 4), **{
                    measure: round(float(came.measures[measure].mean()), 5) for measure in SHOWN}})
        entries.add({"controller": name, "code": code, "found": found})
        print(f"{name}: " + ", ".join(f"{one['links']} {one['senders']} {one['fairness']:.3f}" for one in found),
              flush=True)


def _made(name: str) -> Any:
    if name not in RULES:
        return trained_policy(int(name.split()[1]))
    settings = {one["controller"]: one["settings"]["all"] for one in
                (read_results(TUNED) or {"entries": []})["entries"] if "settings" in one}
    if name not in settings:
        raise InputError(f"{TUNED.name} must have settings of {name}, got none; run `python -m benchmarks "
                         "congestion-rules` first")
    return FAMILIES_OF_RULES[name].make(settings[name])


def sharing_table(results: Mapping[str, Any]) -> str:
    """A kind of sender a row, means over the families of links."""
    entries = results["entries"]
    policies = [one for one in entries if one["controller"] not in RULES]
    kinds = [(one["controller"], [one]) for one in entries if one["controller"] in RULES] + [("policy", policies)]
    rows = []
    for name, of in kinds:
        def said(measure: str, senders: int, scale: float, digits: int, of: list[Any] = of) -> str:
            each = [scale * float(np.mean([one[measure] for one in seed["found"] if one["senders"] == senders]))
                    for seed in of]
            spread = f" ({min(each):.{digits}f} to {max(each):.{digits}f})" if len(each) > 1 else ""
            return f"{np.mean(each):.{digits}f}{spread}"

        rows.append([name, *(said("fairness", senders, 1.0, 2) for senders in SENDERS),
                     *(said(measure, SENDERS[1], scale, digits)
                       for measure, scale, digits in (("utilization", 100.0, 1), ("queueing_s", 1e3, 0),
                                                      ("loss_share", 100.0, 1), ("reward", 1.0, 2)))])
    header = ["senders of one kind", *(f"Jain's index, {senders}" for senders in SENDERS),
              f"of the link used by {SENDERS[1]}, %", "queueing, ms", "lost, %", "reward"]
    return table(header, rows, range(1, 8))


def sharing_conditions(results: Mapping[str, Any]) -> str:
    """How it was measured."""
    seeds = sum(one["controller"] not in RULES for one in results["entries"])
    return paragraph(
        f"Means over {COUNT} held-out links of each of {', '.join(LINKS)}, in intervals {WARM_UP} to {STEPS}; Jain's",
        "index of what gets through in an interval, 1 where all get the same. Policies: mean and range of",
        f"{seeds} seeds. {results['machine']['date'][:10]}.")
