"""Tables of the verification benchmark."""

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.markdown import table

Results = Mapping[str, Any]
NAMES = {"acasxu": "ACAS Xu (6x50 ReLU, 5 inputs)", "lindex": "learned index (3x128, 5x128 ReLU, 1 input)"}
# The issue's own bars: all in seconds of solve time on one core, the slowest of them, and each of lindex.
GOALS = {"acasxu": "all decided, < 60 s in all, slowest < 5 s", "lindex": "all decided, each < 30 s"}


def published_table(results: Results) -> str:
    """Decided, wrong, and seconds of each set of published instances."""
    rows = []
    for name, part in results["parts"].items():
        entries = part["instances"]
        seconds = [entry["seconds"] for entry in entries]
        verdicts = [entry["verdict"] for entry in entries]
        decided = [entry for entry in entries if entry["verdict"] in ("PROVED", "REFUTED")]
        wrong = sum(not entry["agrees"] for entry in decided)
        met = len(decided) == len(entries) and not wrong and (
            sum(seconds) < 60 and max(seconds) < 5 if name == "acasxu" else max(seconds) < 30)
        rows.append([NAMES[name], str(len(entries)), str(verdicts.count("PROVED")), str(verdicts.count("REFUTED")),
                     str(len(entries) - len(decided)), str(wrong), f"{sum(seconds):.1f}",
                     f"{statistics.median(seconds):.3f}", f"{max(seconds):.2f}", str(max(e["boxes"] for e in entries)),
                     f"{part['peak_memory_mb']:.0f}", GOALS[name], "yes" if met else "**no**"])
    return table(["instances", "number", "proved", "refuted", "undecided", "wrong", "all, s", "median, s", "slowest, s",
                  "most boxes", "peak memory, MB", "goal", "met"], rows, range(1, 11)) + _conditions(results)


def _conditions(results: Results) -> str:
    parts = results["parts"].values()
    threads = sorted({part["threads"] for part in parts})
    loads = ", ".join(f"{name} {part['load_average_before']}" for name, part in results["parts"].items())
    return (f"\n\n{results['machine']['cpu_model']}, {' and '.join(map(str, threads))} thread(s), "
            f"{next(iter(parts))['started'][:10]}; load average before: {loads}. Wall seconds of a decision, reading "
            "the files included. Known verdicts: those on which all tools of VNN-COMP 2021 agree.")
