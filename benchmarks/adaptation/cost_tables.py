"""Tables and plot of benchmarks/adaptation/cost.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.adaptation.intervals import with_interval
from benchmarks.harness.markdown import mean_and_spread, number, paragraph, table
from benchmarks.harness.svg import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = Mapping[str, Any]
Entry = Mapping[str, Any]
METHODS = {"pretrained": "pretrained", "transfer": "transfer", "scratch": "fresh weights"}
TITLES = {"cloudbandit": "CloudBandit", "scout": "scout", "performance": "recorded, a workload left out",
          "shifted": "recorded, second campaign"}
SIZING = ("cloudbandit", "scout")


def cost_table(results: Results) -> str:
    """Steps and seconds until the error has converged, largest pools."""
    rows = []
    for title, entries in _cases(results):
        for method, name in METHODS.items():
            measured = [entry["methods"][method] for entry in entries]
            steps = np.array([np.mean(one["steps"]) for one in measured])
            ratio = np.array([np.mean(one["steps"]) for one in (e["methods"]["transfer"] for e in entries)]) / steps
            reached = [value for one in measured for value in one["steps_to_scratch"]]
            reached_steps = [value for value in reached if value is not None]
            rows.append([
                title, name, str(len(measured)), mean_and_spread(steps.tolist(), 0),
                number(float(np.mean([s * one["seconds_per_step"] for s, one in zip(steps, measured, strict=True)]))),
                "" if method == "transfer" else f"{np.exp(np.log(ratio).mean()):.1f}",
                number(float(np.median(reached_steps))) if len(reached_steps) > len(reached) / 2 else "never",
                f"{1 - len(reached_steps) / len(reached):.0%}", _error([one["before"] for one in measured]),
                _error([one["converged"] for one in measured])])
    return table(["data", "start", "seeds", "steps to within 2 % of its converged error", "seconds",
                  "times fewer than transfer", "median steps to the error of fresh weights", "never reach it",
                  "error before", "converged error"], rows, right=(2, 3, 4, 5, 6, 7, 8, 9))


def amortisation_table(results: Results) -> str:
    """Pretraining and n adaptations against one source and n transfers, in gradient steps."""
    rows = []
    for data in SIZING:
        for pool, entries in _pools(results, data):
            before, source, adaptation, transfer = _steps(entries)
            even = (before - source) / (transfer - adaptation)
            counts = (f"{steps:,.0f}" for steps in (before, adaptation, source, transfer))
            rows.append([TITLES[data], str(pool), *counts,
                         "at once" if before <= source and adaptation <= transfer else
                         "never" if transfer <= adaptation else f"{even:,.0f}"])
    return table(["data", "workloads of the pool", "pretraining, steps", "an adaptation", "the source of transfers",
                  "a transfer", "pays from this many workloads on"], rows, right=(1, 2, 3, 4, 5, 6))


def foreseen_table(results: Results) -> str:
    """Rank correlation of what is known before with the error before adaptation, and what the flag says."""
    rows = []
    for data in SIZING:
        *_, (_, entries) = _pools(results, data)
        for key, title in (("similarity", "similarity to the pool"), ("deviation", "the closed form's deviation")):
            correlations = np.array([spearmanr(entry["foreseen"][key], entry["foreseen"]["closed_form_mape"]).statistic
                              for entry in entries])
            flagged, rest = _flagged(entries)
            rows.append([TITLES[data], title, str(len(correlations)), with_interval(correlations, 2),
                         *([f"{len(flagged) / (len(flagged) + len(rest)):.0%}",
                            f"{np.mean(flagged):.3f}" if len(flagged) else "", f"{np.mean(rest):.3f}"]
                           if key == "similarity" else ["", "", ""])])
    return table(["data", "what is known before", "splits", "rank correlation with the error, 95 % interval",
                  "flagged", "MAPE of the flagged", "MAPE of the others"], rows, right=(2, 4, 5, 6))


def cost_conditions_line(results: Results) -> str:
    """What the figures are of."""
    seeds = sorted({entry["seed"] for entry in results["entries"]})
    return paragraph(
        f"Base learner {' x '.join(map(str, results['hidden']))}, {results['steps']:,} steps of Adam, tested every "
        f"{results['every']}; seeds {seeds[0]} to {seeds[-1]}; mean ± standard deviation over seeds of the mean over "
        "workloads; seconds: one network alone on one core, other work beside it. Errors: mean absolute percentage "
        "error of run times; mean squared error of the scaled latency of recorded workloads.")


def draw_amortisation(results: Results, path: Path) -> None:
    """A workload's share of all steps over the number of adapted workloads, pools of several sizes; and how the error
    falls."""
    from models.reporting.figures import BASELINE, UNVERIFIED, VERIFIED

    with svg(path, 7.6, 5.4) as figure:
        axes = figure.subplots(2, 2)
        count = np.unique(np.geomspace(1, 1000, 60).round())
        for row, data in enumerate(SIZING):
            share, fall = axes[row]
            pools = list(_pools(results, data))
            for k, (pool, entries) in enumerate(pools):
                before, source, adaptation, transfer = _steps(entries)
                share.plot(count, before / count + adaptation, color=VERIFIED, lw=1.3, alpha=0.4 + 0.6 * k / len(pools),
                           ls=("-", "--", ":")[k % 3], label=f"pretrained on {pool}")
            share.plot(count, source / count + transfer, color=UNVERIFIED, lw=1.3, label="transfer")
            share.set(xscale="log", yscale="log", xlabel="adapted workloads", ylabel="steps a workload",
                      title=f"{TITLES[data]}: cost with pretraining")
            share.legend(fontsize=7.5)
            for method, color in (("pretrained", VERIFIED), ("transfer", UNVERIFIED), ("scratch", BASELINE)):
                _fall(fall, [entry["methods"][method]["curve"] for entry in pools[-1][1]], color, METHODS[method])
            fall.set(xscale="symlog", yscale="log", xlabel="steps of an adaptation", ylabel="MAPE",
                     title=f"{TITLES[data]}: error while adapting")
            fall.legend(fontsize=7.5)


def _fall(axes: "Axes", curves: Sequence[Mapping[str, list[float]]], color: str, label: str) -> None:
    """Mean over seeds, and one standard deviation to each side."""
    steps, errors = curves[0]["steps"], np.array([curve["error"] for curve in curves])
    mean, spread = errors.mean(axis=0), errors.std(axis=0)
    axes.plot(steps, mean, color=color, lw=1.3, label=label)
    axes.fill_between(steps, np.maximum(mean - spread, mean / 2), mean + spread, color=color, alpha=0.15, lw=0)


def _cases(results: Results) -> list[tuple[str, list[Entry]]]:
    """(title, entries of all seeds): the largest pool of sizing data, and each number of rows of recorded data."""
    cases: list[tuple[str, list[Entry]]] = []
    for data, title in TITLES.items():
        of_data = [entry for entry in results["entries"] if entry["data"] == data]
        if data in SIZING and of_data:
            *_, (pool, entries) = _pools(results, data)
            cases.append((f"{title}, pool of {pool}", entries))
        for rows in sorted({entry["rows"] for entry in of_data if data not in SIZING}, key=lambda rows: rows or 10**9):
            cases.append((f"{title}, {rows or 'all'} rows", [entry for entry in of_data if entry["rows"] == rows]))
    return cases


def _pools(results: Results, data: str) -> list[tuple[int, list[Entry]]]:
    """(workloads of the pool, entries of all seeds), smallest first."""
    of_data = [entry for entry in results["entries"] if entry["data"] == data]
    return [(pool, [entry for entry in of_data if entry["pool"] == pool]) for pool in
            sorted({entry["pool"] for entry in of_data})]


def _steps(entries: Sequence[Entry]) -> tuple[float, float, float, float]:
    """Means over seeds: pretraining, the source of transfers, an adaptation, a transfer."""
    return tuple(float(np.mean(values)) for values in zip(*(  # type: ignore[return-value]
        (entry["pretraining"]["steps"], entry["source_steps"], np.mean(entry["methods"]["pretrained"]["steps"]),
         np.mean(entry["methods"]["transfer"]["steps"])) for entry in entries), strict=True))


def _flagged(entries: Sequence[Entry]) -> tuple[list[float], list[float]]:
    """Errors of flagged workloads and of the others."""
    pairs = [(flag, error) for entry in entries for flag, error in
             zip(entry["foreseen"]["flagged"], entry["foreseen"]["closed_form_mape"], strict=True)]
    return [error for flag, error in pairs if flag], [error for flag, error in pairs if not flag]


def _error(values: Sequence[Sequence[float]]) -> str:
    return number(float(np.mean([np.mean(errors) for errors in values])))
