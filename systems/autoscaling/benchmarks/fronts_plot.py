"""Plot of policies against rules: docs/images/autoscaling_rules.svg; the axis of violating steps of all such plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.svg import svg
from models.reporting.figures import UNVERIFIED, VERIFIED

_SHARES = (0.25, 0.5, 1, 2, 4, 8)  # of violating steps, %
_LOADS = {"azure": "real loads (Azure Functions)", "made": "made loads"}
_POLICIES = {"proved": (VERIFIED, "-"), "network": ("0.25", "--"), "linear": ("0.55", ":")}
_NAMED = 3  # rules, those of least cost
Rows = Sequence[Mapping[str, float]]


def draw_rules(results: Mapping[str, Any], path: Path) -> None:
    """Cost, and below it the paper's reward, over violating steps: every rule's front, and policies, means of seeds."""
    entries = results["entries"]
    with svg(path, 4.4 * len(entries), 5.6) as figure:
        grid = figure.subplots(2, len(entries), sharex=True, squeeze=False)
        for column, entry in enumerate(entries):
            for axes, key, label in zip(grid[:, column], ("cost", "reward"), ("cost, cores a core of mean load",
                                                                              "reward a step"), strict=True):
                _draw(axes, entry, key)
                axes.set_ylabel(label if column == 0 else "")
            grid[0, column].set_title(_LOADS.get(entry["load"], entry["load"]), fontsize=9)
            grid[1, column].set_xlabel("violating steps, %")
        grid[0, 0].legend(fontsize=7)


def _draw(axes: Any, entry: Mapping[str, Any], key: str) -> None:
    cheapest = sorted(entry["rules"], key=lambda name: entry["rules"][name]["at_share"]["cost"] or np.inf)
    for name in reversed(cheapest):
        violated, values = _line(entry["rules"][name]["front"], key)
        known = cheapest.index(name) < _NAMED
        axes.plot(violated, values, color=UNVERIFIED, lw=1.2 if known else 0.6, alpha=1.0 if known else 0.4,
                  label="rules" if name == cheapest[0] else None)
    for name in entry["policies"]:
        color, dash = _POLICIES[name]
        fronts = [_line(front, key) for front in entry["policies"][name]["fronts"]]
        violated, values = (np.mean([front[side] for front in fronts], axis=0) for side in (0, 1))
        axes.plot(violated, values, color=color, ls=dash, marker="o", ms=3, lw=1.4, label=f"policy: {name}")
    axes.axvline(100 * entry["share"], color="0.6", lw=0.8, ls=":")
    axes.set(xscale="log", xlim=(_SHARES[0], _SHARES[-1]))
    share_ticks(axes)
    if key == "cost":
        axes.set_ylim(1.5, 8.0)


def share_ticks(axes: Any) -> None:
    """Plain numbers on a logarithmic axis of violating steps, %, within the limits that it has."""
    axes.set_xlim(*axes.get_xlim())  # ticks do not widen it
    axes.set_xticks(_SHARES, [f"{share:g}" for share in _SHARES])
    axes.minorticks_off()


def _line(rows: Rows, key: str) -> tuple[Any, Any]:
    ordered = sorted(rows, key=lambda row: row["violated"])
    return (np.array([100 * max(row["violated"], 1e-5) for row in ordered]), np.array([row[key] for row in ordered]))
