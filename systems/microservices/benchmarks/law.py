"""The recorded application at limits that stay, beside the simulator's law of queues and quotas.

    python -m benchmarks microservices-law [--seconds 60]

Once with all its limits the application is recorded, and one of the simulator is fitted to it (../fitting.py); then it
has each share of these limits in turn, under the same load, but nobody less than may be set. Nothing is injected and
nobody acts. Of each type of requests: the 99th percentile that a client sees, and the law's, which leaves out what is
beside the services on this machine. Resumable. Needs root, and control groups that may be written; takes 10 minutes.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.control.live_agents import require_control_groups
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS
from feature_store.errors import InputError
from models.control.simulation.queueing import latency_within_quota
from pipelines.request import code_version
from systems.microservices.application.calls import TIMEOUT_S
from systems.microservices.applications import end_to_end
from systems.microservices.benchmarks.live import LEAST_S, NOBODY, deployed
from systems.microservices.benchmarks.live_application import (
    CORES,
    NAMES,
    RATE_RPS,
    WARM_UP_S,
    Arm,
    Played,
    played,
)
from systems.microservices.fitting import SETTLES_S, fitted, requests_of
from systems.microservices.interface import LEAST_CORES, STEP_SECONDS
from systems.microservices.traces.otlp import read_spans

OUTPUT = RESULTS / "microservices_law.json"
FORMAT = "assay-microservices-law/1"
SHARES = (1.0, 0.5, 0.3, 0.2)
_KEPT = ("work_s", "waits_s", "arrival_cv2", "service_cv2", "visits", "paths", "mix")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--seconds", type=float, default=LEAST_S, help=f"of each share; default: {LEAST_S:g}")


def run(options: argparse.Namespace) -> None:
    """Runs what is not there yet."""
    require_control_groups()
    if not options.seconds >= LEAST_S:
        raise InputError(f"--seconds must be at least {LEAST_S:g}, got {options.seconds:g}")
    entries = Entries(options.output, FORMAT, lambda one: -one["share"],
                      lambda before, _: (before["seconds"], before["cores"]) == (options.seconds, CORES))
    if not len(entries):  # the limits of all shares are those that it was fitted at
        entries.content |= {"machine": {**describe_machine(), "date": now_utc()}, "code": code_version(),
                            "seconds": options.seconds, "cores": CORES, **_fitted(options.seconds)}
    for share in SHARES:
        if not entries.has(-share):
            limits = _part(entries.content["limits"], share)
            measured = _percentiles(played(Arm(NOBODY), 1, options.seconds, False, limits, {}))
            entries.add({"share": share, "measured_ms": measured})
            print(f"{share:g} of the limits: measured {measured} ms, simulated "
                  f"{by_law(entries.content['fitted'], limits)} ms", flush=True)


def _fitted(seconds: float) -> dict[str, Any]:
    """Limits that are all of the node, and what the application is by a recording with them."""
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
        warm_up = {"start_s": [came.start_unix_s - WARM_UP_S], "end_s": [came.start_unix_s - SETTLES_S]}
        pd.DataFrame(warm_up).to_parquet(folder / "anomalies.parquet")
        known = fitted(folder)
    return {"limits": limits, "fitted": {"services": known.services, "types": known.types, **{
        name: getattr(known.application, name)[0].tolist() for name in _KEPT}}}


def _part(limits: Mapping[str, float], share: float) -> dict[str, float]:
    return {name: max(share * cores, LEAST_CORES) for name, cores in limits.items()}


def by_law(known: Mapping[str, Any], limits: Mapping[str, float]) -> dict[str, float]:
    """99th percentile of each type, ms, of what was fitted."""
    work_s, waits_s, arrival_cv2, service_cv2, visits, paths, mix = (torch.tensor([known[name]]) for name in _KEPT)
    cores, rate = torch.tensor([[limits[name] for name in known["services"]]]), RATE_RPS * mix @ visits[0]
    nothing = torch.zeros_like(cores)
    median, p99 = latency_within_quota(rate, cores, cores, nothing, work_s, arrival_cv2, service_cv2, nothing,
                                       STEP_SECONDS)
    whole = end_to_end(median + waits_s, p99 + waits_s, paths)
    return {name: round(1e3 * value, 1) for name, value in zip(known["types"], whole.p99_s[0].tolist(), strict=True)}


def _percentiles(came: Played) -> dict[str, float]:
    """99th percentile of each type, ms."""
    latency_ms = came.results.latency_ms(TIMEOUT_S)
    return {str(name): round(float(np.percentile(latency_ms[came.types == name], 99)), 1)
            for name in np.unique(came.types)}


def law_table(results: Mapping[str, Any]) -> str:
    """A row a share of the limits: measured, and by the law as it is now, of each type that was fitted."""
    types, rows, ratio = sorted(results["fitted"]["types"]), [], []
    for one in results["entries"]:
        limits, measured = _part(results["limits"], one["share"]), one["measured_ms"]
        simulated = by_law(results["fitted"], limits)
        cells = [f"{measured[name]:.0f} / {simulated[name]:.0f}" for name in types]
        rows.append([f"{sum(limits.values()):.2f}", *cells])
        ratio += [simulated[name] / measured[name] for name in types]
    note = paragraph(
        f"99th percentiles of {results['seconds']:g} s each, ms: measured / simulated, on",
        f"{results['machine']['cores']} cores of {results['machine']['cpu_model']}, {results['machine']['date'][:10]}.",
        "The simulator's are",
        f"{np.exp(np.mean(np.log(ratio))):.2f} times those measured in the geometric mean, {min(ratio):.2f} to",
        f"{max(ratio):.2f} times.")
    return table(["all limits, cores", *types], rows, range(1, 1 + len(types))) + f"\n\n{note}"
