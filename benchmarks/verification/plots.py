"""Plots of the campaign, from the result file to docs/images: instances solved over time, our cost over size."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.svg import svg
from benchmarks.verification.campaign_tables import DECIDED, OURS, SEARCH, TOOL_NAMES, Instance, instances

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito as in models/reporting/figures.py, whose two are ours; dashes and markers differ, too.
LOOKS: dict[str, dict[str, Any]] = {
    "assay": {"color": "#0072b2", "lw": 2.2},
    "assay_search": {"color": "#0072b2", "ls": (0, (1, 1.2)), "lw": 1.4},
    "auto_lirpa": {"color": "#d55e00", "marker": "o"},
    "alpha_beta_crown": {"color": "#009e73", "marker": "s"},
    "marabou": {"color": "#cc79a7", "marker": "^"},
    "highs": {"color": "#7f8794", "marker": "D"},
    "scip": {"color": "#b8860b", "marker": "v"},
}
SERIES_LOOKS = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"))
AXES = {"width": "neurons a layer", "depth": "layers", "inputs": "inputs"}
COSTS = {"proof": ("a whole proof", "-"), "box": ("a box of a long search", (0, (4, 1.5)))}


def draw_cactus(results: Mapping[str, Any], path: Path) -> None:
    """How many instances each tool has solved, were each given the same seconds."""
    with svg(path, 7.2, 3.8) as figure:
        _cactus(figure, results)


def draw_growth(growth: Mapping[str, Any], path: Path) -> None:
    """Seconds over width, depth and inputs with their exponents, all axes logarithmic."""
    with svg(path, 7.2, 3.4) as figure:
        _growth(figure, [one for one in growth["series"] if one["sizes"]])


def _cactus(figure: "Figure", results: Mapping[str, Any]) -> None:
    from matplotlib.ticker import MaxNLocator

    from models.reporting.figures import logarithmic

    measured, limit = instances(results), float(results["settings"]["limit_s"])
    solved = {tool: sorted(_solved(measured, tool)) for tool in TOOL_NAMES
              if any(tool in instance.entries for instance in measured)}
    shortest = min((seconds[0] for seconds in solved.values() if seconds), default=limit / 10)
    axes = figure.add_subplot()
    for tool, seconds in sorted(solved.items(), key=lambda item: -len(item[1])):
        count = len(seconds)
        axes.step([*seconds, limit], [*range(1, count + 1), count], where="post", ms=3.2,
                  markevery=list(range(0, count, max(count // 8, 1))), label=f"{TOOL_NAMES[tool]} ({count})",
                  zorder=3 if tool in (OURS, SEARCH) else 2, **{"lw": 1.2, **LOOKS[tool]})
    axes.set(xlabel="seconds of solve time for an instance", ylabel="instances solved", ylim=(0, len(measured) * 1.06))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    logarithmic(axes, "x", shortest, limit)
    axes.set_xlim(shortest / 1.3, limit)
    axes.axhline(len(measured), color="#9aa3af", lw=0.8, ls=(0, (2, 2)), zorder=1)
    axes.annotate(f"all {len(measured)}", (shortest, len(measured)), xytext=(0, -3), textcoords="offset points",
                  va="top", fontsize=8, color="#556070")
    figure.legend(fontsize=8, loc="outside right upper")


def _growth(figure: "Figure", series: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.lines import Line2D

    from models.reporting.figures import logarithmic

    panels = figure.subplots(1, len(AXES), sharey=True)
    for axes, (axis, label) in zip(panels, AXES.items(), strict=True):
        _panel(axes, [one for one in series if one["axis"] == axis], label)
    values = [value for one in series for value in one["seconds"]]
    if values:
        logarithmic(panels[0], "y", min(values), max(values))
        panels[0].set_ylim(min(values) / 2, max(values) * 12)  # room for the legends
    panels[0].set_ylabel("seconds")
    handles = [Line2D([], [], color="#556070", lw=1.3, ls=dash, label=name) for name, dash in COSTS.values()]
    figure.legend(handles=handles, fontsize=8, loc="outside lower center", ncols=2)


def _panel(axes: "Axes", series: Sequence[Mapping[str, Any]], label: str) -> None:
    """One axis' series: colour by networks, dash by cost, the exponent at the end of each line."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullFormatter, NullLocator

    names = list(dict.fromkeys(one["label"] for one in series))
    for one in series:
        color, marker = SERIES_LOOKS[names.index(one["label"])]
        axes.plot(one["sizes"], one["seconds"], color=color, marker=marker, ms=3.6, lw=1.3, ls=COSTS[one["cost"]][1])
        if one["exponent"] is not None:
            axes.annotate(f"{one['exponent']:.2f}", (one["sizes"][-1], one["seconds"][-1]), xytext=(4, 0), va="center",
                          textcoords="offset points", fontsize=8, color=color, annotation_clip=False)
    sizes = sorted({size for one in series for size in one["sizes"]})
    axes.set(xscale="log", xlabel=label)
    step = 1 + len(sizes) // 6  # no room for more numbers
    axes.set_xticks(sizes, [str(size) if k % step == 0 else "" for k, size in enumerate(sizes)])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.14)
    handles = [Line2D([], [], color=color, marker=marker, ms=3.6, lw=1.3, label=name)
               for name, (color, marker) in zip(names, SERIES_LOOKS, strict=False)]
    axes.legend(handles=handles, fontsize=7.5, loc="upper left", handlelength=1.6, borderaxespad=0.1)


def _solved(measured: Sequence[Instance], tool: str) -> list[float]:
    entries = [instance.entries[tool] for instance in measured if tool in instance.entries]
    return [float(entry["seconds"]) for entry in entries if entry["verdict"] in DECIDED]
