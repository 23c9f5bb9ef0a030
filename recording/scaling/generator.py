"""Starts the load generator for a deployment that runs."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import recording
from recording.processes import Guard, Running
from recording.scaling.arrivals import poisson_arrivals
from recording.scaling.live_deployment import LiveDeployment
from recording.scaling.open_loop import Job, Target
from recording.tools import ENVIRONMENT

# Time for the generator to start and connect, s.
LEAD_S = 1.0
# Different requests that a load draws from.
_REQUESTS = 1000
_REAL_TIME = ("chrt", "--fifo", "10")


def real_time_prefix() -> tuple[str, ...]:
    """What lets the generator run before everything else, where this host allows it."""
    allowed = subprocess.run([*_REAL_TIME, "true"], capture_output=True, check=False).returncode == 0
    return _REAL_TIME if allowed else ()


def write_job(live: LiveDeployment, rates: Sequence[float], seconds: Sequence[float], seed: int, timeout_s: float,
              folder: Path, *, more: int = 0, counters: str = "", lead_s: float = LEAD_S, proxy: str = "",
              connections: int = 0) -> Job:
    """Poisson arrivals at a rate that changes in steps, for all instances that run.

    Args:
        live: the running deployment.
        rates: requests a second in each segment [segments].
        seconds: length of each, s [segments].
        seed: of arrivals and requests.
        timeout_s: a client gives up after this time, s.
        folder: for the generator's files.
        more: instances that start later; each has the file `ready` in the folder for its address.
        counters: see `Job`.
        lead_s: until the first segment begins, s.
        proxy: address of what stands in front of all instances; "": nothing does.
        connections: to each target; 0: as many as the server's instances have.
    """
    random = np.random.default_rng(seed)
    requests = live.server.requests(random, _REQUESTS)
    arrivals = poisson_arrivals(random, rates, seconds)
    choices = random.integers(0, _REQUESTS, len(arrivals))
    targets = [Target(proxy)] if proxy else [Target(live.server.address(one.place)) for one in live.instances]
    for _ in range(more):
        ready = folder / "ready"
        ready.unlink(missing_ok=True)
        targets.append(Target("", str(ready)))
    return write_requests(
        folder, requests, arrivals, choices, protocol=live.server.protocol, targets=targets,
        connections=connections or live.server.connections, timeout_s=timeout_s, start_s=time.monotonic() + lead_s,
        counters=counters)


def write_requests(folder: Path, requests: Sequence[bytes], arrivals: np.ndarray, choices: np.ndarray, *, protocol: str,
                   targets: Sequence[Target], connections: int, timeout_s: float, start_s: float,
                   results: str = "results.npz", counters: str = "") -> Job:
    """Writes a job and its files to `folder`, where results of an earlier one are removed.

    Args:
        folder: for the generator's files.
        requests: to choose from.
        arrivals: when each request is due, s after the start, ascending [requests].
        choices: which of the requests it is [requests].
        results: name of the file in the folder for what became of them.

    The others: see `Job`.
    """
    job = Job(protocol, tuple(targets), connections, timeout_s, str(folder / "requests.json"),
              str(folder / "arrivals.npy"), str(folder / "choices.npy"), start_s, str(folder / results), counters)
    Path(job.requests).write_text(json.dumps([request.decode("latin-1") for request in requests]))
    np.save(job.arrivals, arrivals)
    np.save(job.choices, choices)
    Path(job.results).unlink(missing_ok=True)
    job.write(folder / "job.json")
    return job


def start_generator(guard: Guard, folder: Path, processors: Sequence[int]) -> Running:
    """Runs the job in `folder`, on the last of the processors; on any where there are none."""
    # On the last processor, which single instances keep off.
    pin = ("taskset", "--cpu-list", str(processors[-1])) if processors else ()
    return guard.start(
        "load generator",
        [*real_time_prefix(), *pin, sys.executable, "-m", "recording.scaling.open_loop", folder / "job.json"],
        output=folder / "generator.log", environment=python_environment())


def python_environment() -> dict[str, str]:
    """For a program of this project that is started with this interpreter."""
    source = str(Path(recording.__file__).parents[1])
    return {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])}
