"""Tables and plot of `python -m benchmarks larger-than-memory`: seconds and peak memory against the number of rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.markdown import paragraph, table, with_unit
from benchmarks.pipeline.larger_than_memory import APART, LARGEST, ONE_FILE, PER_WORKLOAD, STEPS, WORKLOADS

LIMIT_GB = 4.0  # of the largest step at 100 million rows
TITLES = {WORKLOADS: "folder, a million rows a workload", LARGEST: "folder, one workload",
          ONE_FILE: "one file, a million rows a workload", APART: "of such a folder, a shard of one workload"}


def rows_table(results: Mapping[str, Any]) -> str:
    """A row a point: seconds and peak memory of each step."""
    rows = [[TITLES[entry["curve"]], f"{entry['rows']:,}", with_unit(entry["telemetry_mb"] / 1000, "GB"),
             *(f"{with_unit(entry['steps'][step]['seconds'], 's')}, {with_unit(entry['steps'][step]['peak_gb'], 'GB')}"
               for step in STEPS)] for curve in TITLES for entry in results["entries"] if entry["curve"] == curve]
    return table(["telemetry", "rows", "Parquet", *STEPS], rows, range(1, 3 + len(STEPS)))


def conditions_line(results: Mapping[str, Any]) -> str:
    """What the rows are, and the machine."""
    machine, entries = results["machine"], results["entries"]
    return paragraph(
        f"Rows of the recorded campaign, drawn with replacement, {results['rows_a_file']:,} a file. Each step in a",
        "process of its own, one run each; seconds from its call on, in `validate` with the 5 s that Great",
        "Expectations takes to be imported, and peak memory of the process. Beside other work:",
        f"load of the machine after each point {min(entry['load'] for entry in entries):g} to",
        f"{max(entry['load'] for entry in entries):g}. {machine['cpu_model']}, {machine['cores']} cores,",
        f"{machine['memory_gib']:g} GiB, Python {machine['python']}, {entries[-1]['at'][:10]}.")


def draw_rows(results: Mapping[str, Any], path: Path) -> None:
    """Largest peak memory of the three steps against the number of rows."""
    from benchmarks.harness.svg import svg
    from models.reporting.figures import BASELINE, UNVERIFIED, VERIFIED, logarithmic

    with svg(path, 7.2, 3.4) as figure:
        axes = figure.add_subplot()
        peaks = []
        for curve, color, marker in ((ONE_FILE, UNVERIFIED, "^"), (LARGEST, BASELINE, "s"),
                                     (WORKLOADS, VERIFIED, "o")):
            mine = [entry for entry in results["entries"] if entry["curve"] == curve or entry["rows"] == PER_WORKLOAD]
            points = sorted((entry["rows"], max(step["peak_gb"] for step in entry["steps"].values())) for entry in mine)
            peaks += [peak for _, peak in points]
            axes.plot(*zip(*points, strict=True), marker=marker, color=color, label=TITLES[curve])
        axes.axhline(LIMIT_GB, color=BASELINE, ls=(0, (4, 1.5)), lw=0.8, label=f"goal: {LIMIT_GB:g} GB")
        axes.set(xscale="log", xlabel="rows", ylabel="largest peak memory, GB")
        logarithmic(axes, "y", min(peaks), max(*peaks, LIMIT_GB))
        figure.legend(fontsize=8, loc="outside lower center", ncols=2)
