"""Plots of policies that control a system: what they learned, what they cost, what they do.

Flow: a kind's pages clean the evidence into arrays (NaN: missing) and call these; figures.py embeds. The policy is blue
and solid, what it is held against orange and dashed, what is asked for grey.

Symbols: E episodes, T points in time; x (p,), y (q,) of a map.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter
from numpy.typing import NDArray

from models.reporting.figures import BASELINE, INK, SOFT, UNVERIFIED, VERIFIED, embed, logarithmic, plain
from models.reporting.plots import DASHED, FULL_WIDTH

FloatArray = NDArray[np.float64]

DOTTED = (0, (1, 1.6))
LOG_FROM = 8.0  # a series that spans more than this factor is drawn on a logarithmic axis
MAP_WIDTH = 3.4


@dataclass(frozen=True)
class Panel:
    """One axis of several under each other.

    Attributes:
        title: with the unit.
        lines: label -> values; the first is the policy's, the second what it is held against.
        levels: label -> a constant to compare with.
        share: whether the values are shares, shown in percent.
        shade: (T,) where the first line misses what is asked for; None: nowhere.
    """

    title: str
    lines: Mapping[str, FloatArray]
    levels: Mapping[str, float] = field(default_factory=dict)
    share: bool = False
    shade: NDArray[np.bool_] | None = None


def learning_curves(rounds: FloatArray, panels: Sequence[Panel], name: str) -> Markup:
    """What training came to in each round, a panel a quantity, with what rules reach as lines."""
    def draw(figure: Figure) -> None:
        axes = np.atleast_1d(figure.subplots(1, len(panels)))
        for one, panel in zip(axes, panels, strict=True):
            for place, (label, values) in enumerate(panel.lines.items()):
                one.plot(rounds, values, color=(VERIFIED, BASELINE)[place > 0], label=plain(label))
            for place, (label, level) in enumerate(panel.levels.items()):
                one.axhline(level, color=(UNVERIFIED, SOFT)[place > 0], ls=(DASHED, DOTTED)[place > 0], lw=1.2,
                            label=plain(label))
            _finish(one, panel, list(panel.lines.values()))
            one.set_title(plain(panel.title))
            one.set(xlabel="round")
        _legend(figure, list(axes))

    return embed(draw, FULL_WIDTH, 2.7, name,
                 f"{', '.join(panel.title for panel in panels)} over the rounds of training")


@dataclass(frozen=True)
class Point:
    """A controller on the front.

    Attributes:
        label: beside the point; "" for none.
        group: `policy`, `rule` or `rule, tuned to the workload`.
        share: violating steps: mean and both ends of its interval.
        cost: likewise.
    """

    label: str
    group: str
    share: tuple[float, float, float]
    cost: tuple[float, float, float]


# colour, marker, size
GROUPS = {"policy": (VERIFIED, "o", 60), "rule": (UNVERIFIED, "^", 30),
          "rule, tuned to the workload": (BASELINE, "s", 24)}


def front(points: Sequence[Point], allowed: float | None, cost_unit: str, name: str) -> Markup:
    """Cost over violating steps: further left and further down is better. The stair is the front of the rules."""
    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for group, (color, marker, size) in GROUPS.items():
            chosen = [point for point in points if point.group == group]
            if not chosen:
                continue
            share, cost = (np.array([getattr(point, key) for point in chosen]) for key in ("share", "cost"))
            share = np.maximum(share, 0.0)  # an interval of a share may reach below
            named = np.array([bool(point.label) for point in chosen])
            axes.errorbar(share[named, 0], cost[named, 0], xerr=_whiskers(share[named]), yerr=_whiskers(cost[named]),
                          fmt="none", ecolor=color, elinewidth=0.9, alpha=0.6)
            axes.scatter(share[:, 0], cost[:, 0], s=size, marker=marker, color=color, lw=0, label=group, zorder=3)
        stair = _stair([point for point in points if point.group != "policy"])
        if len(stair) > 1:
            axes.step(stair[:, 0], stair[:, 1], where="post", color=SOFT, lw=0.9, ls=DOTTED, label="front of the rules")
        if allowed is not None:
            axes.axvline(allowed, color=SOFT, lw=1.0, ls=DASHED, label=f"allowed, {100 * allowed:g} %")
        known = np.array([point.cost[0] for point in points if np.isfinite(point.cost[0])])
        if len(known) and known.min() > 0 and known.max() > LOG_FROM * known.min():
            logarithmic(axes, "y", float(known.min()), float(known.max()))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_xlim(left=-0.02 * axes.get_xlim()[1])
        for point in points:
            if point.label:
                axes.annotate(plain(point.label), (point.share[0], point.cost[0]), (6, 5), textcoords="offset points",
                              fontsize=8, color=INK)
        axes.set(xlabel="violating steps", ylabel=plain(f"cost ({cost_unit})"))
        figure.legend(loc="outside lower center", ncols=3)

    return embed(draw, FULL_WIDTH, 4.2, name, "Cost over the share of violating steps, the policy among the rules")


def _stair(points: Sequence[Point]) -> FloatArray:
    """(k, 2) violating share and cost of the points that no other beats in both, by share."""
    found: list[tuple[float, float]] = []
    for share, cost in sorted((point.share[0], point.cost[0]) for point in points):
        if not found or cost < found[-1][1]:
            found.append((share, cost))
    return np.array(found).reshape(-1, 2)


def _whiskers(values: FloatArray) -> FloatArray:
    """(2, k) lengths of the whiskers of means with both ends; 0 where an end is missing."""
    lengths = np.stack([values[:, 0] - values[:, 1], values[:, 2] - values[:, 0]])
    return np.clip(np.nan_to_num(lengths), 0.0, None)


def time_series(times: FloatArray, panels: Sequence[Panel], name: str, unit: str = "hours") -> Markup:
    """Panels under each other over the same times, in `unit`."""
    def draw(figure: Figure) -> None:
        axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
        for one, panel in zip(axes, panels, strict=True):
            for place, (label, values) in reversed(list(enumerate(panel.lines.items()))):
                color, dash = ((VERIFIED, "-"), (UNVERIFIED, DASHED), (BASELINE, DOTTED))[min(place, 2)]
                alone = len(panel.lines) == 1  # its title says what it is
                one.plot(times, values, color=INK if alone else color, ls="-" if alone else dash, lw=1.2,
                         label=None if alone else plain(label))
            for label, level in panel.levels.items():
                one.axhline(level, color=SOFT, lw=1.1, ls=DOTTED, label=plain(label))
            if panel.shade is not None and panel.shade.any():
                one.fill_between(times, 0.0, 1.0, where=panel.shade, transform=one.get_xaxis_transform(), lw=0,
                                 color=VERIFIED, alpha=0.14, step="mid", label="the policy violates")
            _finish(one, panel, [*panel.lines.values(), *(np.array([level]) for level in panel.levels.values())])
            one.set_title(plain(panel.title))
        axes[-1].set(xlabel=unit, xlim=(float(times[0]), float(times[-1])))
        _legend(figure, list(axes))

    return embed(draw, FULL_WIDTH, 0.9 + 1.25 * len(panels), name,
                 f"{', '.join(panel.title for panel in panels)} over time, under each controller")


def differences(policy: FloatArray, rule: FloatArray, against: str, name: str) -> Markup:
    """What the policy saves in each episode over the rule's mean cost, sorted; negative where it costs more."""
    saved = np.sort((rule - policy) / rule.mean())

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        place = np.arange(len(saved))
        for chosen, color, label in ((saved < 0, UNVERIFIED, "the policy costs more"),
                                     (saved >= 0, VERIFIED, "it saves")):
            if chosen.any():
                axes.bar(place[chosen], saved[chosen], 0.86, color=color, lw=0,
                         label=f"{label} ({100 * chosen.mean():.0f} % of the episodes)")
        axes.axhline(float(saved.mean()), color=INK, lw=1.0, ls=DASHED, label=f"mean {100 * saved.mean():+.1f} %")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.grid(axis="x", visible=False)
        axes.set(xlabel="episodes, sorted", ylabel=f"cost saved against\n{plain(against)}",
                 xlim=(-0.7, len(saved) - 0.3))
        figure.legend(loc="outside lower center", ncols=3)

    return embed(draw, FULL_WIDTH, 2.8, name, f"Cost saved against {against} in each episode")


def action_map(x: FloatArray, y: FloatArray, ratio: FloatArray, labels: tuple[str, str],
               limit: tuple[str, float] | None, title: str, name: str) -> Markup:
    """Target over present value where two signals vary: purple is more, orange less, white no change.

    Args:
        ratio: (p, q) > 0.
        labels: of x and y, with units.
        limit: label and value of x at which a line stands.
    """
    percent = 100.0 * (ratio - 1.0)
    most = max(float(np.nanmax(np.abs(percent))), 1.0)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.grid(visible=False)
        image = axes.pcolormesh(x, y, percent.T, cmap="PuOr", norm=TwoSlopeNorm(0.0, -most, most), shading="nearest",
                                rasterized=True)
        for side, values in (("x", x), ("y", y)):
            if values.min() > 0 and values.max() > LOG_FROM * values.min():
                logarithmic(axes, side, float(values.min()), float(values.max()))  # type: ignore[arg-type]
        axes.tick_params(labelsize=7.5)
        axes.xaxis.set_tick_params(rotation=30)
        if limit is not None and x.min() <= limit[1] <= x.max():
            axes.axvline(limit[1], color=INK, lw=1.0, ls=DASHED)
            axes.annotate(plain(limit[0]), (limit[1], 1.0), (2, 2), xycoords=("data", "axes fraction"),
                          textcoords="offset points", fontsize=7.5, color=INK)
        axes.set_xlabel(plain(labels[0]))
        axes.set_ylabel(plain(labels[1]))
        figure.suptitle(plain(title), x=0.02, ha="left", fontsize=9.5)
        bar = figure.colorbar(image, ax=axes, format=FuncFormatter(lambda value, _: f"{value:+.0f} %"), shrink=0.9)
        bar.ax.tick_params(labelsize=7.5)
        bar.outline.set_visible(False)

    return embed(draw, MAP_WIDTH, 3.0, name, f"{title}: change of the target over {labels[0]} and {labels[1]}")


STAGE_COLORS = {"initialized": "#eceff3", "offline": "#f0d264", "online": "#bcd9ec", "serving": "#bfe3d0"}


def lifecycle(stages: Sequence[str], rewards: FloatArray, levels: Mapping[str, float], name: str) -> Markup:
    """Reward of each episode over the stage in which it was (thesis, Algorithm 5.1)."""
    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        drawn: set[str] = set()
        for begin, end, stage in _runs(stages):
            axes.axvspan(begin - 0.5, end - 0.5, color=STAGE_COLORS.get(stage, "#eceff3"), lw=0, zorder=0.5,
                         label=None if stage in drawn else stage.upper())
            drawn.add(stage)
        axes.plot(rewards, color=INK, lw=1.0, marker="o", ms=2.6, label="reward of the episode")
        for place, (label, level) in enumerate(levels.items()):
            axes.axhline(level, color=(UNVERIFIED, SOFT)[place > 0], lw=1.1, ls=(DASHED, DOTTED)[place > 0],
                         label=plain(label))
        axes.grid(axis="x", visible=False)
        axes.set(xlabel="episode", ylabel="mean reward a step", xlim=(-0.5, len(stages) - 0.5))
        figure.legend(loc="outside lower center", ncols=3)

    return embed(draw, FULL_WIDTH, 3.2, name, "Reward of each episode, and the stage of the lifecycle it was in")


def _runs(stages: Sequence[str]) -> list[tuple[int, int, str]]:
    """Begin, end and name of each stretch of equal stages."""
    cuts = [0, *(k for k in range(1, len(stages)) if stages[k] != stages[k - 1]), len(stages)]
    return [(begin, end, stages[begin]) for begin, end in pairwise(cuts) if end > begin]


def savings(rows: Sequence[tuple[str, tuple[float, float, float]]], label: str, name: str) -> Markup:
    """Cost saved by each workload's policy with its interval; the line is no saving."""
    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        values = np.array([interval for _, interval in rows])
        place = np.arange(len(rows))
        axes.errorbar(values[:, 0], place, xerr=_whiskers(values), fmt="o", ms=5, color=VERIFIED, elinewidth=1.4)
        axes.axvline(0.0, color=SOFT, lw=1.0)
        axes.set_yticks(place, [plain(workload) for workload, _ in rows], color=INK)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.grid(axis="y", visible=False)
        axes.set(xlabel=plain(label), ylim=(len(rows) - 0.5, -0.5))

    return embed(draw, FULL_WIDTH, 0.9 + 0.32 * len(rows), name, label)


def _finish(axes: Axes, panel: Panel, shown: Sequence[FloatArray]) -> None:
    """Scale, and percent where values are shares."""
    known = np.concatenate([values[np.isfinite(values)] for values in shown]) if shown else np.empty(0)
    if panel.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axes.set_ylim(bottom=0.0)
    elif len(known) and known.min() > 0 and known.max() > LOG_FROM * known.min():
        logarithmic(axes, "y", float(known.min()), float(known.max()))
    elif len(known) and np.abs(known).max() >= 1000:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.locator_params(axis="x", nbins=8)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One for all panels, each label once."""
    found = {label: handle for one in axes for handle, label in zip(*one.get_legend_handles_labels(), strict=True)}
    if found:
        figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=min(len(found), 4))
