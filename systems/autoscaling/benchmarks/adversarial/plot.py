"""docs/images/autoscaling_adversarial_states.svg: the worst states, one signal swept, what each policy sets.

A panel a demand: of its targets and seeds the one in which the unproved policy goes furthest, as a share of what is
there. Shaded: what the demand forbids; where it compares two states, worse to the right, what is less than this policy
sets at a better reading.
"""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from benchmarks.harness.svg import svg
from models.reporting.figures import BASELINE, INK, SOFT, UNVERIFIED, VERIFIED
from systems.autoscaling.benchmarks.adversarial.demands import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("missed", "hold", "idle", "latency", "served", "load")
_TITLES = {"latency": "p99 gets worse: {less}", "served": "Fewer are answered: {less}", "load": "Load rises: {less}",
           "missed": "Objective missed: {what} taken away", "hold": "Just raised: {what} taken away again",
           "idle": "Idle: {what} added"}
_WORDS = {"target_replicas": ("replicas", "fewer replicas"), "target_cpu_limit_cores": ("CPU", "less CPU"),
          "target_memory_limit_mib": ("memory", "less memory")}
_SIGNALS = {"p99_ms": "p99, ms", "raised_s_ago": "seconds since replicas were raised", "rate_rps": "requests a second",
            "served_share": "requests answered in time, %", "cpu_utilization": "CPU utilisation, %",
            "memory_utilization": "memory utilisation, %"}
_PERCENT = ("served_share", "cpu_utilization", "memory_utilization")
_UNTIL = {"cpu_utilization": 0.2, "memory_utilization": 0.3}  # idle, as in the task file
_HOLD_S = 60.0
_CAPTION_WIDTH = 56  # characters
_SHADE = 0.16  # opacity
Row = Mapping[str, Any]


def worst_row(results: Mapping[str, Any], demand: str, control: str = "", where: str = "near") -> Row | None:
    """Of all seeds, and of all targets or one: the furthest, as a share of what is there; among equals, replicas.

    Args:
        where: near or anywhere, see worst.py.
    """
    rows = [row for entry in results["entries"] for row in entry["rows"]
            if row["demand"] == demand and control in ("", row["control"]) and row[where]]
    return max(rows, key=lambda row: (round(row[where]["amount"] / row[where]["present"], 2), row["whole"]),
               default=None)


def draw_states(results: Mapping[str, Any], path: Path) -> None:
    """Small multiples."""
    rows = [row for demand in PANELS if (row := worst_row(results, demand)) is not None]
    with svg(path, 9.8, 6.6) as figure:
        grid = figure.subplots(2, 3).ravel()
        for axes, row in zip(grid, rows, strict=False):
            _panel(axes, row)
        for axes in grid[len(rows):]:
            axes.set_axis_off()
        found = dict(zip(*reversed(grid[0].get_legend_handles_labels()), strict=True))
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=4)


def _panel(axes: "Axes", row: Row) -> None:
    near = row["near"]
    sweep, state = near["sweep"], near["states"][0]
    name, scale = sweep["signal"], 100.0 if sweep["signal"] in _PERCENT else 1.0
    x = scale * np.array(sweep["values"])
    plain, proved = (np.array(sweep[form]) for form in ("plain", "proved"))
    style = "steps-mid" if row["whole"] else "default"
    axes.plot(x, plain, color=UNVERIFIED, ls="--", lw=1.8, drawstyle=style, label="unproved policy sets")
    axes.plot(x, proved, color=VERIFIED, lw=1.8, drawstyle=style, label="proved policy sets")
    axes.axhline(near["present"], color=BASELINE, lw=1.1, ls=":", label="set at present", zorder=1)
    _limits(axes, np.concatenate([plain, proved, [near["present"]]]))
    if name in ("p99_ms", "rate_rps"):
        axes.set_xscale("log")
        _ticks(axes, x)
    axes.set_xlim(x.min(), x.max())
    if name == "served_share":
        axes.invert_xaxis()
    _forbidden(axes, row, x, plain, scale)
    what, less = _WORDS[row["control"]]
    axes.set_title(_TITLES[row["demand"]].format(what=what, less=less), fontweight="bold")
    axes.set_ylabel("replicas" if row["whole"] else f"{row['unit']} of a replica")
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=row["whole"]))
    axes.set_xlabel(_SIGNALS[name])
    axes.annotate(caption(state, name), (0.0, 0.0), (-24, -33), xycoords="axes fraction", textcoords="offset points",
                  fontsize=7.2, color=SOFT, va="top", annotation_clip=False)


def _limits(axes: "Axes", values: Array) -> None:
    low, high = float(values.min()), float(values.max())
    margin = 0.12 * max(high - low, 0.1 * high)
    axes.set_ylim(max(0.0, low - margin), high + margin)


def _ticks(axes: "Axes", x: Array) -> None:
    """Plain numbers: a few round ones."""
    places = [digit * 10.0**power for power in range(-2, 6) for digit in (1, 2, 5)]
    inside = [place for place in places if x.min() <= place <= x.max()]
    axes.set_xticks(inside, [f"{place:,g}" for place in inside])
    axes.minorticks_off()


def _forbidden(axes: "Axes", row: Row, x: Array, plain: Array, scale: float) -> None:
    """Shades what the demand forbids, with a line where it begins or ends."""
    near, state = row["near"], row["near"]["states"][0]
    bottom, top = axes.get_ylim()
    present, label = near["present"], "forbidden to the unproved policy"
    match row["demand"]:
        case "missed":
            _shade(axes, (state["slo_ms"], x.max()), (bottom, present), label)
            _mark(axes, state["slo_ms"], "objective")
        case "hold":
            _shade(axes, (x.min(), _HOLD_S), (bottom, present), label)
            _mark(axes, _HOLD_S, "one minute")
        case "idle":
            until = scale * _UNTIL[near["sweep"]["signal"]]
            _shade(axes, (x.min(), until), (present, top), label)
            _mark(axes, until, f"{until:g} %")
        case _:
            better = plain[::-1] if near["sweep"]["signal"] == "served_share" else plain
            most = np.maximum.accumulate(better)
            most = most[::-1] if near["sweep"]["signal"] == "served_share" else most
            axes.fill_between(x, plain, most, color=UNVERIFIED, alpha=_SHADE, lw=0, label=label)
            if near["sweep"]["signal"] == "p99_ms":
                _mark(axes, state["slo_ms"], "objective")


def _shade(axes: "Axes", across: tuple[float, float], up: tuple[float, float], label: str) -> None:
    axes.fill_between(across, *up, color=UNVERIFIED, alpha=_SHADE, lw=0, label=label)


def _mark(axes: "Axes", place: float, text: str) -> None:
    axes.axvline(place, color=INK, lw=0.8, alpha=0.6)
    axes.annotate(text, (place, 1.0), (3, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                  fontsize=7.2, color=INK, va="top")


def caption(state: Mapping[str, float], swept: str) -> str:
    """What is held, without the signal that is swept, in lines as wide as a panel."""
    starting = state["replicas"] - state["ready_replicas"]
    serving = f" ({state['ready_replicas']:.0f} serve)" if starting >= 1 else ""
    parts = {
        "p99_ms": f"p99 {_number(state['p99_ms'])} of {_number(state['slo_ms'])} ms",
        "replicas": f"{state['replicas']:.0f} replicas{serving}",
        "raised_s_ago": f"raised {state['raised_s_ago']:.0f} s ago",
        "cpu_utilization": f"CPU {100 * state['cpu_utilization']:.0f} % of {_number(state['cpu_limit_cores'])} cores",
        "memory_utilization": (f"memory {100 * state['memory_utilization']:.0f} % of "
                               f"{_number(state['memory_limit_mib'])} MiB"),
        "rate_rps": f"{_number(state['rate_rps'])} requests/s (1-min mean {_number(state['rate_1min_rps'])})",
        "served_share": f"{100 * state['served_share']:.0f} % answered"}
    swept_instead = {
        "p99_ms": f"objective {_number(state['slo_ms'])} ms",
        "rate_rps": f"1-min mean {_number(state['rate_1min_rps'])} requests/s",
        "cpu_utilization": f"{_number(state['cpu_limit_cores'])} cores each",
        "memory_utilization": f"{_number(state['memory_limit_mib'])} MiB each"}
    parts[swept] = swept_instead.get(swept, "")
    whole = [part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts.values() if part]
    return textwrap.fill(", ".join(whole), _CAPTION_WIDTH)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
