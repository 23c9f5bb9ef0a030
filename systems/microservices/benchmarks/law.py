"""The recorded application at limits that stay, beside the simulator's law of queues and quotas.

    python -m benchmarks microservices-law [--seconds 60]

Once with all its limits the application is recorded, and one of the simulator is fitted to it (../fitting.py); then its
limits are so much of that, one share after the other, under the same load. Nothing is injected and nobody acts. Of each
type of requests: the 99th percentile that a client sees, and the law's. Resumable. Needs root, and control groups that
may be written; takes a quarter of an hour.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS
from feature_store.errors import InputError
from models.control.simulation.queueing import latency_within_quota
from pipelines.request import code_version
from recording.control_groups import find_hierarchy
from systems.microservices.application.calls import TIMEOUT_S
from systems.microservices.applications import end_to_end
from systems.microservices.benchmarks.live import LEAST_S, NOBODY, deployed
from systems.microservices.benchmarks.live_application import CORES, NAMES, RATE_RPS, Arm, Played, played
from systems.microservices.fitting import Fitted, fitted, requests_of
from systems.microservices.interface import STEP_SECONDS
from systems.microservices.traces.otlp import read_spans

OUTPUT = RESULTS / "microservices_law.json"
FORMAT = "assay-microservices-law/1"
SHARES = (1.0, 0.5, 0.3, 0.2, 0.12)


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seconds", type=float, default=LEAST_S, help=f"of each share; default: {LEAST_S:g}")


def run(options: argparse.Namespace) -> None:
    """Runs what is not there yet."""
    if os.geteuid() != 0 or find_hierarchy().cpu is None:
        raise InputError("control groups of CPU must be writable, got none (run as root)")
    if not options.seconds >= LEAST_S:
        raise InputError(f"--seconds must be at least {LEAST_S:g}, got {options.seconds:g}")
    entries = Entries(options.output, FORMAT, lambda one: -one["share"],
                      lambda before, _: (before["seconds"], before["cores"]) == (options.seconds, CORES))
    if not len(entries):
        entries.content |= {"machine": {**describe_machine(), "date": now_utc()}, "code": code_version(),
                            "seconds": options.seconds, "cores": CORES, **_fitted(options.seconds)}
    for share in SHARES:
        if not entries.has(-share):
            limits = {name: share * cores for name, cores in entries.content["limits"].items()}
            measured = _percentiles(played(Arm(NOBODY), 1, options.seconds, False, limits, {}))
            simulated = entries.content["simulated"][str(share)]
            entries.add({"share": share, "measured_ms": measured, "simulated_ms": simulated})
            print(f"{share:g} of the limits: measured {measured} ms, simulated {simulated} ms", flush=True)


def _fitted(seconds: float) -> dict[str, Any]:
    """Limits that are all of the node, and what the law says of each share of them."""
    used = played(Arm("no limits"), 1000, seconds, False, {}, {}).used.mean(axis=0)
    limits = deployed(dict(zip(NAMES, used.tolist(), strict=True)))
    with TemporaryDirectory(prefix="assay-law-") as name:
        folder = Path(name)
        came = played(Arm(NOBODY), 0, 2.0 * seconds, False, limits, {}, folder / "traces.otlp")
        calls = requests_of(read_spans(str(folder)))
        second = np.floor(calls["start_us"] / 1e6 - came.start_unix_s)
        counts = calls.groupby(["service", second]).size()
        pd.DataFrame([
            {"time_s": came.start_unix_s + at, "service": one, "cpu_cores": came.used[at, place],
             "requests": float(counts.get((one, float(at)), 0.0))}
            for place, one in enumerate(NAMES) for at in range(len(came.used))]).to_parquet(folder / "metrics.parquet")
        pd.DataFrame({"start_s": [], "end_s": []}, dtype=float).to_parquet(folder / "anomalies.parquet")
        known = fitted(folder)
    return {"limits": limits, "simulated": {
        str(share): _by_law(known, {one: share * cores for one, cores in limits.items()}) for share in SHARES}}


def _by_law(known: Fitted, limits: Mapping[str, float]) -> dict[str, float]:
    """99th percentile of each type, ms."""
    of = known.application
    cores, rate = torch.tensor([[limits[name] for name in known.services]]), RATE_RPS * of.mix @ of.visits[0]
    nothing = torch.zeros_like(cores)
    median, p99 = latency_within_quota(rate, cores, cores, nothing, of.work_s, of.arrival_cv2, of.service_cv2, nothing,
                                       STEP_SECONDS)
    whole = end_to_end(median + of.waits_s, p99 + of.waits_s, of.paths)
    return {name: round(1e3 * value, 1) for name, value in zip(known.types, whole.p99_s[0].tolist(), strict=True)}


def _percentiles(came: Played) -> dict[str, float]:
    """99th percentile of each type, ms."""
    latency_ms = came.results.latency_ms(TIMEOUT_S)
    return {str(name): round(float(np.percentile(latency_ms[came.types == name], 99)), 1)
            for name in np.unique(came.types)}


def law_table(results: Mapping[str, Any]) -> str:
    """A row a share of the limits: measured and simulated of each type."""
    entries = results["entries"]
    types = sorted(entries[0]["measured_ms"])
    rows = [[f"{CORES * one['share']:g}", *(f"{one['measured_ms'][name]:.0f} / {one['simulated_ms'][name]:.0f}"
                                            for name in types)] for one in entries]
    ratio = [one["simulated_ms"][name] / one["measured_ms"][name] for one in entries for name in types]
    note = paragraph(
        f"99th percentiles of {results['seconds']:g} s each, ms: measured / simulated, on",
        f"{results['machine']['cores']} cores of {results['machine']['cpu_model']}, {results['machine']['date'][:10]}.",
        "The simulator's are",
        f"{np.exp(np.mean(np.log(ratio))):.2f} times those measured in the geometric mean, {min(ratio):.2f} to",
        f"{max(ratio):.2f} times.")
    return table(["all limits, cores", *types], rows, range(1, 1 + len(types))) + f"\n\n{note}"
