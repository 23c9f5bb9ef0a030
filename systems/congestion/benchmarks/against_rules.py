"""Rewards of policies and of tuned rules on held-out links, family by family, on recorded cellular links, and in
PCC-RL's own packet simulator, beside Aurora as published.

    python -m benchmarks congestion-rules [--pcc-rl FOLDER] [--mahimahi FOLDER] [--aurora FILE] [--seeds 3]

Policies (monotone and held back by their form, as congestion.yaml asks for) are trained once, on all families together.
Each rule is tuned twice for the reward, on training links: of all families together, and of each family alone, with as
many trials. All act on the same held-out links. On cellular links policies are also fine-tuned, as `assay run` does to
a workload. --pcc-rl and --mahimahi are checkouts; without one its rows are left out. --aurora is a file of Aurora's
model, trained and written there where it is missing (hours); without it, what is there of Aurora stays. Resumable: what
is there for the same code and task is kept, of Aurora for its own code.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS, read_results
from benchmarks.harness.task_digest import with_task
from feature_store.errors import InputError
from models.control.contract.systems import environment_of
from models.control.policy.policy import Policy
from models.control.simulation.rollout import acting_of, roll_out
from models.control.training.rule_tuning import Tuner
from models.control.training.through_environment import ThroughEnvironment, stack
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.training import training_settings
from models.tasks.task import load_task
from systems.congestion.benchmarks import aurora, pcc_rl
from systems.congestion.benchmarks.cellular import Cellular
from systems.congestion.links import FAMILIES
from systems.congestion.simulator import Congestion

OUTPUT = RESULTS / "congestion_rules.json"
FORMAT = "assay-congestion-rules/1"
TRAINING, HELD_OUT, STEPS, WARM_UP = 256, 512, 120, 20
SEED = 3  # of the held-out links
TRIALS = 128
PACKETS, CONNECTIONS = "PCC-RL's packets", 64
CELLULAR = "cellular traces"
PLACES = (*FAMILIES, CELLULAR, PACKETS)
RULES = ("cubic", "bbr", "vegas", "copa", "vivace", "headroom")
AURORA = "aurora"
SEEDS = 3
CELLULAR_STEPS = 240
GOALS = {PACKETS: 0.15, CELLULAR: 0.10, **dict.fromkeys(FAMILIES, 0.10)}


class Peers(NamedTuple):
    """What others made, where it is there: PCC-RL's simulator, cellular links, Aurora's model."""

    packets: Any = None
    cellular: Cellular | None = None
    aurora: Any = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--pcc-rl", type=Path, help="checkout of PCC-RL; without it, its rows are left out")
    parser.add_argument("--mahimahi", type=Path, help="checkout of mahimahi, for its traces; without it, left out")
    parser.add_argument("--aurora", type=Path, help="file of Aurora's model; needs --pcc-rl; without it, left out")
    parser.add_argument("--aurora-steps", type=int, default=aurora.STEPS,
                        help=f"of its training; default: {aurora.STEPS:,}, as published")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of training; default: {SEEDS}")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    torch.set_num_threads(1)
    own, auroras = digests()
    names = [*RULES, AURORA, *(f"policy {seed}" for seed in range(options.seeds))]
    entries = Entries(options.output, FORMAT, lambda one: (PLACES.index(one["place"]), names.index(one["controller"])),
                      lambda _, one: one.get("code") == (auroras if one["controller"] == AURORA else own))
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    packets = pcc_rl.load(options.pcc_rl) if options.pcc_rl else None
    model = aurora.trained(packets, options.aurora, options.aurora_steps) if packets and options.aurora else None
    peers = Peers(packets, Cellular(options.mahimahi) if options.mahimahi else None, model)
    places = [place for place in PLACES if (place != PACKETS or packets) and (place != CELLULAR or peers.cellular)]
    for name in names:
        here = [PACKETS] * bool(model) if name == AURORA else places
        wanted = [place for place in here if not entries.has((PLACES.index(place), names.index(name)))]
        if not wanted:
            continue
        made = _made(name, peers)
        for place in wanted:
            found = {how: _rewards(peers, place, one) for how, one in made[place].items()}
            code = auroras if name == AURORA else own
            entries.add({"place": place, "controller": name, "code": code, "rewards": {
                how: {"mean": round(float(one.mean()), 4), "standard_error": round(float(
                    one.std(ddof=1) / np.sqrt(len(one))), 4)} for how, one in found.items()}, **made["notes"]})
            print(f"{name}, {place}: " + ", ".join(f"{how} {one.mean():.3f}" for how, one in found.items()), flush=True)


def digests() -> tuple[str, str]:
    """Of what rules and policies are made by, and of what Aurora is: its own code and PCC-RL's simulator."""
    code = code_digest("systems.congestion.benchmarks.against_rules", ("systems.congestion", "models.control"))
    return with_task(load_task("congestion"), code), code_digest(
        "systems.congestion.benchmarks.aurora", "systems.congestion.benchmarks")


def _made(name: str, peers: Peers) -> dict[str, Any]:
    if name == AURORA:
        return {PACKETS: {"all": peers.aurora}, "notes": {"steps": peers.aurora.num_timesteps}}
    return _tuned(name, peers) if name in RULES else _policies(int(name.split()[1]), peers)


def _policies(seed: int, peers: Peers) -> dict[str, Any]:
    """One for all places, and one that was fine-tuned to cellular links."""
    policy: Policy = trained_policy(seed)
    own = {} if peers.cellular is None else {"own": trained_policy(seed, peers.cellular, policy)}
    return {**{place: {"all": policy, **(own if place == CELLULAR else {})} for place in PLACES}, "notes": {}}


def trained_policy(seed: int, links: Congestion | None = None, start: Policy | None = None) -> Policy:
    """Trained as the task says, on links of all families, or fine-tuned to some."""
    task, environment = load_task("congestion"), environment_of("congestion")
    rounds = task.training.rounds if start is None else task.training.finetune_rounds
    return ThroughEnvironment(
        links or environment.differentiable, links or environment, policy_shape(task, environment),
        training_settings(task, rounds, start is not None), [seed], [task.objective.violating_share], demands_of(task),
        None if start is None else stack([start])).run().policy.member(0)


def _tuned(name: str, peers: Peers) -> dict[str, Any]:
    """With the settings that were best on training links: of all families, of each, and of cellular ones."""
    environment = environment_of("congestion")
    family = environment.rules[name]

    def best(links: Congestion, which: str, steps: int) -> Mapping[str, Any]:
        tuner = Tuner(links, family, links.draw("train", TRAINING, steps + 1, 0, which), steps, 0, WARM_UP)
        tuner.search(TRIALS // 2, None)
        tuner.refine(TRIALS // 2, None)
        return tuner.best(None).settings

    found = {which: best(environment, which, STEPS) for which in ("", *FAMILIES)}
    if peers.cellular is not None:
        found[CELLULAR] = best(peers.cellular, "", CELLULAR_STEPS)
    own = {place: found.get("aurora" if place == PACKETS else place, found[""]) for place in PLACES}
    return {**{place: {"all": family.make(found[""]), "own": family.make(own[place])} for place in PLACES},
            "notes": {"settings": {which or "all": one for which, one in found.items()}}}


def tuned_settings(names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Of rules, as they were tuned to links of all families. Raises InputError: one was not."""
    found = {one["controller"]: one["settings"]["all"] for one in
             (read_results(OUTPUT) or {"entries": []})["entries"] if "settings" in one}
    if missing := [name for name in names if name not in found]:
        raise InputError(f"{OUTPUT.name} must have settings of {', '.join(missing)}, got none; run "
                         "`python -m benchmarks congestion-rules` first")
    return {name: found[name] for name in names}


def _rewards(peers: Peers, place: str, controller: Any) -> np.ndarray:
    """(N,) of each held-out link."""
    environment = environment_of("congestion")
    with torch.no_grad():
        if controller is peers.aurora:
            return aurora.rewards(peers.packets, controller, CONNECTIONS, STEPS, WARM_UP, SEED)
        if place == PACKETS:
            act = acting_of(environment, controller)
            return pcc_rl.rewards(peers.packets, act, CONNECTIONS, STEPS, WARM_UP, SEED)
        links, which, steps = (environment, place, STEPS) if place != CELLULAR else (peers.cellular, "", CELLULAR_STEPS)
        episodes = links.draw("held_out", HELD_OUT, steps + 1, SEED, which)
        return np.asarray(roll_out(links, controller, episodes, steps, WARM_UP).reward)


def rewards_table(results: Mapping[str, Any]) -> str:
    """A family a row: the best rules, and the policies against them."""
    rows = []
    for place in PLACES:
        here = [one for one in results["entries"] if one["place"] == place]
        rules = {how: {one["controller"]: one["rewards"][how]["mean"] for one in here if one["controller"] in RULES}
                 for how in ("all", "own")}
        if not rules["own"]:
            continue
        best = {how: max(found, key=lambda name: found[name]) for how, found in rules.items()}
        for how, said in (("all", place), ("own", f"{place}, fine-tuned to them")):
            means = [one["rewards"][how]["mean"] for one in here
                     if one["controller"].startswith("policy") and how in one["rewards"]]
            if means:
                gains = [100 * (float(np.mean(means)) / rules[tuned][best[tuned]] - 1) for tuned in ("all", "own")]
                rows.append([said, *(f"{rules[tuned][best[tuned]]:.2f} ({best[tuned]})" for tuned in ("all", "own")),
                             f"{np.mean(means):.2f} ({min(means):.2f} to {max(means):.2f})", f"{gains[0]:+.1f} %",
                             f"{gains[1]:+.1f} %", f"+{100 * GOALS[place]:.0f} %"])
    header = ["links", "best rule, tuned to all links", "best rule, tuned to these", "policy, trained on all links",
              "gain over the first", "over the second", "goal"]
    return table(header, rows, range(3, 7))


def aurora_line(results: Mapping[str, Any]) -> str:
    """What Aurora itself earned; "" where it was left out."""
    peer = next((one for one in results["entries"] if one["controller"] == AURORA), None)
    if peer is None:
        return ""
    earned = peer["rewards"]["all"]
    return paragraph(
        f"Aurora, trained for {peer['steps']:,} of the published {aurora.STEPS:,} steps in the very simulator, earns "
        f"{earned['mean']:.2f} ± {earned['standard_error']:.2f} (standard error over links; one seed) in PCC-RL's "
        "packets.")


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was measured."""
    entries = results["entries"]
    seeds = len({one["controller"] for one in entries if one["controller"].startswith("policy")})
    return paragraph(
        f"Mean reward an interval of {HELD_OUT} held-out links a family ({CONNECTIONS} in PCC-RL's simulator), after "
        f"{WARM_UP} of {STEPS} intervals ({CELLULAR_STEPS} on cellular traces); policies: mean and range of {seeds} "
        f"seeds; rules: {TRIALS} trials each, for the reward, on {TRAINING} training links. "
        f"{results['machine']['date'][:10]}.")
