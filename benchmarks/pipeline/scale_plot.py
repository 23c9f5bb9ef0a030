"""The plot of cost against the number of workloads, from the result file to docs/images/pipeline_scale.svg."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.power_law import PowerLaw
from benchmarks.harness.svg import svg


def draw_scale(details: Mapping[str, Any], path: Path) -> None:
    """Whole runs with the fitted line, and the stages that cost most, both axes logarithmic."""
    from matplotlib.ticker import NullFormatter

    from models.reporting.figures import BASELINE, VERIFIED, logarithmic

    numbers, law = details["workloads"], PowerLaw(**details["fit"])
    costly = sorted(details["stages"], key=lambda one: one["seconds"][-1], reverse=True)[:4]
    with svg(path, 7.2, 3.8) as figure:
        axes = figure.add_subplot()
        axes.plot(numbers, [law.cost(n) for n in numbers], color=VERIFIED, ls=(0, (4, 1.5)),
                  label=f"fit: workloads to the {law.exponent:.2f}")
        axes.plot(numbers, details["seconds"], "o", color=VERIFIED, label="whole run")
        for one, marker in zip(costly, "s^Dv", strict=False):
            axes.plot(numbers, one["seconds"], marker=marker, ms=4, lw=0.8, color=BASELINE,
                      label=f"{one['stage']}, own work ({one['exponent']:.2f})")
        axes.set(xscale="log", xlabel="workloads", ylabel="seconds")
        axes.set_xticks(numbers, [str(n) for n in numbers])
        axes.xaxis.set_minor_formatter(NullFormatter())
        shown = [*details["seconds"], *(seconds for one in costly for seconds in one["seconds"])]
        logarithmic(axes, "y", min(shown), max(shown))
        figure.legend(fontsize=8, loc="outside right upper")
