"""How a step of the fan-out says that a workload is lost, without sinking the others of its shard.

A step of the fan-out reads and writes a folder for each workload of its shard, which appears whole. A step that raises
inside a parallel loop discards its siblings' outputs, so a failed workload travels on as a folder that holds nothing
but failed.json, and every later step passes it on.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from feature_store.names import inside
from models.tasks.attempts import attempt

FAILED = "failed.json"
UNFINISHED = ".unfinished"


def failure(folder: Path) -> dict[str, str] | None:
    """{"step", "message"} if the folder says that its workload failed, else None."""
    path = folder / FAILED
    return json.loads(path.read_text()) if path.is_file() else None


def fail(folder: Path, step: str, message: str) -> None:
    """Makes the folder one that holds nothing but what went wrong in the step."""
    new = _empty(folder)
    (new / FAILED).write_text(json.dumps({"step": step, "message": message}))
    _finish(folder)


def each(step: str, workloads: Sequence[str], before: Path, output: Path, work: Callable[[str, Path], None],
         done: Callable[[str], None]) -> None:
    """Runs `work(workload, folder)` for each workload that no earlier step lost.

    The folder becomes <output>/<workload>.

    Args:
        before: the earlier step's folder of the shard.
        done: called with each workload that is dealt with.
    """
    for name in workloads:
        folder, earlier = inside(output, name), failure(inside(before, name))
        if earlier:
            fail(folder, earlier["step"], earlier["message"])
        elif message := attempt(partial(work, name, _empty(folder))):
            fail(folder, step, message)
        else:
            _finish(folder)
        done(name)
    _tidy(output)


def together(step: str, messages: Mapping[str, str], output: Path,
             work: Callable[[dict[str, Path], Callable[[str, str], None]], None], done: Callable[[str], None]) -> None:
    """Runs `work(folders, finished)` once for all workloads without a message; each becomes <output>/<workload>.

    Args:
        messages: workload -> "" or why it is lost already.
        work: calls `finished(workload, message)` with each workload whose folder is whole, or why it failed. Those that
            it has not named when it ends or raises have failed.
        done: called with each workload that is dealt with.
    """
    left = {name: inside(output, name) for name, message in messages.items() if not message}

    def finished(name: str, message: str) -> None:
        if name not in left:
            raise ValueError(f"{step}: expected finished() once for each workload of the shard, got it for {name!r}, "
                             + ("a second time" if name in messages else "which is not in it"))
        fail(left[name], step, message) if message else _finish(left[name])
        del left[name]
        done(name)

    for name, message in messages.items():
        if message:
            fail(inside(output, name), step, message)
            done(name)
    if left:
        said = attempt(lambda: work({name: _empty(folder) for name, folder in left.items()}, finished))
        for name in list(left):
            finished(name, said or f"{step} ended without a result for this workload")
    _tidy(output)


def _empty(folder: Path) -> Path:
    """Where a workload's folder is made."""
    new = folder.parent / UNFINISHED / folder.name
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    return new


def _tidy(output: Path) -> None:
    """The folder is there, also of no workload, and holds nothing but workloads."""
    output.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(output / UNFINISHED, ignore_errors=True)


def _finish(folder: Path) -> None:
    """The folder appears whole; whatever a killed attempt left of it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder.parent / UNFINISHED / folder.name).rename(folder)
