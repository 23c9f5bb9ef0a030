"""docs/images/closed_loop.svg: load, latency and quota in the first run of each server, controllers side by side."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.closed_loop.settings import FIRST, SLO_MS, STEP_S
from benchmarks.closed_loop.tables import arms_of, of_kind
from benchmarks.harness.svg import svg
from models.reporting.figures import BASELINE, INK, SOFT, UNVERIFIED, VERIFIED

_COLOURS = (BASELINE, UNVERIFIED, VERIFIED)
_DASHES = ("--", "-.", "-")


def draw_compared(results: Mapping[str, Any], path: Path) -> None:
    """Rows: load, p99, quota; a column for each server."""
    entries = of_kind(results, "compared")
    servers = arms_of(entries)
    if not servers:
        return
    with svg(path, 9.8, 6.4) as figure:
        grid = figure.subplots(3, len(servers), sharex=True, squeeze=False)
        for column, (server, arms) in enumerate(servers.items()):
            load, latency, quota = grid[:, column]
            minutes = (np.arange(len(next(iter(arms.values()))[0]["rate"])) + 0.5) * STEP_S / 60.0
            load.set_title(f"{server}, run 1")
            load.plot(minutes, next(iter(arms.values()))[0]["rate"], color=INK, drawstyle="steps-mid")
            load.set_ylabel("requests a second" if column == 0 else "")
            for (name, runs), colour, dash in zip(arms.items(), _COLOURS, _DASHES, strict=False):
                latency.plot(minutes, runs[0]["p99_ms"], color=colour, linestyle=dash, label=name)
                quota.plot(minutes, runs[0]["quota"], color=colour, linestyle=dash, label=name)
            quota.plot(minutes, arms["policy"][0]["used"], color=SOFT, linewidth=0.9, label="used (policy)")
            latency.axhline(SLO_MS, color=INK, linewidth=0.8)
            latency.annotate("objective", (minutes[-1], SLO_MS), xytext=(0, 3), textcoords="offset points",
                             ha="right", fontsize=8)
            latency.set_yscale("log")
            latency.set_ylabel("p99, ms" if column == 0 else "")
            quota.set_ylabel("quota, cores" if column == 0 else "")
            quota.set_ylim(bottom=0)
            quota.set_xlabel("minutes of load (shaded: not counted)")
            for axes in (load, latency, quota):
                axes.axvspan(0, FIRST * STEP_S / 60.0, color=BASELINE, alpha=0.12)
            load.set_ylim(bottom=0)
        grid[2, 0].legend(loc="upper right", fontsize=8)
