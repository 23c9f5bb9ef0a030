"""The plot of what fitting the default few-shot learner costs, to docs/images/adaptation_scale.svg."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.adaptation.scale import FIXED_CONFIGURATIONS, FIXED_WORKLOADS
from benchmarks.harness.power_law import fit_power_law
from benchmarks.harness.svg import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Entry = Mapping[str, Any]


def draw_adaptation_scale(results: Mapping[str, Any], path: Path) -> None:
    """Seconds over workloads, seconds over samples, memory over workloads; all axes logarithmic."""
    from models.reporting.figures import BASELINE, UNVERIFIED, VERIFIED

    entries = sorted(results["entries"], key=lambda entry: (entry["workloads"], entry["configurations"]))
    by_workloads = [entry for entry in entries if entry["configurations"] == FIXED_CONFIGURATIONS]
    by_configurations = [entry for entry in entries if entry["workloads"] == FIXED_WORKLOADS]
    with svg(path, 7.6, 3.1) as figure:
        seconds, samples, memory = figure.subplots(1, 3)
        _line(seconds, by_workloads, "workloads", "fit_cpu_s", VERIFIED, "o", "fit")
        _line(seconds, by_workloads, "workloads", "pretrain_cpu_s", UNVERIFIED, "s", "with calibration")
        _line(samples, by_workloads, "samples", "fit_cpu_s", VERIFIED, "o", "more workloads")
        _line(samples, by_configurations, "samples", "fit_cpu_s", BASELINE, "^", "more configurations")
        _line(memory, by_workloads, "workloads", "memory_mib", VERIFIED, "o", "peak of the fit")
        _finish(seconds, "workloads", "seconds of CPU time")
        _finish(samples, "samples", "seconds of CPU time, fit")
        _finish(memory, "workloads", "MiB")


def _line(axes: "Axes", entries: Sequence[Entry], size: str, cost: str, color: str, marker: str, label: str) -> None:
    """Points, and the fitted power law dashed, its exponent in the label."""
    measured = [entry for entry in entries if entry[cost] is not None]
    sizes, costs = [entry[size] for entry in measured], [entry[cost] for entry in measured]
    axes.plot(sizes, costs, marker, color=color, ms=4)
    if len(set(sizes)) > 1:
        law = fit_power_law(sizes, costs)
        label = f"{label} ({law.exponent:.2f})"
        axes.plot(sizes, [law.cost(one) for one in sizes], color=color, lw=1.1, ls=(0, (4, 1.5)))
    axes.plot([], [], color=color, marker=marker, ms=4, lw=1.1, ls=(0, (4, 1.5)), label=label)


def _finish(axes: "Axes", x: str, y: str) -> None:
    """Scales, and room above the points for the legend."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=8))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.35)
    axes.legend(fontsize=7.5, loc="upper left", handlelength=2.2, borderaxespad=0.1)
