"""Seconds of training until a policy earns more than the best rule, ours and by Stable-Baselines3.

    python -m benchmarks autoscaling-training [--seeds 3] [--seconds 60] [--peers-python PYTHON]
    python -m benchmarks autoscaling-training --device cuda --ways ppo --output FILE

What is maximised is the paper's reward; the goal is that of the best rule, tuned by Optuna on the training
applications, plus 3 for an episode of 100 steps. Ways: gradients through the environment; our PPO, TD3 and DDPG
(Table 5.2) with their defaults; Stable-Baselines3's PPO and SAC with their defaults and 8 environments; and its PPO
with our settings over our vector environment, with its normalisation: the fair peer. Every policy is measured without
exploration on 256 training applications in episodes that it was not trained on. Each way and seed in a process of its
own, on one thread; seconds of CPU time, without those of the measurements, so that work beside it does not count. On a
GPU (--device cuda, our own ways alone) they are seconds of the clock.

Resumable: a way and seed that is there for the same code and rule is kept, if it got there or had as many seconds.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, device_name, load_average, now_utc
from benchmarks.harness.markdown import number, paragraph, table
from benchmarks.harness.result_file import RESULTS
from systems.autoscaling.benchmarks.interpreters import add_peers_python, measured_by

OUTPUT = RESULTS / "autoscaling_training.json"
FORMAT = "assay-autoscaling-training/1"
MEASURING_SEED = 8_800_000  # of the episodes on which rules and policies are measured
RULES = ("vertical-cpu-p99", "hpa-cpu-p99-vpa-memory")  # those that tuning found best for the reward
ABOVE = 0.03  # a step: 3 for an episode of 100


@dataclass(frozen=True)
class Way:
    """How it is trained: for readers, by whose interpreter."""

    label: str
    by_peers: bool = False


WAYS: Mapping[str, Way] = {
    "through_environment": Way("Gradients through the environment"),
    "ppo": Way("PPO"), "td3": Way("TD3"), "ddpg": Way("DDPG, Table 5.2"),
    "peer_ppo": Way("Stable-Baselines3 PPO, our settings, our vector environment", by_peers=True),
    "peer_ppo_defaults": Way("Stable-Baselines3 PPO, defaults, 8 environments", by_peers=True),
    "peer_sac_defaults": Way("Stable-Baselines3 SAC, defaults, 8 environments", by_peers=True)}


def best_rule(trials: int) -> dict[str, Any]:
    """The rule of largest reward, tuned on training applications, measured as policies are."""
    from models.control.training.rule_tuning import Tuner
    from models.control.training.training_run import evaluate
    from systems.autoscaling.rules.rules import RULES as FAMILIES
    from systems.autoscaling.simulator.simulator import Autoscaling

    environment, found = Autoscaling(), []
    for name in RULES:
        episodes = environment.draw("train", 128, environment.steps + 21, 31)
        tuner = Tuner(environment, FAMILIES[name], episodes, environment.steps + 20)
        tuner.search(trials, None)
        settings = tuner.best(None).settings
        measured = evaluate(environment, FAMILIES[name].make(settings), "train", 256, MEASURING_SEED)
        found.append({"rule": name, "reward": measured.reward, "violated": measured.violating_share,
                      "cost": measured.cost, "settings": settings, "trials": trials})
    return max(found, key=lambda one: one["reward"])


def measure(way: str, seed: int, goal: float, options: argparse.Namespace) -> dict[str, Any]:
    """{"curve": ...}, or {"missing": reason}."""
    python = options.peers_python if WAYS[way].by_peers else Path(sys.executable)
    arguments = [way, str(seed), str(options.seconds), str(goal), options.device]
    return measured_by(python, "systems.autoscaling.benchmarks.time_to_reward_child", arguments, "curve")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=3, help="of each way")
    parser.add_argument("--seconds", type=float, default=60.0,
                        help="of CPU time after which a way that has not got there is stopped")
    parser.add_argument("--trials", type=int, default=48, help="settings that are tried for each rule")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where it is trained")
    parser.add_argument("--processes", type=int, default=1, help="at work at once")
    add_peers_python(parser)


def run(options: argparse.Namespace) -> None:
    child = code_digest("systems.autoscaling.benchmarks.time_to_reward_child", "systems.autoscaling.benchmarks")
    digest = child + "".join(code_digest(f"models.control.training.online.{name}", "models")
                             for name in ("ppo", "td3", "ddpg"))
    digest += code_digest("models.control.training.through_environment", "models")
    device = device_name(options.device)
    machine = {**describe_machine(), "device": device}
    goal_of = {"trials": options.trials, "device": device}

    def stands(before: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
        if (before.get("code"), before.get("asked")) != (digest, goal_of) or "missing" in entry:
            return False
        enough = entry["asked_seconds"] >= options.seconds
        return enough or reached(entry["curve"], before["rule"]["reward"] + ABOVE) is not None

    entries = Entries(options.output, FORMAT, lambda entry: (entry["way"], entry["seed"]), stands)
    same = (entries.content.get("code"), entries.content.get("asked")) == (digest, goal_of)
    rule = entries.content["rule"] if same and "rule" in entries.content else best_rule(options.trials)
    entries.content |= {"code": digest, "asked": goal_of, "machine": machine, "date": now_utc(), "rule": rule}
    goal = rule["reward"] + ABOVE
    print(f"best rule {rule['rule']}: reward {rule['reward']:.4f} a step; goal {goal:.4f}", flush=True)
    wanted = [(way, seed) for way in options.ways for seed in range(options.seeds) if not entries.has((way, seed))]
    with ThreadPoolExecutor(options.processes) as pool:
        running = {pool.submit(measure, way, seed, goal, options): (way, seed) for way, seed in wanted}
        for done in as_completed(running):
            way, seed = running[done]
            found = done.result()
            entries.add({"way": way, "seed": seed, "asked_seconds": options.seconds, "processes": options.processes,
                         "load_average": load_average(), **found})
            print(f"{way}, seed {seed}: {found.get('missing') or _told(found['curve'], goal)}", flush=True)


def reached(curve: list[Mapping[str, float]], goal: float) -> float | None:
    """Seconds at the first measurement at or above the goal; None: never."""
    return next((point["seconds"] for point in curve if point["reward"] >= goal), None)


def _told(curve: list[Mapping[str, float]], goal: float) -> str:
    seconds, last = reached(curve, goal), max(point["reward"] for point in curve)
    return f"best {last:.4f}, goal {'not reached' if seconds is None else f'after {seconds:.1f} s'}"


def training_table(content: Mapping[str, Any]) -> str:
    """One row a way: seconds to the goal, best reward."""
    entries = content["entries"]
    goal, rows = content["rule"]["reward"] + ABOVE, []
    for way, described in WAYS.items():
        mine = [entry for entry in entries if entry["way"] == way and "curve" in entry]
        if not mine:
            continue
        curves = [entry["curve"] for entry in mine]
        best = [max(point["reward"] for point in curve) for curve in curves]
        speed = [curve[-1]["steps"] / curve[-1]["seconds"] for curve in curves]
        there = [one for one in (reached(curve, goal) for curve in curves) if one is not None]
        rows.append([described.label, f"{len(there)} of {len(curves)}", _after(mine, goal),
                     f"{100 * statistics.mean(best):.1f}", number(statistics.median(speed))])
    device = content["machine"].get("device", "cpu")
    where = f"seconds on one {device}"
    if device == "cpu":
        where = f"CPU seconds on one core of {content['machine']['cpu_model']}"
    note = paragraph(
        f"Goal: {100 * goal:.1f} an episode, 3 above the best rule ({content['rule']['rule']}, "
        f"{content['rule']['trials']} settings tried); medians (from least to most) of {where}.",
        f"{content['date'][:10]}.")
    header = ["training", "reached the goal", "after", "best reward", "steps a second"]
    return f"{table(header, rows, (2, 3, 4))}\n\n{note}"


def _after(entries: Sequence[Mapping[str, Any]], goal: float) -> str:
    """Median and range of the seconds; those that never got there count as longer than any."""
    longest = min(entry["asked_seconds"] for entry in entries)
    times = sorted(reached(entry["curve"], goal) or math.inf for entry in entries)
    middle = statistics.median_high(times)
    if middle == math.inf:
        return f"not within {longest:g} s"
    last = "never" if times[-1] == math.inf else number(times[-1])
    return f"{number(middle)} s ({number(times[0])} to {last})"
