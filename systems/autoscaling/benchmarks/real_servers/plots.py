"""docs/images/closed_loop*.svg: load, latency and quota in the first run of each server, controllers side by side."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.svg import svg
from models.reporting.figures import BASELINE, INK, SOFT, UNVERIFIED, VERIFIED, logarithmic
from systems.autoscaling.benchmarks.real_servers.settings import FIRST, SLO_MS, STEP_S
from systems.autoscaling.benchmarks.real_servers.tables import arms_of, of_kind

_STYLES = {"static": (BASELINE, "--"), "policy": (VERIFIED, "-"), "specification weakened": (UNVERIFIED, "-."),
           "hardly trained": (BASELINE, "--"), "another application's": (SOFT, ":"),
           "another application's, checked": (VERIFIED, "-")}
_RULE = (UNVERIFIED, "-.")


def draw_compared(results: Mapping[str, Any], path: Path) -> None:
    """The policy beside its rivals."""
    _draw(results, "compared", path)


def draw_suspect(results: Mapping[str, Any], path: Path) -> None:
    """Policies that should not act."""
    _draw(results, "suspect", path)


def _draw(results: Mapping[str, Any], kind: str, path: Path) -> None:
    """Rows: load, p99, quota; a column for each server."""
    servers = arms_of(of_kind(results, kind))
    if not servers:
        return
    with svg(path, 9.8, 6.4) as figure:
        grid = figure.subplots(3, len(servers), sharex=True, squeeze=False)
        for column, (server, arms) in enumerate(servers.items()):
            load, latency, quota = grid[:, column]
            first = next(iter(arms.values()))[0]
            minutes = (np.arange(len(first["rate"])) + 0.5) * STEP_S / 60.0
            load.set_title(f"{server}, run 1")
            load.plot(minutes, first["rate"], color=INK, drawstyle="steps-mid")
            for name, runs in arms.items():
                colour, dash = _STYLES.get(name, _RULE)
                latency.plot(minutes, runs[0]["p99_ms"], color=colour, linestyle=dash, label=name)
                quota.plot(minutes, runs[0]["quota"], color=colour, linestyle=dash, label=name)
            quota.plot(minutes, first["used"], color=INK, linewidth=0.8, label=f"used ({first['arm']})")
            latency.axhline(SLO_MS, color=INK, linewidth=0.8)
            latency.annotate("objective", (minutes[-1], SLO_MS), xytext=(0, 3), textcoords="offset points",
                             ha="right", fontsize=8)
            seen = [value for runs in arms.values() for value in runs[0]["p99_ms"]]
            logarithmic(latency, "y", min(seen), max(*seen, 1.2 * SLO_MS))
            for axes, label in ((load, "requests a second"), (latency, "p99, ms"), (quota, "quota, cores")):
                axes.set_ylabel(label if column == 0 else "")
                axes.axvspan(0, FIRST * STEP_S / 60.0, color=BASELINE, alpha=0.12)
            quota.set_xlabel("minutes of load (shaded: not counted)")
            quota.legend(loc="upper right", fontsize=8)
            load.set_ylim(bottom=0)
            quota.set_ylim(bottom=0)
