"""Rewards of policies and of tuned rules on held-out links, family by family, and in PCC-RL's own packet simulator.

    python -m benchmarks congestion-rules [--pcc-rl FOLDER] [--seeds 3]

Policies (monotone and held back by their form, as congestion.yaml asks for) are trained once, on all families together.
Each rule is tuned twice for the reward, on training links: of all families together, and of each family alone, with as
many trials. All act on the same held-out links. --pcc-rl is a checkout of PCC-RL; without it its rows are left out.
Resumable: what is there for the same code is kept.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS
from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.control.simulation.rollout import acting_of, roll_out
from models.control.training.rule_tuning import Tuner
from models.control.training.through_environment import ThroughEnvironment
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.training import training_settings
from models.tasks.task import load_task
from systems.congestion.benchmarks import pcc_rl
from systems.congestion.links import FAMILIES

OUTPUT = RESULTS / "congestion_rules.json"
FORMAT = "assay-congestion-rules/1"
TRAINING, HELD_OUT, STEPS, WARM_UP = 256, 512, 120, 20
SEED = 3  # of the held-out links
TRIALS = 128
PACKETS, CONNECTIONS = "PCC-RL's packets", 64
PLACES = (*FAMILIES, PACKETS)
RULES = ("cubic", "bbr", "vegas", "copa", "vivace", "headroom")
SEEDS = 3
GOALS = {PACKETS: 0.15, **dict.fromkeys(FAMILIES, 0.10)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--pcc-rl", type=Path, help="checkout of PCC-RL; without it, its rows are left out")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of training; default: {SEEDS}")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    torch.set_num_threads(1)
    code = code_digest("systems.congestion.benchmarks.against_rules", ("systems.congestion", "models.control"))
    names = [*RULES, *(f"policy {seed}" for seed in range(options.seeds))]
    entries = Entries(options.output, FORMAT, lambda one: (PLACES.index(one["place"]), names.index(one["controller"])),
                      made_by(code))
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    places = PLACES if options.pcc_rl else FAMILIES
    peer = pcc_rl.load(options.pcc_rl) if options.pcc_rl else None
    for name in names:
        wanted = [place for place in places if not entries.has((PLACES.index(place), names.index(name)))]
        if not wanted:
            continue
        made = _policy(int(name.split()[1])) if name.startswith("policy") else _tuned(name)
        for place in wanted:
            found = {how: _rewards(peer, place, one) for how, one in made[place].items()}
            entries.add({"place": place, "controller": name, "code": code, "rewards": {
                how: {"mean": round(float(one.mean()), 4), "standard_error": round(float(
                    one.std(ddof=1) / np.sqrt(len(one))), 4)} for how, one in found.items()}, **made["notes"]})
            print(f"{name}, {place}: " + ", ".join(f"{how} {one.mean():.3f}" for how, one in found.items()), flush=True)


def _policy(seed: int) -> dict[str, Any]:
    """Trained as the task says, on links of all families."""
    task, environment = load_task("congestion"), environment_of("congestion")
    trained = ThroughEnvironment(
        environment.differentiable, environment, policy_shape(task, environment),
        training_settings(task, task.training.rounds), [seed], [task.objective.violating_share],
        demands_of(task)).run()
    policy: Policy = trained.policy.member(0)
    return {**{place: {"all": policy} for place in PLACES}, "notes": {}}


def _tuned(name: str) -> dict[str, Any]:
    """With the settings that were best on training links: of all families, and of each."""
    environment = environment_of("congestion")
    family = environment.rules[name]

    def best(which: str) -> Mapping[str, Any]:
        episodes = environment.draw("train", TRAINING, STEPS + 1, 0, which)
        tuner = Tuner(environment, family, episodes, STEPS, 0, WARM_UP)
        tuner.search(TRIALS // 2, None)
        tuner.refine(TRIALS // 2, None)
        return tuner.best(None).settings

    found = {which: best(which) for which in ("", *FAMILIES)}
    own = {place: found["aurora" if place == PACKETS else place] for place in PLACES}
    return {**{place: {"all": family.make(found[""]), "own": family.make(own[place])} for place in PLACES},
            "notes": {"settings": {which or "all": one for which, one in found.items()}}}


def _rewards(peer: Any, place: str, controller: Any) -> np.ndarray:
    """(N,) of each held-out link."""
    environment = environment_of("congestion")
    with torch.no_grad():
        if place == PACKETS:
            act = acting_of(environment, controller)
            return pcc_rl.rewards(peer, act, CONNECTIONS, STEPS, WARM_UP, SEED)
        episodes = environment.draw("held_out", HELD_OUT, STEPS + 1, SEED, place)
        return np.asarray(roll_out(environment, controller, episodes, STEPS, WARM_UP).reward)


def rewards_table(results: Mapping[str, Any]) -> str:
    """A family a row: the best rules, and the policies against them."""
    entries = results["entries"]
    rows = []
    for place in PLACES:
        here = [one for one in entries if one["place"] == place]
        rules = {how: {one["controller"]: one["rewards"][how]["mean"] for one in here
                       if how in one["rewards"] and not one["controller"].startswith("policy")}
                 for how in ("all", "own")}
        means = [one["rewards"]["all"]["mean"] for one in here if one["controller"].startswith("policy")]
        if not means or not rules["own"]:
            continue
        best = {how: max(found, key=lambda name: found[name]) for how, found in rules.items()}
        gains = [100 * (float(np.mean(means)) / rules[how][best[how]] - 1) for how in ("all", "own")]
        rows.append([place, *(f"{rules[how][best[how]]:.2f} ({best[how]})" for how in ("all", "own")),
                     f"{np.mean(means):.2f} ({min(means):.2f} to {max(means):.2f})", f"{gains[0]:+.1f} %",
                     f"{gains[1]:+.1f} %", f"+{100 * GOALS[place]:.0f} %"])
    header = ["links", "best rule, tuned to all links", "best rule, tuned to these", "policy, trained on all links",
              "gain over the first", "over the second", "goal"]
    return table(header, rows, range(3, 7))


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was measured."""
    entries = results["entries"]
    seeds = len({one["controller"] for one in entries if one["controller"].startswith("policy")})
    return paragraph(
        f"Mean reward an interval of {HELD_OUT} held-out links a family ({CONNECTIONS} in PCC-RL's simulator), after "
        f"{WARM_UP} of {STEPS} intervals; policies: mean and range of {seeds} seeds; rules: {TRIALS} trials each, for "
        f"the reward, on {TRAINING} training links. {results['machine']['date'][:10]}.")
