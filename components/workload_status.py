"""How a step of the fan-out says that its workload is lost, without sinking the others.

A step that raises inside a parallel loop discards its siblings' outputs, so a failed workload travels on
as a folder that holds nothing but failed.json, and every later step passes it on.
"""

import json
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

from feature_store.errors import AssayError

FAILED = "failed.json"


def failure(folder: Path) -> dict[str, str] | None:
    """{"step", "message"} if the folder says that its workload failed, else None."""
    path = folder / FAILED
    return json.loads(path.read_text()) if path.is_file() else None


def attempt(work: Callable[[], None]) -> str:
    """Why `work` raised, "" where it did not: one workload's error must not sink the others. The log keeps defects."""
    try:
        work()
    except AssayError as error:
        return str(error) or type(error).__name__
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def guarded(step: str, before: Path | None, output: Path, work: Callable[[Path], None]) -> None:
    """Runs `work(output)` unless an earlier step failed; an error becomes a folder that says so.

    Args:
        before: the earlier step's folder, None for the first.
        output: this step's folder, made here; whatever a failed attempt left in it is removed.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    earlier = failure(before) if before else None
    if earlier:
        (output / FAILED).write_text(json.dumps(earlier))
        return
    message = attempt(lambda: work(output))
    if message:
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        (output / FAILED).write_text(json.dumps({"step": step, "message": message}))
