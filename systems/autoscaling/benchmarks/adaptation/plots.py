"""Plots of adaptation: docs/images/autoscaling_rivals.svg, _adaptation.svg (Figure 5.8), _serving.svg (Figure 5.9)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.svg import svg
from systems.autoscaling.benchmarks.adaptation.new_application import METHODS
from systems.autoscaling.benchmarks.adaptation.new_application_tables import converged, curves_of
from systems.autoscaling.benchmarks.adaptation.rivals import KINDS, SHARE, fronts_of
from systems.autoscaling.benchmarks.adaptation.serving import FIGURES, SERVERS, served_of
from systems.autoscaling.benchmarks.fronts_plot import share_ticks

_MARKERS = "os^vDP*Xhd<>"


def draw_rivals(results: Mapping[str, Any], path: Path) -> None:
    """Cost over violating steps, a line a rival: means over seeds at each setting."""
    entries = {entry["rival"]: entry for entry in results["entries"]}
    with svg(path, 7.2, 4.2) as figure:
        axes = figure.subplots()
        for marker, name in zip(_MARKERS, KINDS, strict=False):
            if name not in entries:
                continue
            fronts = fronts_of(entries[name])
            violated, cost = (np.mean([front.figures[key].mean(axis=1) for front in fronts], axis=0)
                              for key in ("violated", "cost"))
            order = np.argsort(violated)
            axes.plot(100 * violated[order], cost[order], marker=marker, ms=4, lw=1.1, label=name)
        axes.axvline(100 * SHARE, color="0.6", lw=0.8, ls=":")
        axes.set(xscale="log", xlabel="violating steps, %", ylabel="allocated over mean load")
        share_ticks(axes)
        axes.legend(fontsize=7.5, ncols=2)


def draw_adaptation(results: Mapping[str, Any], path: Path) -> None:
    """Reward over episodes in a new application, of the converged one, with the band of the seeds."""
    best = converged(results).mean()
    with svg(path, 7.2, 3.6) as figure:
        axes = figure.subplots()
        entries = {entry["method"]: entry for entry in results["entries"]}
        for name, (what, _) in METHODS.items():
            if name not in entries:
                continue
            curves = 100 * curves_of(entries[name]).mean(axis=2) / best  # (judged, S)
            line, = axes.plot(results["judged_at"], curves.mean(axis=1), lw=1.3, label=what)
            axes.fill_between(results["judged_at"], curves.min(axis=1), curves.max(axis=1), color=line.get_color(),
                              alpha=0.15, lw=0)
        axes.axhline(95, color="0.6", lw=0.8, ls=":")
        axes.set(xscale="symlog", xlabel="episodes in the new application", ylabel="reward, % of the converged")
        axes.set_xlim(0, results["judged_at"][-1])
        axes.set_xticks(results["judged_at"], [str(episodes) for episodes in results["judged_at"]])
        axes.minorticks_off()
        axes.legend(fontsize=7.5, loc="lower right")


def draw_serving(results: Mapping[str, Any], path: Path) -> None:
    """Reward, violations and utilisations after a change, a bar a server (Figure 5.9)."""
    entry = results["entries"][0]
    with svg(path, 7.6, 2.8) as figure:
        for axes, name in zip(figure.subplots(1, 4), FIGURES, strict=True):
            by_seed = np.array([served_of(entry, server, name).mean(axis=(0, 2, 3)) for server in SERVERS])
            scale = 1.0 if name == "reward" else 100.0
            axes.barh(range(len(SERVERS)), scale * by_seed.mean(axis=1),
                      xerr=scale * by_seed.std(axis=1, ddof=1), error_kw={"lw": 0.8})
            axes.set(yticks=range(len(SERVERS)), yticklabels=SERVERS if axes.get_subplotspec().is_first_col() else [],
                     xlabel=name.replace("_", " ") + ("" if name == "reward" else ", %"))
            axes.invert_yaxis()
