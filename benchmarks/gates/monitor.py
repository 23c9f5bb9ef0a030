"""How often `assay monitor` cries wolf where nothing has changed, and how soon it sees what has.

    python -m benchmarks monitor [--weeks 4] [--repeats 4] [--applications 8]

False alarms: 50 features a minute, first-order autoregressive ones of five memories (correlation of neighbours 0 to
0.99) with normal, log-normal and rounded values, without a change; "daily" adds the same course of a day to all of
them. Three days train ("daily": seven), then a look comes with every 20 new rows. Beside the monitor, on the same rows:
the same test with 1 % for each look, and one Kolmogorov-Smirnov test a feature at 5 % on the newest 320 rows, taken as
independent.

Delays: the scenarios of section 5.2.3 of the thesis, as systems/autoscaling simulates them (changed_services.py): a
payload, which changes CPU time a request, or the load changes by the thesis's factor in the middle of an episode. What
is measured of one held-out application under a rule that stays as it is (HPA on CPU, limits as deployed) are the
features; 24 hours of 15 s train, 8 hours go by, then it changes. Looked for are drift, and the end of SERVING by
Algorithm 5.1 (episodes of 100 steps, the mean of ten at least 2.6 % below that of training, as section 5.5.3 has it, or
twice its deviation).

Policies: the same for what a policy sees and sets (changed_policies.py), of changes of the load and of one payload.
"""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.gates.changed_policies import STATIONARY, policy_delays
from benchmarks.gates.changed_services import delays
from benchmarks.gates.unchanged_telemetry import FEATURES, KINDS, WAYS, false_alarms
from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import number, paragraph, table
from benchmarks.harness.result_file import RESULTS
from systems.autoscaling.benchmarks.scenarios import LABELS

OUTPUT = RESULTS / "monitor.json"
FORMAT = "assay-monitor-benchmark/1"
WEEKS, REPEATS, APPLICATIONS = 4, 4, 8
OF_POLICIES = ("", "payload_operations", "load_high_to_low", "load_low_to_high")


def run(options: argparse.Namespace) -> None:
    """Measures what the same code has not measured yet."""
    monitors = code_digest("models.monitoring.drift", "models")
    codes = {"false alarms": monitors + code_digest("benchmarks.gates.unchanged_telemetry", "benchmarks"),
             "delays": monitors + code_digest("benchmarks.gates.changed_services", ("benchmarks", "systems", "models")),
             "policies": code_digest("benchmarks.gates.changed_policies", ("benchmarks", "systems", "models"))}
    entries = Entries(options.output, FORMAT, lambda entry: tuple(entry["key"]),
                      lambda _, entry: entry.get("code") == codes[entry["key"][0]])
    entries.content |= {"machine": {**describe_machine(), "date": now_utc()}}
    wanted = [("delays", scenario, 0, options.applications) for scenario in LABELS]
    wanted += [("policies", scenario, 0, options.applications) for scenario in OF_POLICIES]
    wanted += [("false alarms", kind, seed, options.weeks) for seed in range(options.repeats) for kind in KINDS]
    for key in wanted:
        if not entries.has(key):
            what, of, seed, size = key
            measured = {"delays": delays, "policies": policy_delays}
            made = measured[what](of, size) if what in measured else false_alarms(of, size, seed)
            entries.add({"key": list(key), "code": codes[what], **made})


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--weeks", type=int, default=WEEKS, help="of looks in each series")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="series of each kind of telemetry")
    parser.add_argument("--applications", type=int, default=APPLICATIONS,
                        help=f"that each scenario concerns; of policies without a change {STATIONARY} times as many")


def _of(results: Mapping[str, Any], what: str, of: str) -> list[Mapping[str, Any]]:
    return [entry for entry in results["entries"] if entry["key"][:2] == [what, of]]


def alarms_table(results: Mapping[str, Any]) -> str:
    """A row a kind of telemetry."""
    rows = []
    for kind in KINDS:
        if found := _of(results, "false alarms", kind):
            weeks = sum(entry["key"][3] for entry in found)
            rows.append([kind, str(weeks), f"{sum(entry['looks'] for entry in found):,}",
                         f"{min(entry['judged'] for entry in found)} of {FEATURES}",
                         *(f"{sum(entry[way] for entry in found):,}" for way in WAYS)])
    first, *others = WAYS.values()
    header = ["telemetry without a change", "weeks", "looks", "features judged", f"looks with an alarm: {first}"]
    return table([*header, *others], rows, range(1, 7))


def delays_table(results: Mapping[str, Any]) -> str:
    """A row a scenario."""
    rows = [[label, str(len(one["drift"])), number(float(np.median(one["cpu"]))),
             *(cell for way in ("drift", "reward") for cell in _told(one[way], changes=bool(name)))]
            for name, label in LABELS.items() for one in _of(results, "delays", name)]
    header = ["change", "applications", "CPU time a request, times", "drift seen after: median, longest",
              "before the change", "never", "SERVING ends after: median, longest", "before the change", "never"]
    return table(header, rows, range(1, 9))


def policies_table(results: Mapping[str, Any]) -> str:
    """A row a scenario."""
    rows = [[LABELS[name], str(len(one["drift"])), f"{one['looks']:,}", *_told(one["drift"], changes=bool(name))]
            for name in OF_POLICIES for one in _of(results, "policies", name)]
    return table(["change", "applications", "looks", "drift seen after: median, longest", "before the change", "never"],
                 rows, range(1, 6))


def _told(minutes: list[float | None], changes: bool) -> list[str]:
    after = [value for value in minutes if value is not None and value > 0]
    before, never = sum(value is not None and value <= 0 for value in minutes), minutes.count(None)
    if not changes:  # there is no before and after
        before, after = len(minutes) - never, []
    told = f"{number(float(np.median(after)))}, {number(max(after))} min" if after else "-"
    return [told, str(before), str(never)]


def conditions_line(results: Mapping[str, Any]) -> str:
    """Where and when it was measured."""
    machine = results["machine"]
    return paragraph(f"{machine['cpu_model']}, {machine['date'][:10]}; what is counted are looks, not seconds.")
