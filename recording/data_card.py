"""The data card of a recorded data set: how, where and with what it was recorded."""

import json
import math
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from feature_store.errors import InputError, SourceError
from feature_store.schema import CONFIGURATION, METRICS, TARGET, TARGETS, Column
from feature_store.whole_files import write_file
from recording.raw_folder import Outcome
from recording.settings import SCRAPE_INTERVAL_S, CampaignSettings
from recording.tools import tool_versions

LICENCE = "CC-BY-4.0"
_HOST = "host.json"
_BURSTS = (
    "nginx and search are loaded in bursts of one second, and a request that has no answer when its burst ends is not "
    "counted: latency_ms of these two is a mean over requests below one second, so a longer stall cannot be seen in it."
)
_IDENTITY_TEXT = {
    "workload": "application that was measured",
    "environment": "machine and load range",
    "combination": "colocation combination that was running",
    "window_start": "start of the window (UTC)",
    "window_s": "length of the window (s)",
}


def cpu_model() -> str:
    """As the kernel names it; the architecture where it names none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def machine() -> dict[str, Any]:
    """What this machine is, without its name."""
    return {
        "cpu_model": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release().partition("-")[0],
        "virtual": _is_virtual(),
    }


def keep_host(raw: Path, tools: Iterable[str], packages: Iterable[str] = (), *, begun: bool) -> None:
    """Keeps in a raw folder what this machine is and which versions it has: for when recording begins or goes on.

    A campaign goes on nowhere else: its card names one machine, and one version of each program.

    Args:
        raw: of a campaign.
        tools: programs that it runs.
        packages: of Python, that it runs with.
        begun: whether anything of it is recorded.

    Raises:
        InputError: it began on another machine, or with other versions.
        SourceError: it does not say what it began on.
    """
    versions = {"python": platform.python_version(), **tool_versions(tools),
                **{name: version(name) for name in packages}}
    here = {"machine": machine(), "versions": versions}
    if not begun:
        write_file(raw / _HOST, json.dumps(here, indent=2))
    elif changes := _changes(read_host(raw), here):
        raise InputError("resumed campaign must have the machine and the versions it began with, got "
                         f"{', '.join(changes)} ({raw}): go on there, or write what is recorded with --write-only and "
                         "begin another campaign here")


def _changes(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is not as it was, of what both name; the memory that a kernel counts differs a little from boot to boot."""
    changes = []
    for part in ("machine", "versions"):
        for name, value in now[part].items():
            old = then[part].get(name, value)
            if old != value and not (name == "memory_gib" and math.isclose(old, value, rel_tol=0.02, abs_tol=0.15)):
                changes.append(f"{name} {value} instead of {old}")
    return changes


def read_host(raw: Path) -> dict[str, Any]:
    """`machine` and `versions` with which the data in a raw folder were recorded, wherever this runs.

    Raises:
        SourceError: it does not say.
    """
    try:
        return dict(json.loads((raw / _HOST).read_text()))
    except FileNotFoundError:
        raise SourceError(f"raw folder must say what it was recorded on, got no {_HOST} ({raw}): write its data set "
                          "with the version of Assay that recorded it") from None


def make_card(
    settings: CampaignSettings,
    samples: pd.DataFrame,
    outcomes: list[Outcome],
    host: dict[str, Any],
    command: str,
) -> dict[str, Any]:
    """The card's content as JSON values; nothing in it names the host or its folders.

    Args:
        settings: of the campaign.
        samples: its data set.
        outcomes: what happened in its combinations.
        host: what it was recorded on (`read_host`).
        command: the command line.
    """
    core_share = _mean_core_share(outcomes)
    described = samples.groupby("workload")[TARGET].describe(percentiles=[0.05, 0.5, 0.95]).round(4)
    latency = described.astype(object).where(described.notna(), None)  # one sample has no deviation
    return {
        "title": f"Colocation telemetry, environment {settings.environment!r}",
        "licence": LICENCE,
        "recorded_utc": [
            samples["window_start"].min().isoformat(timespec="seconds"),
            samples["window_start"].max().isoformat(timespec="seconds"),
        ],
        "command": command,
        "settings": asdict(settings),
        "scrape_interval_s": SCRAPE_INTERVAL_S,
        **host,
        "samples": len(samples),
        "combinations": int(samples["combination"].nunique()),
        "workloads": {str(name): int(count) for name, count in samples["workload"].value_counts().items()},
        "latency_ms": latency.to_dict("index"),
        "recorder_core_share": core_share,
        "problems": {one.identifier: one.problem for one in outcomes if one.problem},
        "notes": [
            "Recorded with real servers and real load generators on one machine. Other processes of the host "
            "were running during the recording: what they took is in the metrics, but nobody controlled it.",
            "Metrics are those of the whole machine; the load generators ran on it too.",
            "rate_per_s is a ceiling: load generators pause between requests and never catch up.",
            *([_BURSTS] if {"nginx", "search"} & set(samples["workload"]) else []),
        ],
    }


def _mean_core_share(outcomes: list[Outcome]) -> dict[str, float]:
    """CPU use of the recorder's processes over the whole campaign, share of one core, and their sum."""
    lengths = pd.Series([one.end_s - one.start_s for one in outcomes])
    shares = pd.DataFrame([dict(one.core_shares) for one in outcomes])
    mean = shares.mul(lengths, axis=0).sum() / lengths.sum()
    return {
        **{str(name): round(float(share), 4) for name, share in mean.items()},
        "sum": round(mean.sum(), 4),
    }


def _is_virtual() -> bool:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return any("hypervisor" in line for line in lines if line.startswith("flags"))
    except OSError:
        return False


def _column_rows() -> list[str]:
    rows = [f"| {name} | | {text} |" for name, text in _IDENTITY_TEXT.items()]
    columns: dict[str, Column] = {**METRICS, **CONFIGURATION, **TARGETS}
    return rows + [f"| {name} | {column.unit} | {column.description} |" for name, column in columns.items()]


def card_text(card: dict[str, Any]) -> str:
    """The data card for people, in Markdown."""
    machine, settings = card["machine"], card["settings"]
    kind = "virtual machine" if machine["virtual"] else "machine"
    problems = [f"- {name}: {problem}" for name, problem in card["problems"].items()] or ["None."]
    return f"""# {card["title"]}

{card["samples"]} samples of {len(card["workloads"])} workloads in {card["combinations"]} colocation combinations.
Recorded {card["recorded_utc"][0]} to {card["recorded_utc"][1]}. Licence: {card["licence"]}.

    {card["command"]}

Machine: {kind}, {machine["cpus"]} CPUs ({machine["cpu_model"]}), {machine["memory_gib"]} GiB, Linux
{machine["kernel"]}. Seed {settings["seed"]}, theta {settings["theta"]}, windows of {settings["window_s"]} s,
warm-up {settings["warm_up_s"]:g} s, scrape interval {card["scrape_interval_s"]} s. Recorder, Prometheus and node
exporter together used {100 * card["recorder_core_share"]["sum"]:.1f} % of one core.

Versions: {", ".join(f"{name} {text}" for name, text in card["versions"].items())}.

| workload | samples | latency_ms 5 % | median | 95 % | max |
|---|---|---|---|---|---|
{_lines(_latency_rows(card))}

## Columns of samples.parquet

| column | unit | meaning |
|---|---|---|
{_lines(_column_rows())}

Configuration columns are NaN where a workload has no such property.

## What to know

{_lines([f"- {note}" for note in card["notes"]])}

## Combinations that ended early

{_lines(problems)}
"""


def _lines(lines: list[str]) -> str:
    return "\n".join(lines)


def _latency_rows(card: dict[str, Any]) -> list[str]:
    rows = []
    for name, latency in card["latency_ms"].items():
        values = " | ".join(f"{latency[key]:.3g}" for key in ("5%", "50%", "95%", "max"))
        rows.append(f"| {name} | {card['workloads'][name]} | {values} |")
    return rows
