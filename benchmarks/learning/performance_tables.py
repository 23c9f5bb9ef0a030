"""Tables of the learning benchmark: verified against unverified learners, beside the paper's figures."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.markdown import mean_and_spread, paragraph, table
from benchmarks.harness.shown import verdicts_line
from benchmarks.learning.data_sets import DATA_SETS, RECORDED
from models.tasks.task import load_task

Results = Mapping[str, Any]
Entry = Mapping[str, Any]
SHIPPED, UNVERIFIED, PEER = "monotone", "plain", "lipschitz_monotone"
# What a provable learner shall cost: accuracy beside plain training, share; seconds until PROVED, a workload.
GOAL_LOSS, GOAL_SECONDS = 0.005, 60.0
# vPALs, section "Verified and unverified DNNs" and figure 6: accuracy of the unverified learner on the
# counterexample set. The workloads that stand for the paper's: training for MindSpore, search for Solr.
PAPER_UNVERIFIED = {"training": ("MindSpore", "0 %"), "mysql": ("MySQL", "12.5 %"), "search": ("Solr", "82.3 %")}
PAPER_TEST_GAIN = "about +3"
METHOD_NAMES = {
    "monotone": "monotone by construction, then proved",
    "counterexample_guided": "counterexample-guided (Algorithm 1)", "certified": "certified training",
    "certified_guided": "Algorithm 1 after certified training", "plain": "plain (never verified in training)",
    "monotone_not_pretrained": "monotone, not pretrained",
    "lipschitz_monotone": "Lipschitz monotone network (peer)"}


def verified_table(results: Results) -> str:
    """For each workload the verified learner (method `monotone`) against its unverified twin."""
    entries = _of(results, SHIPPED)
    if not entries:
        return f"*Not measured yet: no entry of the method {SHIPPED}.*"
    rows = []
    for workload in _workloads(entries):
        of_workload = [entry for entry in entries if entry["workload"] == workload]
        paper = PAPER_UNVERIFIED.get(workload)
        rows.append([
            workload, verdicts(of_workload), _percent(of_workload, "test_accuracy"),
            _percent(of_workload, "twin_test_accuracy"), _difference(of_workload),
            _percent(of_workload, "baseline_accuracy"), _percent(of_workload, "counterexample_accuracy"),
            _percent(of_workload, "twin_counterexample_accuracy"), _paper_like(results, workload),
            f"{paper[1]} ({paper[0]})" if paper else "not evaluated"])
    rows.append(["vPALs (paper)", "proved", "", "", PAPER_TEST_GAIN, "", "100", "", "", ""])
    header = ["workload", "verdict", "test accuracy, %: verified", "unverified", "difference, points",
              "monotone gradient boosting", "counterexamples right, %: verified", "unverified",
              "unverified, on those of Algorithm 1", "unverified in vPALs"]
    seeds, tolerance = sorted({entry["seed"] for entry in entries}), load_task("performance").accuracy_tolerance
    counterexamples = statistics.fmean(entry["metrics"]["counterexamples"] for entry in entries)
    over = f"Mean ± standard deviation over {len(seeds)} seeds" if len(seeds) > 1 else "One seed"
    note = paragraph(
        f"{over} (of split, weights and batches).",
        f"Accuracy: share of predictions within {tolerance:g} of the scaled latency.",
        f"Counterexamples: pairs of inputs that an attack found in the wrong order, {counterexamples:.0f} a workload",
        "and seed; right: the order holds. The verified learner has none, so they are the unverified one's, which gets",
        "them wrong by selection; those of Algorithm 1 were found on the learner that it trains, as in the paper.",
        "The unverified learner has the same layers, seed, batches and epochs.")
    return f"{table(header, rows, range(2, len(header)))}\n\n{note}"


def headline(results: Results) -> tuple[str, str]:
    """README's line: the accuracies of the workloads, and what the proof costs at most."""
    entries = _of(results, SHIPPED)
    by_workload = [[entry["metrics"] for entry in entries if entry["workload"] == workload]
                   for workload in _workloads(entries)]
    accuracies = [100 * statistics.fmean(one["test_accuracy"] for one in own) for own in by_workload]
    lost = [100 * statistics.fmean(one["twin_test_accuracy"] - one["test_accuracy"] for one in own)
            for own in by_workload]
    return (f"{min(accuracies):.0f} to {max(accuracies):.1f} % of test rows predicted closely on {len(by_workload)} "
            f"workloads, at most {max(lost):.1f} points fewer than without the proof",
            verdicts_line([entry["verdict"] for entry in entries]))


def methods_table(results: Results) -> str:
    """Every data set, workload and method: errors, verdicts and what they cost; where the goal is met; directions."""
    parts = []
    for data in [name for name in DATA_SETS if _of_data(results, name)]:
        entries = _of_data(results, data)
        tables = [_learners_table(entries), _goals(entries), _directions_table(results, data)]
        parts += [f"### {DATA_SETS[data]}", *[one for one in tables if one]]
    return "\n\n".join(parts) or "*Not measured yet.*"


def _learners_table(entries: Sequence[Entry]) -> str:
    """A row a workload and method, and two for what every error is read against: boosting and a constant."""
    rows = []
    for workload in _workloads(entries):
        for method, of_method in _by_method(entries, workload).items():
            rows.append([
                workload, METHOD_NAMES[method], verdicts(of_method), _error(of_method, "test_mse"),
                _ratio(of_method, "test_mse", "baseline_mse"), _ratio(of_method, "test_mse", "constant_mse"),
                _percent(of_method, "test_accuracy"), _signed(_beside_plain(entries, of_method)),
                _if_measured(of_method, "counterexample_accuracy", 1, 100.0),
                _if_measured(of_method, "verification_iterations", 1),
                _if_measured(of_method, "proved_seconds", 1)])
        once = _one_a_seed(entries, workload)
        for name, kind in (("baseline", "monotone gradient boosting"), ("constant", "mean of the training side")):
            rows.append([workload, f"*{kind}*", "", _error(once, f"{name}_mse"),
                         _ratio(once, f"{name}_mse", "baseline_mse"), _ratio(once, f"{name}_mse", "constant_mse"),
                         _percent(once, f"{name}_accuracy"), "", "", "", ""])
    header = ["workload", "learner", "verdict", "test MSE, thousandths", "of boosting's", "of the mean's",
              "test accuracy, %", "beside plain, points", "counterexamples right, %", "verifications",
              "until PROVED, s"]
    return table(header, rows, range(3, len(header)))


def _goals(entries: Sequence[Entry]) -> str:
    """For each method that verifies, the workloads on which the goal is met, and what is missing on the others.

    "" where plain training is not measured: the goal is set beside it.
    """
    if not any(entry["method"] == UNVERIFIED for entry in entries):
        return ""
    rows = []
    for method in METHOD_NAMES:
        met: list[str] = []
        missed: list[str] = []
        for workload in _workloads(entries) if method not in (UNVERIFIED, PEER) else ():
            if of_method := _by_method(entries, workload).get(method):
                wrong = _missing_of_goal(entries, of_method)
                (missed if wrong else met).append(f"{workload} ({wrong})" if wrong else workload)
        if met or missed:
            rows.append([METHOD_NAMES[method], ", ".join(met) or "none", ", ".join(missed) or "none"])
    goal = paragraph(
        f"Goal: PROVED with every seed, on average at most {100 * GOAL_LOSS:g} points of accuracy below plain training",
        f"and less than {GOAL_SECONDS:g} s until PROVED.")
    return f"{goal}\n\n{table(['learner', 'goal met', 'not met'], rows)}"


def _missing_of_goal(entries: Sequence[Entry], of_method: Sequence[Entry]) -> str:
    """What a method lacks on a workload, in words; "" where the goal is met."""
    wrong = []
    if {entry["verdict"] for entry in of_method} != {"PROVED"}:
        wrong.append(verdicts(of_method))
    difference = _beside_plain(entries, of_method)
    if not difference:
        wrong.append("plain training not measured")
    elif (mean := statistics.fmean(difference)) < -GOAL_LOSS:
        wrong.append(f"{100 * mean:.1f} points")
    seconds = [entry["metrics"]["proved_seconds"] for entry in of_method if entry["verdict"] == "PROVED"]
    if seconds and (mean := statistics.fmean(seconds)) >= GOAL_SECONDS:
        wrong.append(f"{mean:.0f} s")
    return ", ".join(wrong)


def _directions_table(results: Results, data: str) -> str:
    """What the data say about the specified directions (directions.py); docs/benchmarks/performance.md explains it."""
    rows = []
    for workload, directions in sorted(results["data"][data]["directions"].items()):
        for number, (feature, one) in enumerate(directions["features"].items()):
            errors = [_fold_errors(directions["errors"][of]) for of in ("target", "ranks")] if number == 0 else ["", ""]
            rows.append([workload, feature, "increasing" if one["sign"] > 0 else "decreasing",
                         f"{one['rank_correlation']:+.2f}", f"{one['others_equal']:+.2f}", *errors])
    header = ["workload", "feature", "specified", "rank correlation", "others equal",
              "boosting: error as specified, reversed, free", "of the target's ranks"]
    return table(header, rows, (3, 4)) if rows else ""


def _fold_errors(errors: Mapping[str, Sequence[float]]) -> str:
    means = [f"{statistics.fmean(errors[kind]):.3f}" for kind in ("as_specified", "reversed", "free")]
    pairs = list(zip(errors["as_specified"], errors["reversed"], strict=True))
    return f"{', '.join(means)} ({sum(own < other for own, other in pairs)} of {len(pairs)})"


def ablation_table(results: Results) -> str:
    """What pretraining gives: the same method with and without it."""
    rows = []
    before, after = _of(results, "monotone_not_pretrained"), _of(results, SHIPPED)
    for workload in _workloads(before):
        pairs = [[entry for entry in side if entry["workload"] == workload] for side in (before, after)]
        if all(pairs):
            rows.append([workload, *(_percent(side, "test_accuracy") for side in pairs),
                         *(_thousandths(side, "test_mse") for side in pairs)])
    header = ["workload", "test accuracy, %: not pretrained", "pretrained", "test MSE, thousandths: not pretrained",
              "pretrained"]
    return table(header, rows, (1, 2, 3, 4)) if rows else "*Not measured yet.*"


def settings_line(results: Results) -> str:
    """Data, settings and machine of the learning benchmark, in sentences."""
    machine = results["machine"]
    lines = [_data_line(results, data) for data in DATA_SETS if _of_data(results, data)]
    versions = {entry.get("learning_code_version") for entry in results["entries"]}
    mixed = f"Made by {len(versions)} versions of the code; each entry says by which." if len(versions) > 1 else ""
    return "\n\n".join([*lines, paragraph(
        f"{results['jobs']} jobs side by side on {machine['cores']} cores ({machine['cpu_model']}),",
        f"{machine['date'][:10]}. Seconds until PROVED count the learner alone: its training and share of the",
        "pretraining, the verifications, the final proof and the check of the exported file; not the twin, the",
        "baseline, reading and writing.", *([mixed] if mixed else []))])


def _data_line(results: Results, data: str) -> str:
    part, entries = results["data"][data], _of_data(results, data)
    settings = part["settings"]
    seeds = sorted({entry["seed"] for entry in entries})
    rows = sum(sum(entry["rows"].values()) for entry in entries
               if (entry["method"], entry["seed"]) == (entries[0]["method"], entries[0]["seed"]))
    loop = settings.get("counterexample_guided") or next(iter(settings.values()))
    return paragraph(
        f"{DATA_SETS[data]}: {rows:,} samples (data {part['data_version'][:12]}), seeds {', '.join(map(str, seeds))}.",
        f"{loop['epochs']} epochs, {loop['pretrain_epochs']} of pretraining, batches of",
        f"{loop['batch_size']}. Algorithm 1: at most {loop['iterations']} further iterations of",
        f"{loop['epochs_per_iteration']} epochs, {loop['loop_verify_seconds']:g} s for a verification in the loop,",
        f"{loop['verify_seconds']:g} s for the last.")


def _paper_like(results: Results, workload: str) -> str:
    """The unverified learner on the counterexamples that Algorithm 1 found on the learner it trained."""
    of_learner = [entry for entry in _of(results, "counterexample_guided")
           if entry["workload"] == workload and entry["metrics"].get("own_counterexamples")]
    return _percent(of_learner, "own_twin_counterexample_accuracy") if of_learner else ""


def verdicts(entries: Sequence[Entry]) -> str:
    """PROVED, or how often which verdict."""
    every_verdict = [entry["verdict"] for entry in entries]
    kinds = sorted(set(every_verdict), key=lambda kind: (-every_verdict.count(kind), kind))
    return kinds[0] if len(kinds) == 1 else ", ".join(f"{every_verdict.count(kind)} {kind}" for kind in kinds)


def _of_data(results: Results, data: str) -> list[Entry]:
    return [entry for entry in results["entries"] if entry["data"] == data]


def _of(results: Results, method: str) -> list[Entry]:
    """Of the recorded telemetry."""
    return [entry for entry in _of_data(results, RECORDED) if entry["method"] == method]


def _by_method(entries: Sequence[Entry], workload: str) -> dict[str, list[Entry]]:
    """A workload's entries by method, in the order of METHOD_NAMES."""
    of_workload = [entry for entry in entries if entry["workload"] == workload]
    by_method = {method: [entry for entry in of_workload if entry["method"] == method] for method in METHOD_NAMES}
    return {method: some for method, some in by_method.items() if some}


def _one_a_seed(entries: Sequence[Entry], workload: str) -> list[Entry]:
    """The first entry of each seed: split and baseline are the same for all methods."""
    return list({entry["seed"]: entry for entry in reversed(entries) if entry["workload"] == workload}.values())[::-1]


def _beside_plain(entries: Sequence[Entry], of_method: Sequence[Entry]) -> list[float]:
    """Test accuracy less plain training's with the same seed, a seed a value; empty where plain is not measured."""
    plain = {entry["seed"]: entry["metrics"]["test_accuracy"] for entry in entries
             if (entry["method"], entry["workload"]) == (UNVERIFIED, of_method[0]["workload"])}
    if of_method[0]["method"] == UNVERIFIED or any(entry["seed"] not in plain for entry in of_method):
        return []
    return [entry["metrics"]["test_accuracy"] - plain[entry["seed"]] for entry in of_method]


def _workloads(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(entry["workload"] for entry in entries))


def _values(entries: Sequence[Entry], metric: str) -> list[float]:
    """Raises ValueError for a metric that was not finite: a mean without it would be another number."""
    values = [entry["metrics"][metric] for entry in entries]
    if any(value is None for value in values):
        raise ValueError(f"{metric} must be finite in every entry ({entries[0]['method']}, {entries[0]['workload']})")
    return values


def _percent(entries: Sequence[Entry], metric: str) -> str:
    return mean_and_spread(_values(entries, metric), 1, 100.0)


def _thousandths(entries: Sequence[Entry], metric: str) -> str:
    return mean_and_spread(_values(entries, metric), 2, 1000.0)


def _error(entries: Sequence[Entry], metric: str) -> str:
    """In thousandths, with as many digits as an error far below one of them needs."""
    values = _values(entries, metric)
    return mean_and_spread(values, 2 if statistics.fmean(values) >= 1e-4 else 4, 1000.0)


def _ratio(entries: Sequence[Entry], metric: str, reference: str) -> str:
    """One metric over another, seed by seed."""
    pairs = zip(_values(entries, metric), _values(entries, reference), strict=True)
    return mean_and_spread([own / other for own, other in pairs], 2)


def _if_measured(entries: Sequence[Entry], metric: str, digits: int, scale: float = 1.0) -> str:
    """"" where an entry does not have the metric: seconds until PROVED of a learner that is not."""
    if any(metric not in entry["metrics"] for entry in entries):
        return ""
    return mean_and_spread(_values(entries, metric), digits, scale)


def _difference(entries: Sequence[Entry]) -> str:
    """Verified minus unverified, seed by seed, in percentage points."""
    pairs = zip(_values(entries, "test_accuracy"), _values(entries, "twin_test_accuracy"), strict=True)
    return _signed([verified - twin for verified, twin in pairs])


def _signed(differences: Sequence[float]) -> str:
    """Shares as percentage points with their sign; "" for none."""
    text = mean_and_spread(differences, 1, 100.0) if differences else ""
    return text if not text or text.startswith("-") else f"+{text}"

