"""The seven instability scenarios of the thesis (section 5.2.3) and the patterns of load, as the environment has them.

    python -m benchmarks autoscaling-scenarios [--applications 200]

A payload or the load changes in the middle of an episode. For each scenario: load and CPU time a request of one
held-out application whose payload it is, and what it does to all of them under a rule that stays as it is (HPA on CPU
and latency, VPA on memory, default settings): share of violating steps, reward, cores, before and after the change.
The seventh scenario changes the load, in either direction.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.columns import columns_table, left, percent, right
from benchmarks.harness.machine import now_utc
from benchmarks.harness.markdown import number, paragraph
from benchmarks.harness.result_file import RESULTS, write_results
from benchmarks.harness.svg import svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTPUT = RESULTS / "autoscaling_scenarios.json"
FORMAT = "assay-autoscaling-scenarios/1"
RULE = "hpa-cpu-p99-vpa-memory"
APPLICATIONS, STEPS, SEED = 200, 160, 3
WARM_UP = 20  # steps, which do not count
LABELS = {
    "": "none", "payload_file": "files 128-384 KB to 512-1,024 KB", "payload_table": "tables 1,024 to 10,240 items",
    "payload_operations": "operations 1 to 20 times 10^8", "payload_image": "images 40x40 to 160x160",
    "payload_text": "texts 250 B-1 KB to 2-5 KB", "payload_model": "matrices 50 to 150",
    "load_high_to_low": "load high to low", "load_low_to_high": "load low to high"}
PATTERN_LABELS = {"diurnal": "diurnal", "bursts": "bursts", "steps": "steps", "flash_crowd": "flash crowd",
                  "drift": "drift"}


def measure_scenario(environment: Any, name: str, count: int) -> dict[str, Any]:
    """Series of the application that the scenario changes most; figures before and after."""
    from models.control.simulation.rollout import acting_of
    from models.tasks.control.judging import play
    from systems.autoscaling.rules.rules import make

    episodes = environment.draw("held_out", count, STEPS, SEED, scenario=name)
    controller = make(RULE, {})
    played = play(environment, episodes, STEPS - 1, acting_of(environment, controller))
    half = STEPS // 2
    ordinary = environment.draw("held_out", count, STEPS, SEED)
    growth = episodes.cpu_s[-1] / ordinary.cpu_s[-1]
    affected = growth > 1.01 if name.startswith("payload") else growth > 0
    shown = int(growth.argmax())
    halves = {"before": slice(WARM_UP, half - 1), "after": slice(half, None)}
    return {"scenario": name, "affected": float(affected.float().mean()),
            "rate_rps": episodes.rate[:, shown].tolist(), "cpu_ms": (episodes.cpu_s[:, shown] * 1e3).tolist(),
            "halves": {key: {what: float(played.series[what][rows][:, affected.numpy()].mean())
                             for what in ("violated", "reward", "cores")} for key, rows in halves.items()}}


def scenarios_table(results: Mapping[str, Any]) -> str:
    """What each does to the applications that it concerns."""
    return columns_table(
        results["scenarios"], left("change in the middle of an episode", lambda entry: LABELS[entry["scenario"]]),
        right("applications that it concerns", "affected", percent()),
        right("violating steps, before", "halves.before.violated", percent(1)),
        right("after", "halves.after.violated", percent(1)),
        right("reward a step, before", "halves.before.reward", ".2f"), right("after", "halves.after.reward", ".2f"),
        right("cores, before", "halves.before.cores", number), right("after", "halves.after.cores", number))


def conditions_line(results: Mapping[str, Any]) -> str:
    """Episodes, rule, date."""
    return paragraph(f"{results['applications']} held-out applications, {STEPS} steps of 15 s, the first {WARM_UP} not",
                     f"counted; rule: {RULE} with default settings. {results['date'][:10]}.")


def draw_scenarios(results: Mapping[str, Any], path: Path) -> None:
    """A column of load and payload for each scenario."""
    from models.reporting.figures import UNVERIFIED, VERIFIED

    entries = [entry for entry in results["scenarios"] if entry["scenario"]]
    minutes = np.arange(STEPS) * 0.25
    with svg(path, 9.6, 6.4) as figure:
        axes = figure.subplots(4, len(entries) // 2, sharex=True)
        for place, entry in enumerate(entries):
            row, column = divmod(place, len(entries) // 2)
            load, payload = axes[2 * row, column], axes[2 * row + 1, column]
            load.set_title(LABELS[entry["scenario"]], fontsize=8.5)
            _panel(load, minutes, entry["rate_rps"], VERIFIED)
            _panel(payload, minutes, entry["cpu_ms"], UNVERIFIED)
            if column == 0:
                load.set_ylabel("requests a second")
                payload.set_ylabel("CPU ms a request")
            if row == 1:
                payload.set_xlabel("minutes")


def draw_patterns(results: Mapping[str, Any], path: Path) -> None:
    """Clean patterns for tests, above two series of the mixture that training draws."""
    from models.reporting.figures import UNVERIFIED, VERIFIED

    shapes = {**{PATTERN_LABELS[name]: values for name, values in results["patterns"].items()},
              **{f"{results['traces']}, series {place + 1}": values for place, values in enumerate(results["series"])}}
    with svg(path, 9.6, 3.8) as figure:
        for axes, (label, values) in zip(figure.subplots(2, 4).ravel(), shapes.items(), strict=False):
            _panel(axes, np.arange(len(values)) / 60, values,
                   VERIFIED if label in PATTERN_LABELS.values() else UNVERIFIED)
            axes.set_title(label, fontsize=8.5)
            axes.set_xlabel("hours")
        for axes in figure.axes[::4]:
            axes.set_ylabel("load over its mean")


def _panel(axes: "Axes", x: Any, values: Sequence[float], color: str) -> None:
    axes.plot(x, values, color=color, lw=1.1)
    axes.set_ylim(0, 1.08 * max(values))
    axes.set_xlim(0, float(x[-1]))
    axes.locator_params(nbins=4)


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--applications", type=int, default=APPLICATIONS, help="held-out ones")


def run(options: argparse.Namespace) -> None:
    """Measures all scenarios, in seconds."""
    from systems.autoscaling.simulator.arrivals import PATTERNS, made_traces, pattern
    from systems.autoscaling.simulator.episodes import SCENARIOS
    from systems.autoscaling.simulator.simulator import Autoscaling

    environment = Autoscaling()
    patterns = {name: [round(float(value), 4) for value in pattern(name, 1440 if name == "diurnal" else 120)]
                for name in PATTERNS}
    series = made_traces(400, seed=0)[[4, 9, 14]]
    write_results(options.output, {
        "format": FORMAT, "applications": options.applications, "date": now_utc(),
        "scenarios": [measure_scenario(environment, name, options.applications) for name in ("", *SCENARIOS)],
        "patterns": patterns, "traces": "made trace", "series": np.round(series, 4).tolist()})
