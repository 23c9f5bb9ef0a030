"""What an embedding of the application earns: the meta learner beside every simpler rival, at equal violations.

    python -m benchmarks autoscaling-rivals [--rivals generic meta ...] [--seeds 5] [--budget 1.0]

All rivals are trained on the 800 training applications (rival_policies.py) and judged on the 200 held-out ones under
loads that no training saw, on the same episodes. `cost` is what is allocated over the mean load; it is compared at 2 %
violating steps, between settings on each rival's front. The intervals are a paired bootstrap over applications and
seeds.

Resumable: a rival that is there for the same code and options is kept.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS
from models.control.adaptation.inputs import Coming, Hidden, Nothing, Window
from models.control.adaptation.side_by_side import run as run_side_by_side
from models.control.adaptation.through_stacks import load_state, save_state
from models.control.policy.policy import Policy
from systems.autoscaling.benchmarks.adaptation.rival_policies import (
    SOURCES,
    Beginning,
    Plan,
    Rival,
    fine_tuned,
    first_policies,
    judge,
    same,
    told_trajectories,
    trained,
    untrained,
)
from systems.autoscaling.benchmarks.fronts import Front
from systems.autoscaling.benchmarks.loads import under_load
from systems.autoscaling.simulator.simulator import Autoscaling

OUTPUT = RESULTS / "autoscaling_rivals.json"
FORMAT = "assay-autoscaling-rivals/1"
SHARE = 0.02  # of violating steps, at which costs are compared
STEPS, JUDGED_WARM_UP, TIMES, JUDGE_SEED = 280, 40, 2, 4242
HELD_OUT = tuple(range(800, 1000))
WINDOW = 3  # steps: later ones add nothing that the exponential means do not say
FIGURES = ("cost", "violated", "reward")
Numbers = NDArray[np.float64]
Builder = Callable[[Autoscaling, Plan, Callable[[], Beginning]], tuple[Rival, Plan]]


@dataclass(frozen=True)
class Kind:
    """One rival: what it is told, and how it is made. `told` is none where an operator could not tell it that."""

    what: str
    build: Builder
    operable: bool = True


def _general(inputs: Callable[[Autoscaling], Any]) -> Builder:
    def build(environment: Autoscaling, plan: Plan, begin: Callable[[], Beginning]) -> tuple[Rival, Plan]:
        told = inputs(environment)
        return Rival(trained(environment, plan, told, begin=begin()), same(told)), plan
    return build


def _linear(inputs: Callable[[Autoscaling], Any]) -> Builder:
    """Of as many iterations in all as the others."""
    def build(environment: Autoscaling, plan: Plan, begin: Callable[[], Beginning]) -> tuple[Rival, Plan]:
        told = inputs(environment)
        return Rival(trained(environment, plan.with_budget(2.0), told, linear=True), same(told)), plan
    return build


def _of_trajectories(kind: str = "gru", identify: bool = False) -> Builder:
    return lambda environment, plan, begin: (told_trajectories(environment, plan, begin(), kind, identify), plan)


def _tuned(start: Callable[[Autoscaling, Plan], Policy] | None, sources: Sequence[int] = ()) -> Builder:
    """Fine-tuned from `start`, or from what is trained here, on one source where there is one."""
    def build(environment: Autoscaling, plan: Plan, begin: Callable[[], Beginning]) -> tuple[Rival, Plan]:
        few = replace(plan, seeds=plan.seeds[:plan.tuned_seeds])
        if start is not None:
            policy = start(environment, few)
        elif sources:
            policy = trained(environment, few.with_budget(2.0), Nothing(), sources=sources[:len(few.seeds)])
        else:
            policy = begin().policy.taken(range(few.policies))
        # multipliers of a generic policy: a target is one of the mean over applications, not of each
        multipliers = begin().objective.state()["multipliers"][:few.policies]
        each = fine_tuned(environment, few, policy, Nothing(), HELD_OUT, multipliers)
        return Rival(each, same(Nothing())), few
    return build


KINDS: dict[str, Kind] = {
    "linear": Kind("linear policy, present observation", _linear(lambda _: Nothing())),
    "linear-window": Kind("linear policy, window", _linear(lambda e: Window(e, WINDOW))),
    "generic": Kind("generic policy, present observation", _general(lambda _: Nothing())),
    "generic-window": Kind("generic policy, window", _general(lambda e: Window(e, WINDOW))),
    "meta": Kind("meta learner, recurrent encoder", _of_trajectories()),
    "meta-sets": Kind("meta learner, deep sets", _of_trajectories("deep_sets")),
    "identified": Kind("system identification", _of_trajectories(identify=True)),
    "oracle": Kind("oracle: true hidden parameters", _general(Hidden), operable=False),
    "clairvoyant": Kind("clairvoyant: the next 90 s of load", _general(lambda _: Coming(6)), operable=False),
    "scratch": Kind("from scratch, one policy an application", _tuned(
        lambda environment, plan: untrained(environment, plan, Nothing(), False))),
    "transfer": Kind("transfer from one application (TL), fine-tuned", _tuned(None, SOURCES)),
    "expert": Kind("expert: generic policy, fine-tuned to each application", _tuned(None), operable=False),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--rivals", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--load", choices=["azure", "made"], default="azure")
    parser.add_argument("--budget", type=float, default=1.0, help="of training, times the default's iterations")
    parser.add_argument("--first", type=Path, default=None, metavar="FILE",
                        help="keeps the generic policies that the others begin as; made where it is missing")
    add_data_folder(parser)


def run(options: argparse.Namespace) -> None:
    """Trains and judges the rivals that are missing."""
    code = code_digest("systems.autoscaling.benchmarks.adaptation.rivals", "")
    results = Entries(options.output, FORMAT, lambda entry: entry["rival"], lambda _, entry: (
        entry["rival"] not in options.rivals
        or (entry["code"], entry["load"], entry["seeds"], entry["budget"]) ==
        (code, options.load, options.seeds, options.budget)))
    environment = under_load(options.load, options.data_folder)
    plan = Plan(seeds=tuple(range(options.seeds))).with_budget(options.budget)
    begin = kept_beginning(environment, plan, options.first)
    for name in options.rivals:
        if results.has(name):
            continue
        began = time.process_time()
        rival, own_plan = KINDS[name].build(environment, plan, begin)
        seconds = time.process_time() - began
        found = _judged(environment, rival, own_plan)
        results.content |= {"machine": describe_machine(), "judged": {
            "steps": STEPS, "warm_up": JUDGED_WARM_UP, "episodes": TIMES, "applications": len(HELD_OUT)}}
        results.add({"rival": name, "what": KINDS[name].what, "operable": KINDS[name].operable, "code": code,
                     "load": options.load, "seeds": options.seeds, "budget": options.budget, "plan": asdict(own_plan),
                     "cpu_seconds": seconds,
                     "at": now_utc(),
                     "figures": {figure: [_written(row) for row in values.reshape(-1, values.shape[-1])]
                                 for figure, values in found.items()}})
        means = {figure: values.mean(axis=(0, 2)).round(4).tolist() for figure, values in found.items()}
        print(f"{seconds:6.0f} s of CPU time  {name}: {means}", file=sys.stderr, flush=True)


def kept_beginning(environment: Autoscaling, plan: Plan, path: Path | None) -> Callable[[], Beginning]:
    """Makes or reads the generic policies when they are first asked for."""
    made: list[Beginning] = []

    def begin() -> Beginning:
        if not made and path is not None and path.exists():
            state, objective = load_state(path), plan.objective()
            policy = untrained(environment, plan, Nothing(), False)
            policy.load_state_dict(state["policy"])
            for name, own in objective.state().items():
                own.copy_(state["objective"][name])
            made.append(Beginning(policy, objective))
        if not made:
            made.append(first_policies(environment, plan))
            if path is not None:
                save_state({"policy": made[0].policy.state_dict(), "objective": made[0].objective.state()}, path)
        return made[0]

    return begin


def _judged(environment: Autoscaling, rival: Rival, plan: Plan) -> dict[str, Numbers]:
    """figure -> (S, L, A), means over the episodes of an application."""
    shape = (len(plan.seeds), len(plan.targets), TIMES, len(HELD_OUT))
    if rival.policy.members[0] == plan.policies:
        ran = judge(environment, rival, HELD_OUT, TIMES, STEPS, JUDGED_WARM_UP, JUDGE_SEED, ())
        return {figure: getattr(ran, figure).reshape(shape).mean(axis=2) for figure in FIGURES}
    ran = judge_each(environment, rival, plan)
    return {figure: getattr(ran, figure).reshape(*shape[:2], len(HELD_OUT), TIMES).mean(axis=3) for figure in FIGURES}


def judge_each(environment: Autoscaling, rival: Rival, plan: Plan) -> Any:
    """(K A, times): policies that each have an application of their own, on the same episodes as the others."""
    episodes = environment.draw("held_out", len(HELD_OUT) * TIMES, STEPS + 1, JUDGE_SEED,
                                applications=list(HELD_OUT) * TIMES)
    own = torch.arange(len(episodes)).view(TIMES, len(HELD_OUT)).T.flatten().repeat(plan.policies)
    return run_side_by_side(environment, rival.policy, Nothing(), episodes.take(own), STEPS, JUDGED_WARM_UP)


def _written(row: Numbers) -> str:
    """A number for each application, as one line of the file."""
    return " ".join(f"{value:.4g}" for value in row)


def fronts_of(entry: Mapping[str, Any]) -> list[Front]:
    """(S,) one for each seed."""
    targets = entry["plan"]["targets"]
    values = {figure: np.array([[float(number) for number in row.split()] for row in rows])
              for figure, rows in entry["figures"].items()}
    names = tuple(f"target {value:g}" for value in targets)
    each = len(targets)
    return [Front(names, {figure: rows[s * each:(s + 1) * each] for figure, rows in values.items()})
            for s in range(len(entry["plan"]["seeds"]))]


def paired(fronts: Sequence[Front], others: Sequence[Front], share: float = SHARE, resamples: int = 1000,
           seed: int = 0) -> tuple[float, float, float]:
    """Share of the others' cost that is saved at equal violations, with the ends of its 95 % interval.

    Applications are drawn for both alike; seeds are paired where both have as many, else drawn for each.
    """
    applications = others[0].figures["cost"].shape[1]
    random = np.random.default_rng(seed)

    def cost(some: Sequence[Front], weights: Numbers | None = None) -> float:
        found = np.array([front.at(share, weights=weights) for front in some])
        return float(np.nanmean(found)) if np.isfinite(found).any() else float("nan")

    drawn = []
    for _ in range(resamples):
        weights = np.bincount(random.integers(0, applications, applications), minlength=applications).astype(float)
        rows = random.integers(0, len(fronts), len(fronts))
        their_rows = rows if len(others) == len(fronts) else random.integers(0, len(others), len(others))
        own, theirs = [fronts[row] for row in rows], [others[row] for row in their_rows]
        drawn.append(1.0 - cost(own, weights) / cost(theirs, weights))
    mean = 1.0 - cost(fronts) / cost(others)
    if not np.isfinite(drawn).any():  # a front that never comes to the share
        return mean, float("nan"), float("nan")
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return mean, float(low), float(high)


def rivals_table(results: Mapping[str, Any]) -> str:
    """One row a rival, in the order of KINDS."""
    entries = {entry["rival"]: entry for entry in results["entries"]}
    generic = fronts_of(entries["generic"]) if "generic" in entries else None
    rows = []
    for name in KINDS:
        if name not in entries:
            continue
        fronts = fronts_of(entries[name])
        at = [front.at(SHARE) for front in fronts]
        reached = [value for value in at if np.isfinite(value)]
        settings = [f"{100 * float(np.mean([f.figures['violated'][k].mean() for f in fronts])):.1f} % at "
                    f"{float(np.mean([f.figures['cost'][k].mean() for f in fronts])):.2f}"
                    for k in range(len(fronts[0].names))]
        reward = float(np.mean([front.figures["reward"].mean(axis=1).max() for front in fronts]))
        saved = ""
        if generic is not None and name != "generic" and reached:
            mean, low, high = paired(fronts, generic)
            saved = f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
        cost = f"{np.mean(reached):.2f}" if reached else "not reached"
        spread = f" ± {np.std(reached, ddof=1):.2f}" if len(reached) > 1 else ""
        rows.append([entries[name]["what"], str(len(fronts)), f"{cost}{spread}", saved, ", ".join(settings),
                     f"{reward:.3f}", f"{entries[name]['cpu_seconds']:.0f}"])
    return table(["policy", "seeds", "cost at 2 % violating steps", "saved against the generic policy, % (95 %)",
                  "violating steps and cost at each setting", "highest paper's reward", "CPU s to train"], rows,
                 right=(1, 2, 3, 5, 6))


def simplest_line(results: Mapping[str, Any]) -> str:
    """The first rival, from simple to complex, which no later one that an operator could run beats for certain."""
    entries = {entry["rival"]: entry for entry in results["entries"]}
    order = [name for name in KINDS if name in entries and entries[name]["operable"]]
    for position, name in enumerate(order):
        own = fronts_of(entries[name])
        beaten = [other for other in order[position + 1:] if paired(fronts_of(entries[other]), own)[1] > 0]
        if not beaten:
            return paragraph(f"The simplest that no more complex one beats (lower end of the paired interval above 0): "
                             f"**{entries[name]['what']}**.")
    return ""
