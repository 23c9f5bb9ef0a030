"""How a step of the fan-out says that a workload is lost, without sinking the others of its shard.

A step of the fan-out reads and writes a folder for each workload of its shard. A step that raises inside a parallel
loop discards its siblings' outputs, so a failed workload travels on as a folder that holds nothing but failed.json,
and every later step passes it on.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from feature_store.names import inside
from models.tasks.attempts import attempt

FAILED = "failed.json"


def failure(folder: Path) -> dict[str, str] | None:
    """{"step", "message"} if the folder says that its workload failed, else None."""
    path = folder / FAILED
    return json.loads(path.read_text()) if path.is_file() else None


def fail(folder: Path, step: str, message: str) -> None:
    """Makes the folder one that holds nothing but what went wrong in the step."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / FAILED).write_text(json.dumps({"step": step, "message": message}))


def each(step: str, workloads: Sequence[str], before: Path, output: Path, work: Callable[[str, Path], None],
         done: Callable[[str], None]) -> None:
    """Runs `work(workload, <output>/<workload>)` for each workload that no earlier step lost.

    Args:
        before: the earlier step's folder of the shard.
        output: this step's; whatever a killed attempt left in it is removed.
        done: called with each workload that is dealt with.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    for name in workloads:
        folder, earlier = inside(output, name), failure(inside(before, name))
        if earlier:
            fail(folder, earlier["step"], earlier["message"])
        else:
            folder.mkdir()
            if message := attempt(partial(work, name, folder)):
                fail(folder, step, message)
        done(name)


def together(step: str, workloads: Sequence[str], messages: Mapping[str, str], output: Path,
             work: Callable[[list[str], dict[str, Path]], Mapping[str, str]], done: Callable[[str], None]) -> None:
    """Runs `work` once for all workloads that have no message yet, with their empty folders below `output`.

    Args:
        messages: workload -> "" or why it is lost already.
        work: returns workload -> "" or why it failed; where it raises, all of them did.
        done: called with each workload that is dealt with.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    status = {name: messages[name] for name in workloads}
    left = [name for name in workloads if not status[name]]
    folders = {name: inside(output, name) for name in left}
    for folder in folders.values():
        folder.mkdir()

    def run() -> None:
        status.update(work(left, folders))

    if left and (message := attempt(run)):
        status.update({name: status[name] or message for name in left})
    for name in workloads:
        if status[name]:
            fail(inside(output, name), step, status[name])
        done(name)
