"""The data card of a scaling campaign: how, where and with what it was recorded."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from recording.data_card import LICENCE
from recording.scaling.columns import EVENTS, POINTS, WINDOWS, Columns
from recording.scaling.live_deployment import GROUP_WEIGHT
from recording.scaling.servers.catalogue import SERVERS
from recording.scaling.settings import ScalingSettings

# Where other processes use more than this, cores, a reader is told.
_QUIET_CORES = 0.3
_AZURE = "Azure Functions Trace 2019 (Shahrad et al., USENIX ATC 2020), CC-BY-4.0"


def scaling_card(
    settings: ScalingSettings,
    tables: Mapping[str, pd.DataFrame],
    demands_s: Mapping[str, float],
    missing: int,
    host: Mapping[str, Any],
    command: str,
) -> dict[str, Any]:
    """The card's content as JSON values; nothing in it names the host or its folders.

    Args:
        settings: of the campaign.
        tables: points, windows and events.
        demands_s: CPU seconds of a request by server, as measured before the trials.
        missing: trials that were planned and not recorded.
        host: what it was recorded on (recording.data_card.read_host).
        command: the command line.
    """
    points = tables["points"]
    trace = Path(settings.trace).name if settings.trace else ""
    disturbed = points["disturbance_cores"] > settings.most_disturbance_cores
    return {
        "title": "Scaling telemetry: real servers under open-loop load",
        "licence": LICENCE,
        "recorded_utc": [points["started"].min().isoformat(timespec="seconds"),
                         points["started"].max().isoformat(timespec="seconds")],
        "command": command.replace(settings.trace, trace) if trace else command,
        "settings": {**asdict(settings), "trace": trace},
        "trace": f"{trace}; {_AZURE}" if trace else "synthetic: a day's wave, noise and bursts",
        **host,
        "trials_missing": missing,
        "rows": {name: len(table) for name, table in tables.items()},
        "servers": {
            server: {"request": SERVERS[server].request_text, "demand_ms": round(1000 * demand, 4),
                     "points": int((points["server"] == server).sum())}
            for server, demand in demands_s.items()},
        "generator": {
            "lateness_p99_ms": {"median": round(float(points["lateness_p99_ms"].median()), 3),
                                "max": round(float(points["lateness_p99_ms"].max()), 3)},
            "cores": {"median": round(float(points["generator_cores"].median()), 3),
                      "max": round(float(points["generator_cores"].max()), 3)}},
        "disturbance": {
            "threshold_cores": settings.most_disturbance_cores,
            "median_cores": round(float(points["disturbance_cores"].median()), 3),
            "max_cores": round(float(points["disturbance_cores"].max()), 3),
            "points_above_threshold": int(disturbed.sum()),
            "points_repeated": int((points["attempts"] > 1).sum())},
        "notes": [
            "Arrivals are Poisson with a rate that is constant in a point and changes in steps elsewhere; they do not "
            "wait for answers, and latency counts from the time at which a request was due.",
            "Clients, servers and the recorder ran on one machine, over loopback. Other work was running on it: what "
            "it took is in the columns disturbance_cores and steal_cores.",
            f"An instance's control group had {GROUP_WEIGHT} times the weight of other processes, the load generator "
            "real-time priority, and single instances of a core or less kept off the generator's processor: without "
            "that the machine's other work would be measured along with the server.",
            "Several instances share one machine here; requests go to the one with the fewest in flight.",
            "The quota's period is 100 ms, the default of Linux and Kubernetes.",
        ],
    }


def scaling_card_text(card: Mapping[str, Any]) -> str:
    """The data card for people, in Markdown."""
    host, generator, disturbance = card["machine"], card["generator"], card["disturbance"]
    kind = "virtual machine" if host["virtual"] else "machine"
    servers = [f"| {name} | {one['points']} | {one['demand_ms']:.3g} | {one['request']} |"
               for name, one in card["servers"].items()]
    sections = "\n\n".join(
        f"## Columns of {name}.parquet\n\n| column | unit | meaning |\n|---|---|---|\n{_rows(columns)}"
        for name, columns in (("points", POINTS), ("windows", WINDOWS), ("events", EVENTS)))
    quiet = "" if disturbance["median_cores"] <= _QUIET_CORES else (
        " **The machine was not quiet**: record again on one that is before you rely on single points.")
    notes = "\n".join(f"- {note}" for note in card["notes"])
    return f"""# {card["title"]}

{card["rows"]["points"]} points, {card["rows"]["windows"]} windows and {card["rows"]["events"]} starts and resizes of
{len(card["servers"])} servers. Recorded {card["recorded_utc"][0]} to {card["recorded_utc"][1]}.
Licence: {card["licence"]}. Planned and not recorded: {card["trials_missing"]} trials.

    {card["command"]}

Machine: {kind}, {host["cpus"]} CPUs ({host["cpu_model"]}), {host["memory_gib"]} GiB, Linux {host["kernel"]}.
Trace: {card["trace"]}.

Versions: {", ".join(f"{name} {text}" for name, text in card["versions"].items())}.

| server | points | CPU of a request, ms | request |
|---|---|---|---|
{chr(10).join(servers)}

The load generator turned to a request at most {generator["lateness_p99_ms"]["median"]:g} ms late in 99 % of the cases
(median over the points; worst point {generator["lateness_p99_ms"]["max"]:g} ms) and used
{generator["cores"]["median"]:g} cores (median; at most {generator["cores"]["max"]:g}).

Other processes used {disturbance["median_cores"]:g} cores (median over the points; at most
{disturbance["max_cores"]:g}). A point was repeated while they used more than {disturbance["threshold_cores"]:g}:
{disturbance["points_repeated"]} points were; {disturbance["points_above_threshold"]} stayed above it.{quiet}

{sections}

## What to know

{notes}
"""


def _rows(columns: Columns) -> str:
    return "\n".join(f"| {name} | {unit} | {text} |" for name, (unit, text) in columns.items())
