"""Tables of the learning benchmark: verified against unverified learners, beside the paper's figures."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.markdown import mean_and_spread, paragraph, table
from models.tasks.task import load_task

Results = Mapping[str, Any]
Entry = Mapping[str, Any]
SHIPPED = "monotone"
# vPALs, section "Verified and unverified DNNs" and figure 6: accuracy of the unverified learner on the
# counterexample set. The workloads that stand for the paper's: training for MindSpore, search for Solr.
PAPER_UNVERIFIED = {"training": ("MindSpore", "0 %"), "mysql": ("MySQL", "12.5 %"), "search": ("Solr", "82.3 %")}
PAPER_TEST_GAIN = "about +3"
METHOD_NAMES = {
    "monotone": "monotone by construction, then proved",
    "counterexample_guided": "counterexample-guided (Algorithm 1)", "plain": "never verified",
    "monotone_not_pretrained": "monotone, not pretrained"}


def verified_table(results: Results) -> str:
    """For each workload the verified learner (method `monotone`) against its unverified twin."""
    entries = _of(results, SHIPPED)
    if not entries:
        return f"*Not measured yet: no entry of the method {SHIPPED}.*"
    rows = []
    for workload in _workloads(entries):
        own = [entry for entry in entries if entry["workload"] == workload]
        paper = PAPER_UNVERIFIED.get(workload)
        rows.append([
            workload, verdicts(own), _percent(own, "test_accuracy"), _percent(own, "twin_test_accuracy"),
            _difference(own), _percent(own, "baseline_accuracy"), _percent(own, "counterexample_accuracy"),
            _percent(own, "twin_counterexample_accuracy"), _paper_like(results, workload),
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


def methods_table(results: Results) -> str:
    """Every method and workload: errors, verdicts and what they cost."""
    rows = []
    for method in [name for name in METHOD_NAMES if _of(results, name)]:
        entries = _of(results, method)
        for workload in _workloads(entries):
            own = [entry for entry in entries if entry["workload"] == workload]
            rows.append([
                METHOD_NAMES[method], workload, verdicts(own), _thousandths(own, "test_mse"),
                _thousandths(own, "twin_test_mse"), _thousandths(own, "baseline_mse"), _percent(own, "test_accuracy"),
                _percent(own, "counterexample_accuracy"), _percent(own, "twin_counterexample_accuracy"),
                mean_and_spread(_values(own, "verification_iterations"), 1),
                mean_and_spread(_values(own, "verification_seconds"), 1),
                mean_and_spread([entry["seconds"] for entry in own], 0)])
    if not rows:
        return "*Not measured yet.*"
    header = ["method", "workload", "verdict", "test MSE, thousandths", "twin", "boosting", "test accuracy, %",
              "counterexamples right, %", "twin", "verifications", "verifying, s", "all steps, s"]
    return table(header, rows, range(3, len(header)))


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
    settings, machine = results["settings"], results["machine"]
    entries = results["entries"]
    seeds = sorted({entry["seed"] for entry in entries})
    rows = sum(sum(entry["rows"].values()) for entry in entries
               if (entry["method"], entry["seed"]) == (entries[0]["method"], entries[0]["seed"])) if entries else 0
    loop = settings.get("counterexample_guided") or next(iter(settings.values()))
    return paragraph(
        f"{rows:,} samples (data {results['data_version'][:12]}), seeds {', '.join(map(str, seeds))}.",
        f"{loop['epochs']} epochs, {loop['pretrain_epochs']} of pretraining.",
        f"Algorithm 1: at most {loop['iterations']} further iterations of {loop['epochs_per_iteration']} epochs,",
        f"{loop['loop_verify_seconds']:g} s for a verification in the loop, {loop['verify_seconds']:g} s for the last.",
        f"{results['jobs']} jobs side by side on {machine['cores']} cores ({machine['cpu_model']}),",
        f"{machine['date'][:10]}. Seconds count the learner, its twin and the baseline.")


def _paper_like(results: Results, workload: str) -> str:
    """The unverified learner on the counterexamples that Algorithm 1 found on the learner it trained."""
    own = [entry for entry in _of(results, "counterexample_guided")
           if entry["workload"] == workload and entry["metrics"].get("own_counterexamples")]
    return _percent(own, "own_twin_counterexample_accuracy") if own else ""


def verdicts(entries: Sequence[Entry]) -> str:
    """PROVED, or how often which verdict."""
    found = [entry["verdict"] for entry in entries]
    kinds = sorted(set(found), key=lambda kind: (-found.count(kind), kind))
    return kinds[0] if len(kinds) == 1 else ", ".join(f"{found.count(kind)} {kind}" for kind in kinds)


def _of(results: Results, method: str) -> list[Entry]:
    return [entry for entry in results["entries"] if entry["method"] == method]


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


def _difference(entries: Sequence[Entry]) -> str:
    """Verified minus unverified, seed by seed, in percentage points."""
    pairs = zip(_values(entries, "test_accuracy"), _values(entries, "twin_test_accuracy"), strict=True)
    text = mean_and_spread([verified - twin for verified, twin in pairs], 1, 100.0)
    return text if text.startswith("-") else f"+{text}"

