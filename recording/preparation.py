"""Makes the state that a workload needs for a whole campaign: corpora, databases with their tables."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from feature_store.errors import SourceError
from recording.loopback import free_port
from recording.processes import Guard
from recording.tools import ENVIRONMENT
from recording.workloads.base import Place, RunCommand, StartCommand
from recording.workloads.catalogue import WORKLOADS

# Time for a server to answer, s; a loaded machine starts slowly.
START_TIMEOUT_S = 40.0
# Time for a server to end after SIGTERM, s: a database writes its pages.
STOP_GRACE_S = 8.0


Prepare = Callable[[Place, RunCommand, StartCommand], None]


def prepare_workload(guard: Guard, name: str) -> Path:
    """Makes the state of one workload and returns its folder, inside the guard's.

    Raises:
        SourceError: where one of its commands fails, with the end of its output.
    """
    workload = WORKLOADS[name]
    return prepare_state(guard, name, workload.prepare, workload.is_ready)


def prepare_state(guard: Guard, name: str, prepare: Prepare, is_ready: Callable[[Place], bool]) -> Path:
    """Makes the state of one server by its own `prepare` and returns its folder, inside the guard's.

    Raises:
        SourceError: where one of its commands fails, with the end of its output.
    """
    log = guard.folder / f"prepare-{name}.log"
    run_folder = guard.folder / f"prepare-{name}"
    run_folder.mkdir()
    place = Place(guard.folder / name, run_folder, free_port())

    def failed(what: str) -> SourceError:
        output = log.read_text(errors="replace")[-400:].strip()
        return SourceError(f"preparation failed: {what} ({name}): {output}")

    def run(command: Sequence[str | Path]) -> None:
        status = guard.call(name, command, output=log, environment=ENVIRONMENT)
        if status is None:
            raise failed(f"no end of {command[0]} in time")
        if status != 0:
            raise failed(f"status {status} from {command[0]}")

    def start(command: Sequence[str | Path]) -> Callable[[], None]:
        running = guard.start(name, command, output=log, environment=ENVIRONMENT)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_ready(place):
            if not running.is_alive() or time.monotonic() > deadline:
                raise failed("no answer from the server")
            time.sleep(0.05)
        return lambda: guard.stop([running], grace_s=STOP_GRACE_S)

    prepare(place, run, start)
    shutil.rmtree(run_folder)
    return place.home
