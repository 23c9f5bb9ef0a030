"""What learned policies save against the rules that a platform engineer would run, at equal violations.

    python -m benchmarks autoscaling-rules [--seeds 5] [--effort 1.0] [--loads azure made]

Rules are tuned by Optuna on training applications (models/control/training/rule_tuning.py), for several targets;
policies are trained on the same applications, for several targets and seeds. All are judged on the 200 held-out
applications under loads that no training saw, on the same episodes. `cost` is what is allocated over the mean load;
savings are at 2 % violating steps, with bootstrap intervals over applications and seeds. Beside the best rule: the rule
tuned for each held-out application on other episodes of its own, which no policy is.

Resumable: a load that is there for the same code and options is kept.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder, required
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from models.control.contract.environment import Environment
from models.control.policy.policy import Gates, Policy
from models.control.simulation.rollout import Rollout, roll_out
from models.control.training.rule_for_each import for_each_application
from models.control.training.rule_tuning import Tuner, side_by_side, tune
from models.control.training.through_environment import ThroughEnvironment
from models.tasks.control.policies import demands_of, policy_shape
from models.tasks.control.training import training_settings
from models.tasks.task import load_task
from systems.autoscaling.benchmarks.cases import AS_TRAINED, cases, costs
from systems.autoscaling.benchmarks.fronts import Front, Numbers, saving, table_of
from systems.autoscaling.environment import ENVIRONMENT
from systems.autoscaling.rules.rules import RULES
from systems.autoscaling.simulator.arrivals import read_traces
from systems.autoscaling.simulator.simulator import Autoscaling

OUTPUT = RESULTS / "autoscaling_rules.json"
FORMAT = "assay-autoscaling-rules/1"
TARGETS = (0.002, 0.004, 0.01, 0.02, 0.04)  # shares of violating steps that are trained and tuned for
SHARE = 0.02  # at which savings are told
FEWER, FEWER_TRIALS = (0.004, 0.002), 24  # rules are searched for these shares too, so many settings each
STEPS, WARM_UP, EPISODES = 280, 40, 2  # of judging; episodes of each held-out application
TRAINING_APPLICATIONS, TRAINING_STEPS = 256, 240  # of tuning
JUDGED = ("cost", "cores", "memory_gib", "reward", "violated", "violated_requests", "changes_an_hour")
TASK = "autoscaling"  # whose policies these are: layers, conditions, training
LINEAR_RATE = 3.0  # times the learning rate of a network
OWN_EPISODES, OWN_TRIALS = 8, 60  # on which a rule is tuned for each application, beside its front in training
_FRONT_SHARE = 0.15  # settings that violate more are of no interest
LOADS = ("azure", "made")
CHALLENGER, RIVALS = "proved", 3  # the policy that is tried in other cases, and so many of the best rules


@dataclass(frozen=True)
class Form:
    """A kind of policy.

    Attributes:
        linear: without hidden layers.
        provable: monotone by construction, with the conditions of the default specification as part of the network.
    """

    linear: bool
    provable: bool


FORMS = {"proved": Form(False, True), "network": Form(False, False), "linear": Form(True, False)}


def traces_of(load: str, folder: Path | None) -> Numbers | None:
    """Series of a load; None: made ones. Raises InputError where the real ones are not at hand."""
    if load == "made":
        return None
    return read_traces(required(folder) / "azure_functions" / "invocations_per_minute_1350.csv.gz")


def environment_of(load: str, folder: Path | None) -> Autoscaling:
    """The task's applications under a load. Raises InputError as `traces_of`."""
    return Autoscaling(ENVIRONMENT.applications, traces_of(load, folder))


def figures_of(rollout: Rollout, applications: int) -> dict[str, np.ndarray[Any, Any]]:
    """name -> (A,), means over the episodes of an application."""
    hours = 15.0 / 3600.0
    values = {
        "cost": rollout.cost, "cores": rollout.measures["cores"], "memory_gib": rollout.measures["memory_gib"],
        "reward": rollout.reward, "violated": rollout.violated,
        "violated_requests": rollout.measures["violated_requests"] / rollout.measures["requests"],
        "changes_an_hour": (rollout.measures["starts"] + rollout.measures["stops"]) / hours}
    return {name: value.reshape(-1, applications).mean(axis=0) for name, value in values.items()}


class Judge:
    """The same episodes for every controller."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self.environment = environment
        self.applications = 200
        numbers = environment.draw("held_out", self.applications, 2, 0).numbers.tolist()
        self.episodes = environment.draw("held_out", EPISODES * self.applications, STEPS + 1, seed,
                                         applications=numbers * EPISODES)

    def front(self, names: Sequence[str], controllers: Sequence[Any]) -> Front:
        """Each controller on all episodes."""
        rows = [figures_of(roll_out(self.environment, one, self.episodes, STEPS, WARM_UP), self.applications)
                for one in controllers]
        return Front(tuple(names), {name: np.stack([row[name] for row in rows]) for name in JUDGED})


def tuned_rules(environment: Environment, names: Sequence[str], effort: float) -> dict[str, Tuner]:
    """Rules, searched."""
    tuners = {}
    for name in names:
        started = time.monotonic()
        tuners[name] = tune(environment, RULES[name], TRAINING_APPLICATIONS, TRAINING_STEPS, SHARE, effort=effort)
        for target in FEWER:
            tuners[name].refine(max(1, round(FEWER_TRIALS * effort)), target)
        best = tuners[name].best(SHARE)
        print(f"rule {name}: cost {best.cost:.2f} at {best.violated:.2%} in training, {best.trials} settings, "
              f"{time.monotonic() - started:.0f} s", flush=True)
    return tuners


def rule_front(judge: Judge, tuner: Tuner) -> Front:
    """A rule at all settings of its front in training: which of them stand on the front is read off the judging
    episodes, which favours the rule."""
    chosen = [trial.settings for trial in tuner.front() if trial.violated < _FRONT_SHARE]
    return judge.front([f"{number + 1}" for number in range(len(chosen))], [tuner.family.make(one) for one in chosen])


def each_front(judge: Judge, tuner: Tuner, effort: float) -> Front:
    """A rule tuned for each held-out application on other episodes of its own, a search for each."""
    environment, count = judge.environment, judge.applications
    choices = [trial.settings for trial in tuner.front() if trial.violated < _FRONT_SHARE]
    numbers = judge.episodes.numbers[:count].tolist()
    own = environment.draw("held_out", OWN_EPISODES * count, TRAINING_STEPS + 1, 4711,
                           applications=numbers * OWN_EPISODES)
    found = [for_each_application(environment, tuner.family, choices, own, TRAINING_STEPS, target, OWN_EPISODES,
                                  round(OWN_TRIALS * effort)) for target in TARGETS]
    return judge.front([str(target) for target in TARGETS],
                       [tuner.family.make(side_by_side(settings * EPISODES, 1)) for settings in found])


def trained_policies(environment: Autoscaling, form: Form, seeds: int, budget: float,
                     ) -> tuple[list[list[Policy]], float]:
    """For each seed a policy for each of TARGETS, and seconds of training in all."""
    started = time.monotonic()
    pairs = [(seed, target) for seed in range(seeds) for target in TARGETS]
    task = load_task(TASK)
    shape = policy_shape(task, environment)
    if not form.provable:
        shape = replace(shape, gates=Gates())
    settings = training_settings(task, round(task.training.rounds * budget))
    if form.linear:
        shape, settings = replace(shape, hidden=()), replace(settings, rate=LINEAR_RATE * settings.rate)
    trained = ThroughEnvironment(
        environment.differentiable, environment, shape, settings, [seed for seed, _ in pairs],
        [target for _, target in pairs], demands_of(task) if form.provable else None, on_progress=_say).run()
    seconds = time.monotonic() - started
    members = [trained.policy.member(index) for index in range(len(pairs))]
    return [members[seed * len(TARGETS):(seed + 1) * len(TARGETS)] for seed in range(seeds)], seconds


def policy_fronts(judge: Judge, policies: Sequence[Sequence[Policy]]) -> list[Front]:
    """A front for each seed."""
    return [judge.front([str(target) for target in TARGETS], of_seed) for of_seed in policies]


def _say(event: Mapping[str, Any]) -> None:
    if event["round"] % 20 == 0:
        print("  " + ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                               for name, value in event.items()), flush=True)


def compared(fronts: Sequence[Front], rules: Mapping[str, Front], each: Front) -> dict[str, Any]:
    """Savings against the best rule and the one that is tuned for each application."""
    best = min((name for name in rules if np.isfinite(rules[name].at(SHARE))), key=lambda name: rules[name].at(SHARE))
    entry: dict[str, Any] = {"best_rule": best}
    for figure in ("cost", "cores"):
        entry[f"{figure}_saved"] = asdict(saving(fronts, rules[best], SHARE, figure))
        entry[f"{figure}_saved_each"] = asdict(saving(fronts, each, SHARE, figure))
    return entry


def _without_nan(value: Any) -> Any:
    """The same with null where a figure lies outside of a front."""
    if isinstance(value, dict):
        return {name: _without_nan(own) for name, own in value.items()}
    if isinstance(value, list):
        return [_without_nan(own) for own in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def at_share(front: Front) -> dict[str, float]:
    """Every figure at SHARE violating steps."""
    return {figure: front.at(SHARE, figure) for figure in JUDGED if figure != "violated"}


def measure(load: str, folder: Path | None, seeds: int, effort: float, budget: float, forms: Sequence[str],
            names: Sequence[str]) -> dict[str, Any]:
    """Everything under one kind of load."""
    environment = environment_of(load, folder)
    tuners = tuned_rules(environment, names, effort)
    judge = Judge(environment, seed=12345)
    rules = {name: rule_front(judge, tuner) for name, tuner in tuners.items()}
    found = {name: front.at(SHARE) for name, front in rules.items()}
    print({name: round(value, 3) for name, value in found.items()}, flush=True)
    best = min((name for name in found if np.isfinite(found[name])), key=lambda name: found[name])
    each = each_front(judge, tuners[best], effort)
    entry: dict[str, Any] = {
        "load": load, "share": SHARE, "targets": list(TARGETS),
        "rules": {name: {"at_share": at_share(front), "front": table_of(front)} for name, front in rules.items()},
        "each": {"rule": best, "at_share": at_share(each), "front": table_of(each)}, "policies": {}}
    for name in forms:
        form = FORMS[name]
        policies, seconds = trained_policies(environment, form, seeds, budget)
        fronts = policy_fronts(judge, policies)
        if name == CHALLENGER:
            entry["cases"] = in_cases(environment, traces_of(load, folder), tuners, rules, policies, fronts)
        entry["policies"][name] = {
            "linear": form.linear, "provable": form.provable, "seconds": seconds,
            "policies": seeds * len(TARGETS),
            "at_share": [at_share(front) for front in fronts], "fronts": [table_of(front) for front in fronts],
            **compared(fronts, rules, each)}
        own = entry["policies"][name]
        print(name, f"{seconds:.0f} s", own["cost_saved"], own["cost_saved_each"], flush=True)
    return entry


def in_cases(environment: Autoscaling, traces: Numbers | None, tuners: Mapping[str, Tuner],
             rules: Mapping[str, Front], policies: Sequence[Sequence[Policy]], fronts: Sequence[Front],
             ) -> dict[str, Any]:
    """Costs of the best rules and of the policies, in the load that they are made for and in other cases."""
    known = [name for name in rules if np.isfinite(rules[name].at(SHARE))]
    best = sorted(known, key=lambda name: rules[name].at(SHARE))[:RIVALS]
    found = {AS_TRAINED: {"rules": {name: costs(rules[name]) for name in best},
                          "policies": [costs(front) for front in fronts]}}
    for case, other in cases(environment, traces).items():
        judge = Judge(other, seed=12345)
        found[case] = {"rules": {name: costs(rule_front(judge, tuners[name])) for name in best},
                       "policies": [costs(front) for front in policy_fronts(judge, policies)]}
        print(case, found[case], flush=True)
    return found


def rules_table(results: Mapping[str, Any]) -> str:
    """A controller a row, at SHARE violating steps."""
    rows = []
    for entry in results["entries"]:
        ordered = sorted(entry["rules"].items(), key=lambda item: item[1]["at_share"]["cost"] or np.inf)
        rows += [_row(entry["load"], name, [own["at_share"]]) for name, own in ordered]
        each = entry["each"]
        rows.append(_row(entry["load"], f"{each['rule']}, tuned for each application", [each["at_share"]]))
        for name, own in entry["policies"].items():
            seeds = len(own["at_share"])
            rows.append(_row(entry["load"], f"policy: {name}, {seeds} seeds", own["at_share"]))
    header = ["load", "controller", "cost", "cores", "memory, GiB", "violated requests, %", "starts and stops an hour",
              "reward a step"]
    return table(header, rows, range(2, len(header)))


def savings_table(results: Mapping[str, Any]) -> str:
    """What each kind of policy saves."""
    rows = [[entry["load"], name, _saved(own["cost_saved"]), _saved(own["cost_saved_each"]), _saved(own["cores_saved"]),
             f"{own['seconds']:.0f}"]
            for entry in results["entries"] for name, own in entry["policies"].items()]
    header = ["load", "policy", "cost saved against the best rule, %", "against the rule tuned for each application, %",
              "cores saved against the best rule, %", "s of training, all seeds and targets"]
    return table(header, rows, range(2, len(header)))


def _row(load: str, name: str, found: Sequence[Mapping[str, float | None]]) -> list[str]:
    def shown(figure: str, scale: float = 1.0, digits: int = 2) -> str:
        values = [float(value) * scale for one in found if (value := one[figure]) is not None]
        if not values:
            return "outside of its front"
        spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
        missing = f" ({len(values)} of {len(found)})" if len(values) < len(found) else ""
        return f"{np.mean(values):.{digits}f}{spread}{missing}"

    return [load, name, shown("cost"), shown("cores"), shown("memory_gib"), shown("violated_requests", 100, 1),
            shown("changes_an_hour", digits=0), shown("reward", digits=3)]


def _saved(interval: Mapping[str, float | None]) -> str:
    if interval["mean"] is None:
        return "not told: a seed's front does not reach 2 %"
    if interval["low"] is None or interval["high"] is None:
        return f"{100 * interval['mean']:+.1f} (no interval)"
    return f"{100 * interval['mean']:+.1f} ({100 * interval['low']:+.1f} to {100 * interval['high']:+.1f})"


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, default=5, help="of each kind of policy")
    parser.add_argument("--effort", type=float, default=1.0, help="scales the settings that are tried for each rule")
    parser.add_argument("--budget", type=float, default=1.0, help="scales the rounds of training")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    add_data_folder(parser)


def run(options: argparse.Namespace) -> None:
    """Measures every load that is not there yet."""
    code = with_task(
        load_task(TASK), code_digest("systems.autoscaling.benchmarks.against_rules", "systems.autoscaling.benchmarks"),
        code_digest("models.control.training.through_environment", "models.control"),
        code_digest("models.control.policy.policy", "models.control"),
        code_digest("systems.autoscaling.simulator.simulator", ("systems.autoscaling", "models.control")))
    wanted = {"code": code, "seeds": options.seeds, "effort": options.effort, "budget": options.budget,
              "forms": options.forms, "rule_names": options.rules}
    entries = Entries(options.output, FORMAT, lambda entry: LOADS.index(entry["load"]),
                      lambda _, entry: wanted.items() <= entry.items())
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    for load in options.loads:
        if not entries.has(LOADS.index(load)):
            found = measure(load, options.data_folder, options.seeds, options.effort, options.budget,
                            options.forms, options.rules)
            entries.add({**_without_nan(found), **wanted})
