"""The bounds of queueing and use that hold for ever, against the worst senders that we found within the rules.

    python -m benchmarks congestion-for-ever

For each round trip and objective: what follows of the properties in congestion.yaml (guarantee.py), and the longest
queue and the lowest rate of senders that do what these properties allow (adversary.py), on the slowest and on the
fastest link, with acknowledgements late by any part of the jitter at random, never, or always.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from models.control.contract.systems import environment_of
from models.tasks.control.workload import specification_of
from models.tasks.task import load_task
from models.verification.language.specification_writing import written_out
from systems.congestion.benchmarks.adversary import choices, driven
from systems.congestion.guarantee import found, guarantees, rules_of

OUTPUT = RESULTS / "congestion_for_ever.json"
FORMAT = "assay-congestion-for-ever/1"
ROUND_TRIPS_MS, OBJECTIVES_MS = (10.0, 50.0, 200.0), (20.0, 100.0, 500.0)
ROUND_TRIPS, SECONDS = 300, 10.0  # of a run, whichever is longer


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py: none of its own."""


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    task = load_task("congestion")
    code = with_task(task, code_digest("systems.congestion.benchmarks.for_ever", "systems.congestion"))
    entries = Entries(options.output, FORMAT, lambda one: (one["round_trip_ms"], one["objective_ms"]), made_by(code))
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    demanded = specification_of(task, "uplink", environment_of("congestion"))
    properties = written_out(demanded)["properties"]
    for place in ((trip, objective) for trip in ROUND_TRIPS_MS for objective in OBJECTIVES_MS):
        if not entries.has(place):
            entries.add({"round_trip_ms": place[0], "objective_ms": place[1], "code": code,
                         **_measured(properties, 1e-3 * place[0], 1e-3 * place[1])})
            print(f"{place[0]:g} ms, objective {place[1]:g} ms", flush=True)


def _measured(properties: Any, base_s: float, objective_s: float) -> dict[str, Any]:
    shipped = guarantees(properties, {"base_rtt_ms": 1e3 * base_s, "most_queueing_s": objective_s})["shipped"]
    rules = rules_of(properties, objective_s)
    if shipped is None or rules is None:
        return {"bound": None}
    document = {name: value for name, value in json.loads(shipped.content).items() if name != "format"}
    bound = found(rules, **document)
    assert bound is not None
    tried, jitter_s = {}, document["jitter_s"]
    for link in ("slowest_pps", "fastest_pps"):
        for number, name in enumerate(choices(base_s, objective_s)):
            rows = driven(rules, document[link], base_s, jitter_s, objective_s, max(SECONDS, ROUND_TRIPS * base_s),
                          choices(base_s, objective_s)[name], (0.9 * document[link], 0.0), _late(jitter_s, number))
            tried[f"{name}, {link}"] = [round(float(rows[:, 0].max()), 4), round(float(rows[:, 1].min()), 4)]
    return {**document, "bound": bound._asdict(), "tried": tried}


def _late(jitter_s: float, number: int) -> Callable[[float], float]:
    random = np.random.default_rng(number)
    return (lambda now: jitter_s * random.random(), lambda now: 0.0, lambda now: jitter_s)[number % 3]


def bounds_table(results: Mapping[str, Any]) -> str:
    """A path and objective a row."""
    rows = []
    for one in results["entries"]:
        bound = one["bound"]
        if bound is None:
            rows.append([f"{one['round_trip_ms']:g}", f"{one['objective_ms']:g}", *["-"] * 7])
            continue
        queue, used = (pick(ends) for pick, ends in zip((max, min), zip(*one["tried"].values(), strict=True),
                                                        strict=True))
        rows.append([
            f"{one['round_trip_ms']:g}", f"{one['objective_ms']:g}", f"{1e3 * one['jitter_s']:g}",
            f"{0.012 * one['slowest_pps']:.1f} to {0.012 * one['fastest_pps']:.1f}",
            f"{1e3 * bound['queueing_s']:.0f}", f"{1e3 * queue:.0f}", f"{100 * bound['used']:.1f}", f"{100 * used:.1f}",
            f"{bound['after_s']:.0f}"])
    header = ["round trip, ms", "objective, ms", "jitter, ms", "link, Mbit/s", "queue at most, ms", "the worst found",
              "rate at least, % of the link", "the worst found", "from any start, after s"]
    return table(header, rows, range(9))


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was tried."""
    senders = max(len(one.get("tried", ())) for one in results["entries"])
    return paragraph(f"{senders} runs a row, of {SECONDS:g} s or {ROUND_TRIPS} round trips. "
                     f"{results['machine']['date'][:10]}.")
