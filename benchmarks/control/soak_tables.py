"""Table and plot of a controller's soak, to docs/images/control_soak.svg.

What grows shows between the first and the last fifth of the rows, and as the slope of the line of least squares through
all but the first fifth, in which a process comes to its size.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.markdown import number, paragraph, table
from benchmarks.harness.svg import svg

_SHOWN = {"rss_mib": "resident memory (RSS), MiB", "pss_mib": "of it its own share (PSS), MiB",
          "handles": "open file handles", "threads": "threads", "step_ms": "time of a step, median, ms",
          "slowest_step_ms": "slowest step, ms"}
_PART = 5


def soak_table(results: Mapping[str, Any]) -> str:
    """A row a quantity: at the beginning, at the end, largest, slope."""
    rows = []
    for name, label in _SHOWN.items():
        times, values = _column(results, name)
        part = max(1, len(values) // _PART)
        rows.append([label, number(statistics.median(values[:part])), number(statistics.median(values[-part:])),
                     number(max(values)), f"{_slope_an_hour(times[part:], values[part:]):.3g}"])
    return table(["every 10 s", "first fifth", "last fifth", "largest", "slope an hour"], rows, (1, 2, 3, 4))


def soak_conditions_line(results: Mapping[str, Any]) -> str:
    """Steps, who decided, what the log holds, processor time, machine; and the plot."""
    samples, hours, machine = results["samples"], results["seconds"] / 3600.0, results["machine"]
    cores = (samples[-1]["cpu_s"] - samples[0]["cpu_s"]) / (samples[-1]["at_s"] - samples[0]["at_s"])
    actors = ", ".join(f"{name} {count:,}" for name, count in sorted(results["actors"].items()))
    before, after = results["load_average"]
    said = paragraph(
        f"{results['steps']:,} steps of {results['every_s']:g} s in {hours:.2g} h ({actors}), {results['failures']} of",
        f"them with a failure; {results['logged']:,} of them in the log ({results['log_mib']:.1f} MiB),",
        f"{results['log_lost']} parts of it unreadable;",
        f"{'the limits that were found were' if results['given_back'] else 'limits were NOT'} given back;",
        f"{100 * cores:.1f} % of a core. {machine['cores']} cores of {machine['cpu_model']}, beside other work (load",
        f"average {before:.1f} before, {after:.1f} after).",
        f"{machine['date'][:10]}.")
    return f"{said}\n\n![memory, counts and time of a step over minutes](../images/control_soak.svg)"


def draw_soak(results: Mapping[str, Any], path: Path) -> None:
    """Memory, counts and the time of a step over minutes."""
    from models.reporting.figures import BASELINE, UNVERIFIED, VERIFIED, logarithmic

    with svg(path, 7.6, 5.4) as figure:
        memory, counts, steps = figure.subplots(3, 1, sharex=True)
        for axes, name, color, dash, label in (
                (memory, "rss_mib", VERIFIED, "-", "RSS"), (memory, "pss_mib", UNVERIFIED, "--", "PSS"),
                (counts, "handles", VERIFIED, "-", "file handles"), (counts, "threads", UNVERIFIED, "--", "threads"),
                (steps, "slowest_step_ms", BASELINE, "-", "slowest"), (steps, "step_ms", VERIFIED, "-", "median")):
            times, values = _column(results, name)
            axes.plot(np.array(times) / 60.0, values, color=color, ls=dash, lw=1.1, label=label)
        for axes, label in ((memory, "MiB"), (counts, "count"), (steps, "ms of a step")):
            axes.set_ylabel(label)
            axes.legend(fontsize=7.5, loc="lower right", ncols=2)
        for axes, name in ((memory, "rss_mib"), (counts, "handles")):
            axes.set_ylim(0, 1.15 * max(_column(results, name)[1]))
        shown = [*_column(results, "step_ms")[1], *_column(results, "slowest_step_ms")[1]]
        logarithmic(steps, "y", min(shown) / 3.0, max(shown))
        steps.set_xlabel("minutes")


def _column(results: Mapping[str, Any], name: str) -> tuple[list[float], list[float]]:
    """Seconds and values, of the rows that have one."""
    rows = [row for row in results["samples"] if row[name] is not None]
    return [row["at_s"] for row in rows], [row[name] for row in rows]


def _slope_an_hour(times_s: Sequence[float], values: Sequence[float]) -> float:
    if len(set(times_s)) < 2:
        return 0.0
    return round(float(np.polyfit(np.asarray(times_s) / 3600.0, values, 1)[0]), 3) + 0.0  # no -0
