"""Runs one trial on a live deployment: the load generator, the counters, the resizes."""

import contextlib
import math
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from feature_store.errors import SourceError
from recording.processes import Running
from recording.scaling.generator import start_generator, write_job
from recording.scaling.live_deployment import LiveDeployment
from recording.scaling.meters import Sample
from recording.scaling.open_loop import Job, Result, read_result
from recording.scaling.plan import Change, Trial
from recording.scaling.raw_trials import Event

SAMPLE_S = 0.5
# Time for the generator to write its results, s.
_END_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Attempt:
    """A trial as it was recorded once.

    Attributes:
        start_s: its start, s of CLOCK_MONOTONIC.
        result: what became of the requests.
        samples: counters, the first at the start and the last at or after the end.
        events: resizes.
    """

    start_s: float
    result: Result
    samples: list[Sample]
    events: tuple[Event, ...]


def run_trial(live: LiveDeployment, trial: Trial, demand_s: float, timeout_s: float) -> Attempt:
    """Puts the deployment under the trial's load.

    Args:
        live: the running deployment.
        trial: course of load and resizes.
        demand_s: CPU seconds of a request, which turns utilisation into requests per second.
        timeout_s: a client gives up after this time, s.

    Raises:
        SourceError: the server or the generator ended by itself.
    """
    folder = live.folder / "trial"
    folder.mkdir(exist_ok=True)
    job = _write_job(live, trial, demand_s, timeout_s, folder)
    generator = start_generator(live.stage.guard, folder, live.stage.processors)
    try:
        samples, events = _watch(live, trial, job, generator)
        await_end(generator, timeout_s + _END_TIMEOUT_S, folder)
        return Attempt(job.start_s, read_result(Path(job.results)), samples, events)
    finally:
        live.stage.guard.stop([generator], grace_s=0)


def _write_job(live: LiveDeployment, trial: Trial, demand_s: float, timeout_s: float, folder: Path) -> Job:
    rates = [share * live.deployment.cores / demand_s for share, _ in trial.load]
    later = sum(change.what == "instance" for change in trial.changes)
    return write_job(live, rates, [seconds for _, seconds in trial.load], trial.seed, timeout_s, folder, more=later)


def _watch(live: LiveDeployment, trial: Trial, job: Job, generator: Running) -> tuple[list[Sample], tuple[Event, ...]]:
    """Samples the counters at regular times and resizes when it is due."""
    moments = [job.start_s + SAMPLE_S * index for index in range(math.ceil(trial.seconds / SAMPLE_S) + 1)]
    due: list[tuple[float, Change | None]] = [(moment, None) for moment in moments]
    due += [(job.start_s + change.at_s, change) for change in trial.changes]
    samples, resizer = [], _Resizer(live, job)
    with _real_time():
        for moment, change in sorted(due, key=lambda one: one[0]):
            time.sleep(max(0.0, moment - time.monotonic()))
            if change is None:
                samples.append(live.meter.sample(generator.session))
                live.require_alive()
            else:
                resizer.begin(change)
    return samples, resizer.finish()


@contextlib.contextmanager
def _real_time() -> Iterator[None]:
    """Lets this thread run before all but the load generator, where this host allows it: samples come in time."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        # What it starts meanwhile, an instance, does not inherit the priority.
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(5))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        # who may not raise priorities may not clear the flag either (sched(7))
        os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, parameters)


class _Resizer:
    """Carries out resizes, slow ones beside the sampling."""

    def __init__(self, live: LiveDeployment, job: Job) -> None:
        self._live, self._job = live, job
        self._events: list[Event] = []
        self._errors: list[Exception] = []
        self._threads: list[threading.Thread] = []

    def begin(self, change: Change) -> None:
        """Starts a resize."""
        if change.what == "quota":
            self._timed(change)
        else:
            self._threads.append(threading.Thread(target=self._timed, args=(change,), daemon=True))
            self._threads[-1].start()

    def finish(self) -> tuple[Event, ...]:
        """Waits for all resizes; raises what one of them raised."""
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return tuple(self._events)

    def _timed(self, change: Change) -> None:
        begun = time.monotonic()
        try:
            self._carry_out(change)
        except Exception as error:
            self._errors.append(error)
        took_s = time.monotonic() - begun
        self._events.append(Event(change.what, change.value, begun - self._job.start_s, took_s))

    def _carry_out(self, change: Change) -> None:
        match change.what:
            case "quota":
                self._live.set_quota(change.value)
            case "workers":
                self._live.set_workers(int(change.value))
            case _:
                instance = self._live.start_instance()
                self._live.await_answer(instance)
                ready = Path(str(self._job.targets[-1].ready_file))
                new = ready.with_name("address")
                new.write_text(self._live.server.address(instance.place))
                new.rename(ready)


def await_end(generator: Running, timeout_s: float, folder: Path) -> None:
    """Waits until a load generator has written its results. Raises SourceError where it does not, or fails."""
    try:
        status: int | str = generator.process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        status = f"none after {timeout_s:g} s"
    if status != 0:
        output = (folder / "generator.log").read_text(errors="replace")[-300:]
        raise SourceError(f"load generator must end with status 0, got {status}: {output}")


def undo_changes(live: LiveDeployment, trial: Trial) -> None:
    """Brings the deployment back to what it was before the trial's resizes."""
    made = {change.what for change in trial.changes}
    if "quota" in made:
        live.set_quota(live.deployment.quota_cores)
    if "workers" in made:
        live.set_workers(live.deployment.workers)
    if "instance" in made:
        live.stop_instance()
