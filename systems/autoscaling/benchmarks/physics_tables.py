"""Tables and plot of `python -m benchmarks autoscaling-physics`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.svg import svg
from systems.autoscaling.benchmarks.discrete_event import Array
from systems.autoscaling.benchmarks.physics import BANDS, REPLICATIONS, STEADY_REQUESTS

Rows = Sequence[Mapping[str, Any]]
_STEADY = [name for name, band in BANDS.items() if band.steady]


def p99_ratios(rows: Rows, simulated: str = "simulated") -> Array:
    """99th percentile by the law over that of the simulation, a configuration."""
    return np.array([row["law"]["p99_s"] / row[simulated]["p99_s"] for row in rows])


def mean_ratios(rows: Rows) -> Array:
    """Mean of wait and service by the law over that of the simulation, a configuration."""
    law, simulated = (np.array([row[key]["mean_wait_s"] + row["service_s"] for row in rows])
                      for key in ("law", "simulated"))
    return law / simulated


def off_by(ratios: Array) -> Array:
    """How many times too large or too small."""
    return np.exp(np.abs(np.log(ratios)))


def bands_table(results: Mapping[str, Any]) -> str:
    """Each band: where the law is off and by how much."""
    lines = []
    for entry in results["entries"]:
        ratios = p99_ratios(entry["rows"])
        lost = [100 * abs(row["law"]["lost"] - row["simulated"]["lost"]) for row in entry["rows"]]
        mean = _spread(mean_ratios(entry["rows"])) if entry["band"] in _STEADY else ""
        factors = [f"{np.quantile(off_by(ratios), share):.2f}" for share in (0.5, 0.9)]
        lines.append([entry["band"], _spread(ratios), *factors, mean, f"{np.quantile(lost, 0.9):.1f}"])
    header = ["utilisation", "p99, law over simulation: median (10 % to 90 %)", "off by a factor of: median", "90 %",
              "mean latency, law over simulation", "requests lost, points off: 90 %"]
    return table(header, lines, range(1, 6))


def idle_table(results: Mapping[str, Any]) -> str:
    """The same law against a step that begins with an idle queue."""
    lines = [[entry["band"], *(_spread(p99_ratios(entry["rows"], key)) for key in ("simulated", "simulated_from_idle"))]
             for entry in results["entries"] if entry["band"] in _STEADY]
    return table(["utilisation", "law over requests after a long constant load: median (10 % to 90 %)",
                  "law over requests of the first 15 s of an idle queue"], lines, (1, 2))


def kinds_table(results: Mapping[str, Any]) -> str:
    """The steady bands by what arrives, what is served, and by how many servers."""
    rows = [row for entry in results["entries"] if entry["band"] in _STEADY for row in entry["rows"]]
    groups: list[tuple[str, Callable[[Mapping[str, Any]], bool]]] = [
        *((f"arrivals: {name}", lambda row, name=name: row["arrival"] == name)
          for name in ("gamma", "lognormal", "hyperexponential", "batches")),
        *((f"service: {name}", lambda row, name=name: row["service"] == name)
          for name in ("lognormal", "gamma", "hyperexponential")),
        ("1 server", lambda row: row["servers"] == 1), ("2 to 8 servers", lambda row: 1 < row["servers"] <= 8),
        ("12 to 64 servers", lambda row: row["servers"] > 8)]
    lines = []
    for label, belongs in groups:
        ratios = p99_ratios([row for row in rows if belongs(row)])
        lines.append([label, str(len(ratios)), _spread(ratios), f"{np.quantile(off_by(ratios), 0.9):.2f}"])
    return table(["utilisation up to 0.95", "configurations", "p99, law over simulation: median (10 % to 90 %)",
                  "off by a factor of: 90 %"], lines, (1, 2, 3))


def conditions_line(results: Mapping[str, Any]) -> str:
    """Configurations, replications, date."""
    entries = results["entries"]
    return paragraph(
        f"{entries[0]['configurations']} random configurations a band,",
        f"{sum(len(entry['rows']) for entry in entries)} in all, each simulated {REPLICATIONS} times:",
        f"{STEADY_REQUESTS:,} requests after a warm-up, or all that arrive in a step of 15 s.",
        f"{results['machine']['date'][:10]}.")


def _spread(ratios: Array) -> str:
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def draw_physics(results: Mapping[str, Any], path: Path) -> None:
    """Ratio of the law's 99th percentile to the simulation's over utilisation."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    from models.reporting.figures import UNVERIFIED, VERIFIED

    rows = [row for entry in results["entries"] for row in entry["rows"]]
    with svg(path, 7.6, 3.2) as figure:
        axes = figure.subplots()
        for label, backlog, color, marker in (("no backlog at first", False, VERIFIED, "o"),
                                              ("backlog of up to 9 s", True, UNVERIFIED, "^")):
            chosen = [row for row in rows if (row["backlog"] > 0) == backlog]
            axes.plot([row["utilisation"] for row in chosen], p99_ratios(chosen), marker, color=color, ms=3.2, mew=0,
                      alpha=0.7, label=label)
        axes.axhline(1.0, color="#556070", lw=0.9)
        axes.set(yscale="log", ylim=(0.4, 2.5), xlim=(0, 2.02), xlabel="utilisation (load over capacity)",
                 ylabel="99th percentile,\nlaw over simulation")
        axes.set_yticks([0.5, 0.7, 1.0, 1.4, 2.0])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.legend(loc="upper right", ncols=2)
