"""Tables and plot of `python -m benchmarks autoscaling-twin`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.columns import columns_table, left, right
from benchmarks.harness.markdown import number, paragraph, table
from benchmarks.harness.svg import svg

# Of offered load: name and upper end.
BANDS = (("below 0.5", 0.5), ("0.5 to 0.8", 0.8), ("0.8 to 1", 1.0), ("above 1", np.inf))
WAYS = {
    "half": "half of the points of the server",
    "own CPU": "the same, and told the CPU time a request of each point",
    "demand": "4 points of a new server, CPU time a request alone; the rest from the other servers",
    "few": "4 points of a new server, all parameters",
    "nearest": "no law: the nearest recorded point of the half",
}
_PARAMETERS = {"cpu_ms": "CPU time a request, ms", "cv2": "cv² of service", "fixed_ms": "fixed latency, ms",
               "contention": "contention", "burst_periods": "periods of saved quota"}
Array = NDArray[np.float64]


def bands_table(results: Mapping[str, Any]) -> str:
    """|ln(predicted / measured)| of the 99th percentile by law, by what it was fitted to, and by band."""
    lines = []
    for law in _laws(results):
        for how, text in WAYS.items():
            if how == "nearest" and law != _laws(results)[0]:
                continue
            load, errors = _pooled([entry for entry in results["entries"] if entry["law"] == law], how)
            lines.append(["" if how == "nearest" else law, text, *_by_band(load, errors)])
    header = ["law", "fitted to", *(name for name, _ in BANDS), "all"]
    return table(header, lines, range(2, 3 + len(BANDS)))


def servers_table(results: Mapping[str, Any]) -> str:
    """The same for each server, fitted to half of its points."""
    lines = [[entry["server"], entry["law"], *_by_band(*_pooled([entry], "half"))] for entry in results["entries"]]
    return table(["server", "law", *(name for name, _ in BANDS), "all"], lines, range(2, 3 + len(BANDS)))


def parameters_table(results: Mapping[str, Any]) -> str:
    """What was fitted to all points of each server."""
    return columns_table(results["entries"], left("server", "server"), left("law", "law"), *(
        right(title, f"parameters.{name}", lambda value: number(round(value, 4)))
        for name, title in _PARAMETERS.items()))


def conditions_line(results: Mapping[str, Any]) -> str:
    """Points, splits, date."""
    splits = len({one["seed"] for one in results["entries"][0]["judged"]})
    points = ", ".join(f"{count} of {name}" for name, count in results["points"].items())
    return paragraph(
        f"Points: {points}; recorded on {results['recorded_utc'][0][:10]}. {splits} random halves, and as many draws",
        f"of {results['few']} points. A cell is the median and, in brackets, the 90th percentile of",
        "|ln(predicted / measured)| of the 99th percentile of latency over all points that were not fitted:",
        "0.1 is 10 % off, 0.7 a factor of 2.")


def _laws(results: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(entry["law"] for entry in results["entries"]))


def _pooled(entries: Sequence[Mapping[str, Any]], how: str) -> tuple[Array, Array]:
    judged = [one for entry in entries for one in entry["judged"] if one["how"] == how]
    return (np.concatenate([one["load"] for one in judged]),
            np.abs(np.concatenate([one["log_ratio"] for one in judged])))


def _by_band(load: Array, errors: Array) -> list[str]:
    cells, low = [], 0.0
    for _, high in BANDS:
        cells.append(_cell(errors[(load >= low) & (load < high)]))
        low = high
    return [*cells, _cell(errors)]


def _cell(errors: Array) -> str:
    return f"{np.median(errors):.2f} ({np.quantile(errors, 0.9):.2f})" if len(errors) else "none"


def draw_twin(results: Mapping[str, Any], path: Path) -> None:
    """99th percentile over load: measured points, and both laws fitted to all of them, by server and deployment."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    from models.reporting.figures import BASELINE, UNVERIFIED, VERIFIED

    entries = results["entries"]
    servers = list(dict.fromkeys(entry["server"] for entry in entries))
    # Deployments in the order in which they are recorded: marks by number of instances and quota.
    with svg(path, 7.6, 1.9 * len(servers)) as figure:
        grid = figure.subplots(len(servers), 6, sharex=True, sharey="row", squeeze=False)
        for row, server in zip(grid, servers, strict=True):
            own = {entry["law"]: entry for entry in entries if entry["server"] == server}
            measured = next(iter(own.values()))["measured"]
            shapes = sorted(set(zip(measured["instances"], measured["quota"], measured["workers"], strict=True)))
            for axes, shape in zip(row, shapes, strict=False):
                chosen = _of_shape(measured, shape)
                axes.plot(chosen["load"], chosen["p99_ms"], "o", color=BASELINE, ms=3.6, mew=0, label="measured")
                for law, color, dash in (("without bursts", UNVERIFIED, (0, (4, 1.5))), ("simulator", VERIFIED, "-")):
                    if law in own:
                        line = _of_shape(measured | {"fitted": own[law]["fitted_p99_ms"]}, shape)
                        axes.plot(line["load"], line["fitted"], color=color, ls=dash, lw=1.2, label=f"law, {law}")
                axes.set(yscale="log", xlim=(0, 1.3))
                axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes.yaxis.set_minor_locator(NullLocator())
                instances, quota, workers = shape
                cores_text = f"{quota:g}, {int(workers)} workers" if workers > 1 else f"{quota:g} cores"
                axes.set_title(f"{int(instances)} of {cores_text}", fontsize=7.0)
                axes.tick_params(labelsize=7)
            row[0].set_ylabel(f"{server}\np99, ms")
        for axes in grid[-1]:
            axes.set_xlabel("offered load", fontsize=7.5)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)


def _of_shape(measured: Mapping[str, Any], shape: tuple[float, float, float]) -> dict[str, list[float]]:
    """The points of one deployment in the order of load."""
    same = [at for at, one in enumerate(zip(measured["instances"], measured["quota"], measured["workers"], strict=True))
            if one == shape]
    same.sort(key=lambda at: measured["load"][at])
    return {name: [values[at] for at in same] for name, values in measured.items() if isinstance(values, list)}
