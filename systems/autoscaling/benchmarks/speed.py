"""Steps a second of the autoscaling environment, on one core, for 1 to 32,768 applications, with all its switches on.

    python -m benchmarks autoscaling-speed [--runs 7] [--peers-python PYTHON]
    python -m benchmarks autoscaling-speed --device cuda --output FILE

A step of one application counts once. Ways: eager tensors; compiled by torch; as a gymnasium vector environment; and
driven by Stable-Baselines3, through its own wrapper over single environments and through its interface over ours of
many, by an interpreter that has it (--peers-python or the variable PEERS_PYTHON; left out, with the reason, where it
has not). Each way in a process of its own, on one thread; medians of CPU time, in which work beside it does not count.
On a GPU (--device cuda: eager and as a CUDA graph, more applications) they are seconds of the clock.
Resumable: a way that is there for the same code, runs and machine is kept.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, device_name, load_average, now_utc
from benchmarks.harness.markdown import number, paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.svg import svg
from systems.autoscaling.benchmarks.interpreters import add_peers_python, measured_by

OUTPUT = RESULTS / "autoscaling_speed.json"
FORMAT = "assay-autoscaling-speed/1"
SIZES = (1, 8, 64, 512, 2048, 8192, 32768)
ON_GPU = (512, 8192, 32768, 131_072, 524_288)
RUNS, SECONDS = 7, 0.5
GOAL, GOAL_SIZE = 5e6, 8192


@dataclass(frozen=True)
class Way:
    """How it is stepped: for readers, for how many applications, by whose interpreter, on which devices."""

    label: str
    sizes: tuple[int, ...] = SIZES
    by_peers: bool = False
    devices: tuple[str, ...] = ("cpu",)


WAYS: Mapping[str, Way] = {
    "eager": Way("eager tensors", devices=("cpu", "cuda")), "compiled": Way("compiled by torch"),
    "cuda_graph": Way("as a CUDA graph of an episode", devices=("cuda",)),
    "gymnasium_vector": Way("gymnasium vector environment"),
    "stable_baselines_over_ours": Way("Stable-Baselines3 over ours of many", by_peers=True),
    "stable_baselines_wrapper": Way("Stable-Baselines3's wrapper over single ones", (1, 8, 64), by_peers=True)}


def measure_way(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """{"rows": ...}, or {"missing": reason}."""
    way = WAYS[name]
    python = options.peers_python if way.by_peers else Path(sys.executable)
    sizes = way.sizes if options.device == "cpu" else ON_GPU
    arguments = [options.device, name, str(options.seconds), str(options.runs), *map(str, sizes)]
    return measured_by(python, "systems.autoscaling.benchmarks.speed_child", arguments, "rows")


def speed_table(results: Mapping[str, Any]) -> str:
    """Millions of steps a second, a way a row."""
    entries = results["entries"]
    measured = [{row["applications"]: row["median"] for row in entry.get("rows", ())} for entry in entries]
    sizes = sorted(set().union(*measured))
    rows = [[WAYS[entry["way"]].label, *(_millions(found.get(size)) for size in sizes)]
            for entry, found in zip(entries, measured, strict=True)]
    return table(["millions of steps a second", *(f"{size:,}" for size in sizes)], rows, range(1, len(sizes) + 1))


def conditions_line(results: Mapping[str, Any]) -> str:
    """Goal, machine, what is missing."""
    entries = results["entries"]
    machine, first = results["machine"], entries[0]
    missing = [f"{WAYS[entry['way']].label}: not measured ({entry['missing']})." for entry in entries
               if "missing" in entry]
    busy = max(entry.get("load_average", 0.0) for entry in entries)
    if first["device"] != "cpu":
        return paragraph(f"Medians of {first['runs']} runs of {first['seconds']:g} s on one {first['device']}.",
                         *missing, f"{machine['date'][:10]}.")
    return paragraph(
        f"Medians of {first['runs']} runs of {first['seconds']:g} s of CPU time on one core of",
        f"{machine['cpu_model']}{f', beside other work (load average up to {busy:.0f})' if busy > 1 else ''};",
        f"goal: {number(GOAL / 1e6)} million at {GOAL_SIZE:,} applications.", *missing, f"{machine['date'][:10]}.")


def _millions(value: float | None) -> str:
    return "" if value is None else number(value / 1e6)


def draw_speed(results: Mapping[str, Any], path: Path) -> None:
    """Steps a second over applications, both logarithmic."""
    from matplotlib.ticker import FuncFormatter

    from models.reporting.figures import BASELINE, SOFT, UNVERIFIED, VERIFIED

    styles = {"eager": (VERIFIED, "o", "-"), "compiled": (VERIFIED, "s", (0, (4, 1.5))),
              "gymnasium_vector": (BASELINE, "D", "-"), "stable_baselines_over_ours": (UNVERIFIED, "^", "-"),
              "stable_baselines_wrapper": (UNVERIFIED, "v", (0, (4, 1.5)))}
    with svg(path, 7.6, 3.6) as figure:
        axes = figure.subplots()
        for entry in results["entries"]:
            if rows := entry.get("rows"):
                color, marker, dash = styles[entry["way"]]
                axes.plot([row["applications"] for row in rows], [row["median"] for row in rows], color=color,
                          marker=marker, ms=4, ls=dash, label=WAYS[entry["way"]].label)
        axes.axhline(GOAL, color=SOFT, lw=0.9, ls=(0, (1, 2)))
        axes.annotate("goal at 8,192", (1, GOAL), (0, 3), textcoords="offset points", fontsize=8, color=SOFT)
        axes.set(xscale="log", yscale="log", xlabel="applications stepped at once", ylabel="steps a second")
        axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(
            lambda value, _: f"{value / 1e6:g} million" if value >= 1e6 else f"{value:,.0f}"))
        figure.legend(loc="outside lower center", ncols=2)


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--runs", type=int, default=RUNS, help="of which the median counts")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of CPU time, of each run")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where it is stepped")
    add_peers_python(parser)


def run(options: argparse.Namespace) -> None:
    """Measures every way that is not there yet."""
    machine = describe_machine()
    wanted = {"device": device_name(options.device), "runs": options.runs, "seconds": options.seconds,
              "cpu_model": machine["cpu_model"],
              "code": code_digest("systems.autoscaling.benchmarks.speed_child",
                                  ("systems.autoscaling", "models.control"))}
    entries = Entries(options.output, FORMAT, lambda entry: list(WAYS).index(entry["way"]),
                      lambda _, entry: wanted.items() <= entry.items() and "rows" in entry)
    entries.content["machine"] = {**machine, "date": now_utc()}
    for place, name in enumerate(WAYS):
        if not entries.has(place) and options.device in WAYS[name].devices:
            before = load_average()
            found = measure_way(name, options)
            entries.add({"way": name, **wanted, "load_average": before, **found})
            print(f"{WAYS[name].label}: {found.get('missing') or 'done'}", flush=True)
