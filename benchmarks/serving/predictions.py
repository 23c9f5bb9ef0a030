"""Latency of `assay serve` on one core, under open-loop load from 16 clients on loopback.

    python -m benchmarks serve-predictions [--bundle FOLDER --public-key KEY] [--seconds 30] [--repeats 5]

The service runs on the first core alone, the load generator (recording/scaling/open_loop.py) on the last one. Requests
of one row each, drawn inside of the proved box, arrive as a Poisson process whether or not earlier ones were answered;
latency counts from the time at which a request was due. By default the bundle is the one that comes with the project, a
policy: what training saw is held against each row too. Resumable: a rate that the same code has measured is kept.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.harness.code_digest import ROOT, code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import measured, number, paragraph, table
from benchmarks.harness.quantity import below, quantity
from benchmarks.harness.result_file import RESULTS
from feature_store.errors import InputError
from recording.scaling.arrivals import poisson_arrivals
from recording.scaling.generator import LEAD_S, python_environment, real_time_prefix, write_requests
from recording.scaling.open_loop import ANSWERED, Target, read_result
from serving.bundle import check_bundle
from serving.contract import Contract, InputSpec

OUTPUT = RESULTS / "serve_predictions.json"
FORMAT = "assay-serve-predictions/1"
RATES = (100, 250, 500, 1000)  # requests a second
GOAL_RATE, GOAL_MS = 500, 5.0  # for the 99th percentile
CLIENTS = 16
TIMEOUT_S = 5.0
_REQUESTS = 1000  # different ones
_WARM_S = 2.0  # at the beginning of a load, which does not count


def requests_of(contract: Contract, random: np.random.Generator) -> list[bytes]:
    """Requests of one row each, as they go over the wire. Raises InputError: inputs depend on each other."""
    if contract.one_hot:
        raise InputError("--bundle: expected a model without one-hot inputs, got one with them")
    columns = [_drawn(item, random) for item in contract.inputs]
    bodies = [json.dumps({"inputs": [{"name": contract.model.input, "datatype": "FP64", "shape": [1, len(row)],
                                      "data": row}]}) for row in np.column_stack(columns).tolist()]
    path = f"/v2/models/{contract.task}.{contract.workload}/infer"
    return [f"POST {path} HTTP/1.1\r\nHost: assay\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            for body in bodies]


def _drawn(item: InputSpec, random: np.random.Generator) -> np.ndarray:
    if item.values is not None:
        return random.choice(item.values, _REQUESTS)
    return random.uniform(item.minimum, item.maximum, _REQUESTS)


@contextmanager
def service(bundle: Path, key: Path, processor: int) -> Iterator[tuple[psutil.Process, str]]:
    """`assay serve` on one core: its process, and its address."""
    command = ["taskset", "--cpu-list", str(processor), sys.executable, "-c",
               "from pipelines.controller_command_line import main; main()", "serve", "--bundle", str(bundle),
               "--public-key", str(key), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            if " at http://" not in (line := process.stdout.readline()):
                raise InputError(f"service must start, got {line.strip() or 'nothing'}")
            yield psutil.Process(process.pid), line.rpartition("http://")[2].strip()
        finally:
            process.terminate()


def measure(process: psutil.Process, address: str, requests: list[bytes], rate: float, seconds: float, seed: int,
            folder: Path) -> dict[str, float]:
    """One load: percentiles of the latency (ms), what was not answered, cores of the service, the generator's lateness
    (ms).
    """
    random = np.random.default_rng(seed)
    arrivals = poisson_arrivals(random, [rate], [_WARM_S + seconds])
    choices = random.integers(0, len(requests), len(arrivals))
    write_requests(folder, requests, arrivals, choices, protocol="http", targets=[Target(address)],
                   connections=CLIENTS, timeout_s=TIMEOUT_S, start_s=time.monotonic() + LEAD_S)
    before, began = process.cpu_times(), time.monotonic()
    last = str(max(os.sched_getaffinity(0)))
    subprocess.run([*real_time_prefix(), "taskset", "--cpu-list", last, sys.executable, "-m",
                    "recording.scaling.open_loop", str(folder / "job.json")], check=True, env=python_environment())
    after, took_s = process.cpu_times(), time.monotonic() - began - LEAD_S
    result = read_result(folder / "results.npz")
    counted = result.due >= _WARM_S
    latency_ms = result.latency_ms(TIMEOUT_S)[counted]
    late_ms = 1e3 * (result.noticed - result.due)[counted]
    percentiles = {f"p{share:g}_ms": float(np.percentile(latency_ms, share)) for share in (50, 99, 99.9)}
    return {**percentiles, "requests": int(counted.sum()), "failed": int((result.status[counted] != ANSWERED).sum()),
            "cores": (after.user + after.system - before.user - before.system) / took_s,
            "late_p99_ms": float(np.nanpercentile(late_ms, 99))}


def run(options: argparse.Namespace) -> None:
    """Measures each rate anew, unless the same code has."""
    code = code_digest("benchmarks.serving.predictions", ("benchmarks", "serving", "recording"))
    entries = Entries(options.output, FORMAT, lambda entry: entry["rate"], made_by(code))
    contract = check_bundle(options.bundle, options.public_key).contract
    requests = requests_of(contract, np.random.default_rng(0))
    entries.content |= {"machine": {**describe_machine(), "date": now_utc()}, "seconds": options.seconds,
                        "model": {"task": contract.task, "inputs": len(contract.inputs),
                                  "outputs": len(contract.outputs)}}
    for rate in options.rates:
        if entries.has(rate):
            continue
        before, loads = load_average(), []
        for seed in range(options.repeats):  # each in a new process
            with (tempfile.TemporaryDirectory(prefix="assay-serve-") as folder,
                  service(options.bundle, options.public_key, min(os.sched_getaffinity(0))) as (process, address)):
                loads.append(measure(process, address, requests, rate, options.seconds, seed, Path(folder)))
            print(f"{rate} a second: {loads[-1]}", file=sys.stderr, flush=True)
        p99 = quantity(f"99th percentile at {rate} a second", "ms", [one["p99_ms"] for one in loads],
                       below(GOAL_MS) if rate == GOAL_RATE else None)
        entries.add({"rate": rate, "code": code, "load_average_before": before, "loads": loads, "p99": p99})


def predictions_table(results: Mapping[str, Any]) -> str:
    """A row a rate; medians over the repeats."""
    rows = []
    for entry in results["entries"]:
        loads = entry["loads"]
        median = {key: float(np.median([one[key] for one in loads])) for key in loads[0]}
        failed, count = (sum(one[key] for one in loads) for key in ("failed", "requests"))
        goal = entry["p99"]["goal"]
        told = "" if goal is None else f"below {goal['limit']:g} ms: {'met' if entry['p99']['met'] else 'not met'}"
        rows.append([f"{entry['rate']:,}", f"{number(median['p50_ms'])} ms", measured(entry["p99"]),
                     f"{number(median['p99.9_ms'])} ms", told, f"{failed:,} of {count:,}",
                     f"{100 * median['cores']:.0f} %", f"{number(median['late_p99_ms'])} ms"])
    return table(["requests a second", "median", "99 %", "99.9 %", "goal", "not answered", "of a core",
                  "generator late, 99 %"], rows, (0, 1, 3, 5, 6, 7))


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was measured, and on what."""
    model, machine = results["model"], results["machine"]
    load = max(entry["load_average_before"] for entry in results["entries"])
    return paragraph(
        f"One row a request, {CLIENTS} connections, Poisson arrivals, {results['seconds']:g} s each; latency from the",
        "time at which a request was due; service and generator on a core each. Model:",
        f"{model['task']}, {model['inputs']} inputs, {model['outputs']} outputs. Load of the machine before: {load:g}.",
        f"{machine['cpu_model']}, {machine['cores']} cores, Python {machine['python']}, {machine['date'][:10]}.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    demo = ROOT / "data" / "demo"
    parser.add_argument("--bundle", type=Path, default=demo / "bundle", help="folder; default: data/demo/bundle")
    parser.add_argument("--public-key", type=Path, default=demo / "assay.pub", help="default: data/demo/assay.pub")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="requests a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load that counts")
    parser.add_argument("--repeats", type=int, default=5, help="loads of each rate")
