"""What learned policies save against the rules that a platform engineer would run, at equal violations.

    python -m benchmarks autoscaling-rules [--seeds 5] [--effort 3.0] [--loads azure made] [--jobs 2]

Rules are tuned by Optuna on training applications (models/control/training/rule_tuning.py), for several targets;
policies are trained on the same applications, for several targets and seeds. All are judged on the 200 held-out
applications under loads that no training saw, on the same episodes. `cost` is what is allocated over the mean load;
savings are at 2 % violating steps, with bootstrap intervals over applications and seeds. Beside the best rule: the rule
tuned for each held-out application on other episodes of its own, which no policy is. Policies and the best rules are
tried in cases that nothing was trained or tuned for, too (cases.py).

A good hour on two cores, in parts that run side by side and are kept in --work: a run that was stopped goes on, and
so does one with more loads, kinds of policies or rules.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder, required
from benchmarks.harness.entries import Entries
from benchmarks.harness.jobs import add_jobs, kept_parts
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from feature_store.errors import InputError
from models.tasks.task import load_task
from systems.autoscaling.benchmarks import against_rules_parts as parts
from systems.autoscaling.benchmarks.against_rules_parts import FORMS, JUDGED, SHARE, TARGETS, TASK
from systems.autoscaling.benchmarks.cases import AS_TRAINED, CASES, costs
from systems.autoscaling.benchmarks.fronts import Front, joined, saving, table_of
from systems.autoscaling.rules.rules import RULES

OUTPUT = RESULTS / "autoscaling_rules.json"
FORMAT = "assay-autoscaling-rules/1"
LOADS = ("azure", "made")
PACKAGES = ("systems.autoscaling", "models.")  # whose code a measurement depends on
RIVALS = 3  # of the best rules, which are tried in other cases


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seeds", type=int, default=5, help="of each kind of policy")
    parser.add_argument("--effort", type=float, default=3.0,
                        help="times 192 settings that are tried for each rule; default: 3")
    parser.add_argument("--budget", type=float, default=1.0, help="scales the rounds of training")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--work", type=Path, default=Path(".assay/autoscaling-rules"), metavar="FOLDER",
                        help="folder for finished parts; default: .assay/autoscaling-rules")
    add_jobs(parser)
    add_data_folder(parser)


def run(options: argparse.Namespace) -> None:
    """Measures every load that is not there yet."""
    task = load_task(TASK)
    code = with_task(task, code_digest("systems.autoscaling.benchmarks.against_rules", PACKAGES))
    of_parts = _code_of_parts()
    made_with = {"seeds": options.seeds, "effort": options.effort, "budget": options.budget}
    wanted = {"code": code, **made_with, "forms": options.forms, "rule_names": options.rules}
    entries = Entries(options.output, FORMAT, lambda entry: LOADS.index(entry["load"]),
                      lambda _, entry: wanted.items() <= entry.items())
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    loads = [load for load in options.loads if not entries.has(LOADS.index(load))]
    if "azure" in loads:
        required(options.data_folder)
    work = options.work / hashlib.sha256(json.dumps({"code": of_parts, **made_with}).encode()).hexdigest()[:16]

    def same_code() -> None:
        if _code_of_parts() != of_parts:
            raise InputError("the code or the task file was changed while parts were made: run it again, which makes "
                             "all of them anew")

    for load, found in measure(loads, options, work, same_code).items():
        entries.add({**_without_nan(found), **wanted})
        print(load, {name: own["cost_saved"] for name, own in found["policies"].items()}, flush=True)


def _code_of_parts() -> str:
    """Digest of what makes the parts, and of the task file, as they are now."""
    return with_task(load_task(TASK), code_digest(parts.__name__, PACKAGES))


def measure(loads: Sequence[str], options: argparse.Namespace, work: Path,
            same_code: Callable[[], None]) -> dict[str, dict[str, Any]]:
    """Load -> everything under it; parts of all loads side by side.

    Args:
        work: folder of the parts.
        same_code: raises InputError where what makes the parts is not what it was at the start.
    """
    first = kept_parts(work, {
        **{f"{load}-policies-{form}": (parts.policies, load, options.data_folder, form, options.seeds, options.budget)
           for load in loads for form in options.forms},
        **{f"{load}-rule-{name}": (parts.rule, load, options.data_folder, name, options.effort)
           for load in loads for name in options.rules}}, options.jobs, same_code)
    rules = {load: {name: Front.of(first[f"{load}-rule-{name}"]["front"]) for name in options.rules} for load in loads}
    best = {load: _best(rules[load]) for load in loads}

    def searched(load: str, name: str) -> tuple[Any, ...]:
        return load, options.data_folder, name, first[f"{load}-rule-{name}"]["settings"]

    second = kept_parts(work, {
        **{f"{load}-each-{best[load][0]}-{target:g}": (parts.each_application, *searched(load, best[load][0]),
                                                       options.effort, target) for load in loads for target in TARGETS},
        **{f"{load}-{case}-rule-{name}": (parts.rule_in_case, *searched(load, name), case)
           for load in loads if parts.CHALLENGER in options.forms for case in CASES for name in best[load]}},
        options.jobs, same_code)
    found = {}
    for load in loads:
        each = joined([Front.of(second[f"{load}-each-{best[load][0]}-{target:g}"]) for target in TARGETS])
        policies = {form: first[f"{load}-policies-{form}"] for form in options.forms}
        found[load] = {
            "load": load, "share": SHARE, "targets": list(TARGETS),
            "rules": {name: {"at_share": at_share(front), "front": table_of(front)}
                      for name, front in rules[load].items()},
            "each": {"rule": best[load][0], "at_share": at_share(each), "front": table_of(each)},
            "policies": {form: _told(form, one, best[load][0], rules[load], each) for form, one in policies.items()}}
        if parts.CHALLENGER in policies:
            in_case = {case: {name: Front.of(second[f"{load}-{case}-rule-{name}"]) for name in best[load]}
                       for case in CASES}
            fronts = policies[parts.CHALLENGER]["fronts"]
            found[load]["cases"] = {
                case: {"rules": {name: costs(front) for name, front in of_rules.items() if name in best[load]},
                       "policies": [costs(Front.of(one)) for one in fronts[case]]}
                for case, of_rules in {AS_TRAINED: rules[load], **in_case}.items()}
    return found


def _best(rules: Mapping[str, Front]) -> list[str]:
    """Up to RIVALS rules that reach SHARE, the cheapest first. Raises InputError where none does."""
    known = [name for name in rules if np.isfinite(rules[name].at(SHARE))]
    if not known:
        raise InputError(f"--rules: expected one with settings on both sides of {SHARE:.0%} violating steps, got none "
                         f"among {', '.join(rules)}; name more rules, or raise --effort")
    return sorted(known, key=lambda name: rules[name].at(SHARE))[:RIVALS]


def _told(form: str, made: Mapping[str, Any], best: str, rules: Mapping[str, Front], each: Front) -> dict[str, Any]:
    """An entry's part about one kind of policy."""
    fronts = [Front.of(one) for one in made["fronts"][AS_TRAINED]]
    saved = {f"{figure}_{against}": asdict(saving(fronts, other, SHARE, figure)) for figure in ("cost", "cores")
             for against, other in (("saved", rules[best]), ("saved_each", each))}
    return {**asdict(FORMS[form]), "seconds": made["seconds"], "policies": len(fronts) * len(TARGETS),
            "at_share": [at_share(front) for front in fronts], "fronts": [table_of(front) for front in fronts],
            "best_rule": best, **saved}


def at_share(front: Front) -> dict[str, float]:
    """Every figure at SHARE violating steps."""
    return {figure: front.at(SHARE, figure) for figure in JUDGED if figure != "violated"}


def _without_nan(value: Any) -> Any:
    """The same with null where a figure lies outside of a front."""
    if isinstance(value, dict):
        return {name: _without_nan(own) for name, own in value.items()}
    if isinstance(value, list):
        return [_without_nan(own) for own in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


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
