"""Records one segment: the load, the anomalies, the counters of every control group each second, the traces."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd

from recording.scaling.arrivals import poisson_arrivals
from recording.scaling.generator import LEAD_S, start_generator, write_requests
from recording.scaling.meters import machine_cpu_s
from recording.scaling.open_loop import Job, Target
from recording.scaling.protocols import http_get
from recording.scaling.trial_run import await_end
from systems.microservices.application.anomalies import Anomaly, Step, load_factor, plan_segment, steps
from systems.microservices.application.calls import TIMEOUT_S
from systems.microservices.application.graph import REQUESTS, SERVICES
from systems.microservices.application.raw_segments import Segment
from systems.microservices.application.receiver import TracesFile
from systems.microservices.application.running import Application
from systems.microservices.application.settings import EXPORT_EVERY_S, ApplicationSettings

_CONNECTIONS = 96
_SAMPLE_S = 1.0
# Of the load's steps.
_STEP_S = 0.25
_END_TIMEOUT_S = 30.0


def record_segment(application: Application, traces_file: TracesFile, settings: ApplicationSettings, number: int,
                   folder: Path) -> Segment:
    """Records a segment and leaves what there is of it in `folder`; where its traces come is set to a file there.

    Raises:
        SourceError: a service or the load generator ended by itself.
    """
    planned = plan_segment(settings, number)
    random = np.random.default_rng((settings.seed, number, 1))
    traces = f"{random.integers(1, 2**62):016x}"
    traces_file.file = folder / "traces.otlp"
    job = write_load(application, settings, planned, traces, random, folder)
    start_unix_s = time.time() + job.start_s - time.monotonic()
    used: list[dict[str, object]] = []
    happened = inject(application, settings, planned, job.start_s, folder,
                      lambda: used.extend(_sample(application, job.start_s)))
    time.sleep(3 * EXPORT_EVERY_S)  # until the last spans are here
    pd.DataFrame(used).to_parquet(folder / "used.parquet", index=False)
    for name in ("requests.json", "arrivals.npy", "choices.npy", "job.json"):
        (folder / name).unlink()
    anomalies = tuple(replace(one, start_s=times[0], end_s=times[-1]) if times else one
                      for one, times in zip(planned, happened, strict=True))
    return Segment(number, start_unix_s, anomalies, traces)


def inject(application: Application, settings: ApplicationSettings, planned: list[Anomaly], start_s: float,
           folder: Path, each_second: Callable[[], object]) -> list[list[float]]:
    """Sends the load of a folder (`write_load`) and injects anomalies, until all requests are over.

    Args:
        start_s: of the load, s of CLOCK_MONOTONIC.
        each_second: called from its beginning to the end of the segment.

    Returns:
        When each anomaly's steps were done, s after the start; none where the load has what it is.

    Raises:
        SourceError: a service or the load generator ended by itself.
    """
    generator = start_generator(application.guard, folder, ())
    happened: list[list[float]] = [[] for _ in planned]
    todo: list[Step] = [(at_s, _noting(step, times, start_s)) for anomaly, times in zip(planned, happened, strict=True)
                        for at_s, step in steps(application, settings, anomaly)]
    todo += [(float(at_s), each_second) for at_s in np.arange(0.0, settings.segment_s + _SAMPLE_S / 2, _SAMPLE_S)]
    try:
        for at_s, step in sorted(todo, key=lambda one: one[0]):
            time.sleep(max(0.0, start_s + at_s - time.monotonic()))
            step()
            if generator.process.poll():  # failed: the rest would be for nothing
                break
        await_end(generator, TIMEOUT_S + _END_TIMEOUT_S, folder)
    finally:
        application.guard.stop([generator], grace_s=0)
    return happened


def write_load(application: Application, settings: ApplicationSettings, planned: list[Anomaly], traces: str,
               random: np.random.Generator, folder: Path) -> Job:
    """Every request is one of its own: it carries the id of its trace. names.npy: the type of each.

    Args:
        traces: 16 hexadecimal digits, that the ids of all its traces begin with.
    """
    moments = np.arange(0.0, settings.segment_s, _STEP_S)
    rates = [settings.requests_per_s * load_factor(planned, moment) for moment in moments]
    arrivals = poisson_arrivals(random, rates, [_STEP_S] * len(moments))
    names = random.choice(list(REQUESTS), len(arrivals), p=list(REQUESTS.values()))
    requests = [http_get(f"/{name}", f"traceparent: 00-{traces}{index:016x}-{index:016x}-01")
                for index, name in enumerate(names, 1)]
    np.save(folder / "names.npy", names)
    return write_requests(
        folder, requests, arrivals, np.arange(len(arrivals)), protocol="http", targets=[Target(application.address)],
        connections=_CONNECTIONS, timeout_s=TIMEOUT_S, start_s=time.monotonic() + LEAD_S + 1.0, results="requests.npz")


def _noting(step: Callable[[], object], times: list[float], start_s: float) -> Callable[[], None]:
    """The step, and when it was done."""

    def run() -> None:
        step()
        times.append(time.monotonic() - start_s)

    return run


def _sample(application: Application, start_s: float) -> list[dict[str, object]]:
    application.require_alive()
    at_s, (used_s, _) = time.monotonic() - start_s, machine_cpu_s()
    return [{"at_s": at_s, "machine_cpu_s": used_s, "service": name,
             **asdict(application.containers.used(name))} for name in SERVICES]
