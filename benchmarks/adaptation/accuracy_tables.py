"""Tables of benchmarks/adaptation/accuracy.py: goals, methods, splits, intervals, conditions of measurement."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks.adaptation.intervals import difference, joined
from benchmarks.adaptation.methods import DEFAULT, METHODS
from benchmarks.harness.columns import columns_table, left
from benchmarks.harness.markdown import number, paragraph, table

Results = Mapping[str, Any]
Entry = Mapping[str, Any]
# The bars: best simple learners of an earlier trial, unseen workloads, by data and bases.
BARS: Mapping[tuple[str, str], tuple[float, ...]] = {
    ("cloudbandit", "random"): (0.279, 0.230, 0.205), ("cloudbandit", "chosen"): (0.236, 0.204, 0.186),
    ("scout", "random"): (0.335, 0.272, 0.229), ("scout", "chosen"): (0.316, 0.198, 0.181)}
# The thesis's Table 5.5, CloudBandit, test, random bases.
PUBLISHED = {"Sizeless": (0.985, 0.889, 0.798), "FLASH-Sizeless": (0.649, 0.424, 0.497)}
BASES = {"random": "random", "chosen": "chosen on the pool", "planned": "chosen on the pool, together",
         "sequential": "chosen one after the other"}
SEARCH_TITLES = {"ours": "pool, sequential runs, 90 % interval", "ours_risk": "pool, sequential runs, prediction",
                 "random": "random runs", "bayesian": "Bayesian optimisation (CherryPick, GP sampler)"}
SPLIT_TITLES = {"workload": "unseen workload", "algorithm": "unseen algorithm", "provider": "unseen provider",
                "configuration": "unseen half of the configurations"}


def goals_table(results: Results) -> str:
    """Our best against the bars, for unseen workloads."""
    measured = [(data, kind, bar, values) for (data, bases), bar in BARS.items()
                for kind in ([bases] if bases == "random" else [bases, "planned", "sequential"])
                if (values := _shots(results, data, "workload", DEFAULT, kind)) is not None]
    return columns_table(
        measured, left("data", itemgetter(0)), left("measured configurations", lambda row: BASES[row[1]]),
        left("MAPE, 1 / 2 / 3 runs", lambda row: joined(row[3].mean(axis=0))),
        left("standard deviation over splits", lambda row: joined(row[3].std(axis=0, ddof=1))),
        left("bar of an earlier trial, other splits", lambda row: joined(row[2])),
        left("ahead", lambda row: _how_many(row[3].mean(axis=0) < row[2])))


def methods_table(results: Results) -> str:
    """Every method on unseen workloads, and its distance to the default on the same splits."""
    rows = []
    for data in results["data"]:
        for bases in BASES:
            for name in _methods(results, data, "workload", bases):
                values = _shots(results, data, "workload", name, bases)
                assert values is not None
                paired = _paired(results, data, "workload", name, bases)
                behind = "" if name == DEFAULT or not len(paired) else difference(paired.mean(axis=1))
                rows.append([data, BASES[bases], _title(name), str(len(values)), joined(values.mean(axis=0)), behind,
                             number(_mean(results, data, "workload", name, bases, "fit_seconds"))])
        if data == "cloudbandit":
            rows += [[data, "random", f"thesis, table 5.5: {title}", "", joined(values), "", ""]
                     for title, values in PUBLISHED.items()]
    return table(["data", "measured configurations", "learner", "splits", "MAPE, 1 / 2 / 3 runs",
                  "minus the default's, mean over runs, 95 % interval", "fit, s"], rows, right=(3, 6))


def splits_table(results: Results) -> str:
    """The default and the best other learner on every kind of split, random configurations."""
    rows = []
    for data in results["data"]:
        for kind, title in SPLIT_TITLES.items():
            default = _shots(results, data, kind, DEFAULT, "random")
            if default is None:
                continue
            others = {name: values for name in _methods(results, data, kind, "random")
                      if not name.startswith(DEFAULT)
                      and (values := _shots(results, data, kind, name, "random")) is not None}
            best = min(others, key=lambda name: float(others[name].mean()), default=None)
            if best is None:
                continue
            chosen = _shots(results, data, kind, DEFAULT, "sequential")
            rows.append([data, title, joined(default.mean(axis=0)),
                         "" if chosen is None else joined(chosen.mean(axis=0)),
                         _title(best), joined(others[best].mean(axis=0)),
                         difference(_paired(results, data, kind, best, "random").mean(axis=1))])
    return table(["data", "split", "default, random", "default, sequential", "best other learner", "its MAPE, random",
                  "minus the default's, 95 % interval"], rows)


def intervals_table(results: Results) -> str:
    """Coverage of the default's intervals on new workloads."""
    rows = []
    for data in results["data"]:
        for kind, title in SPLIT_TITLES.items():
            entries = [entry for entry in _entries(results, data, kind, DEFAULT, "random") if entry.get("coverage")]
            if entries:
                coverage = np.array([entry["coverage"] for entry in entries], dtype=float)
                width = np.array([entry["width"] for entry in entries], dtype=float)
                within = abs(coverage.mean(axis=0) - entries[0]["nominal_coverage"]) <= 0.02
                rows.append([data, title, f"{entries[0]['nominal_coverage']:.0%}",
                             " / ".join(f"{value:.1%}" for value in coverage.mean(axis=0)),
                             " / ".join(f"{value:.1%}" for value in coverage.std(axis=0, ddof=1)),
                             " / ".join(number(value) for value in width.mean(axis=0)),
                             _how_many(within)])
    return table(["data", "split", "nominal", "measured coverage, 1 / 2 / 3 runs", "standard deviation over splits",
                  "upper by lower end, median", "within 2 points"], rows)


def conditions_line(results: Results) -> str:
    """What the data were, and how many splits."""
    about = [f"{name}: {data['workloads']} workloads, {data['configurations']} configurations, {data['runs']:,} runs, "
             f"{data['failed_runs']} failed runs left out, " + (
                 "no repeated runs" if data["noise"] is None else
                 f"repeated runs differ by {data['noise']:.1%} (standard deviation of the logarithm)") + "."
             for name, data in results["data"].items()]
    seeds = len({entry["seed"] for entry in results["entries"]})
    all_known = [f"With nine tenths of the other configurations measured the MAPE is {values.mean():.3f} on {name}."
                 for name in results["data"]
                 if (values := _shots(results, name, "workload", DEFAULT, "all")) is not None]
    return paragraph(*about, f"{seeds} seeds; {results['draws']} random supports a workload.", *all_known)


def search_table(results: Results) -> str:
    """Misses of the deadline and costs of the configurations named, by method and number of runs."""
    rows = []
    for data in dict.fromkeys(entry["data"] for entry in results["entries"]):
        for method, title in SEARCH_TITLES.items():
            entries = [entry for entry in results["entries"] if entry["data"] == data and entry["method"] == method]
            if entries:
                missed, cost, spent = (np.mean([entry[key] for entry in entries], axis=0)
                                       for key in ("missed", "cost_ratio", "search_cost"))
                rows.append([data, title, " / ".join(f"{value:.0%}" for value in missed),
                             " / ".join(f"{value:.2f}" for value in cost),
                             " / ".join(number(value) for value in spent)])
    budgets = " / ".join(map(str, results["budgets"]))
    return table(["data", "method", f"misses the deadline, {budgets} runs", "cost by the best one's",
                  "cost of all runs by the best one's"], rows)


def search_conditions_line(results: Results) -> str:
    """How many tries."""
    seeds = len({entry["seed"] for entry in results["entries"]})
    workloads = {entry["data"]: entry["workloads"] for entry in results["entries"]}
    tried = ", ".join(f"{count} new workloads of {name}" for name, count in workloads.items())
    return paragraph(f"{seeds} splits, {tried} each; the deadline is met by {results['deadline']:.0%} of a workload's "
                     "measured configurations.")


def _how_many(hold: np.ndarray) -> str:
    return "yes" if hold.all() else "**no**" if not hold.any() else "**in part**"


def _entries(results: Results, data: str, kind: str, method: str, bases: str) -> list[Entry]:
    return [entry for entry in results["entries"] if "error" not in entry and entry["data"] == data
            and entry["split"] == kind and entry["method"] == method and entry["bases"] == bases]


def _shots(results: Results, data: str, kind: str, method: str, bases: str) -> np.ndarray | None:
    """(seeds, numbers of runs), in the order of seeds; None where nothing was measured."""
    by_seed = _by_seed(results, data, kind, method, bases)
    return np.array(list(by_seed.values()), dtype=float) if by_seed else None


def _by_seed(results: Results, data: str, kind: str, method: str, bases: str) -> dict[int, Sequence[float]]:
    entries = sorted(_entries(results, data, kind, method, bases), key=lambda entry: int(entry["seed"]))
    return {int(entry["seed"]): entry["mape"] for entry in entries}


def _paired(results: Results, data: str, kind: str, method: str, bases: str) -> np.ndarray:
    """(seeds that both were measured on, numbers of runs): the method's error minus the default's."""
    method_errors, default = (_by_seed(results, data, kind, name, bases) for name in (method, DEFAULT))
    return np.array([np.subtract(method_errors[seed], default[seed]) for seed in method_errors if seed in default])


def _methods(results: Results, data: str, kind: str, bases: str) -> list[str]:
    return [name for name in METHODS if _entries(results, data, kind, name, bases)]


def _mean(results: Results, data: str, kind: str, method: str, bases: str, key: str) -> float:
    return float(np.mean([entry[key] for entry in _entries(results, data, kind, method, bases)]))


def _title(name: str) -> str:
    return METHODS[name].title
