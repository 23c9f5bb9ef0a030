"""pretrain: one model over all workloads that have features, from which each workload's learner starts."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from components.checkpoints import checkpoints
from components.finished_learners import RESUME_VARIABLE
from components.kind import task_and_kind
from components.progress import step
from components.tracking import project_configuration
from feature_store.whole_files import write_file
from models.tasks.kind import PretrainsWithoutTelemetry


def run_pretrain(task_yaml: str, seed: int, code_version: str, features: Path, output: Path) -> None:
    """Writes what all workloads start from to the file `output`; an empty file where there is nothing to pretrain.

    Where telemetry plays no part in it, what an earlier run made of the same task, seed and code is taken.
    """
    with step("pretrain") as progress:
        task, kind = task_and_kind(task_yaml)
        status = json.loads((features / "status.json").read_text())
        usable = [name for name, message in status.items() if not message]
        output.parent.mkdir(parents=True, exist_ok=True)
        kept = _kept(kind, task, int(seed), code_version)
        if usable and kept is not None and kept.is_file() and os.environ.get(RESUME_VARIABLE) != "0":
            output.write_bytes(kept.read_bytes())
            progress.note("as an earlier run made it of the same task, seed and code")
            return
        with checkpoints("pretrain", task_yaml, int(seed), code_version, features) as begun:
            note = "no workload has features" if not usable else kind.pretrain(
                task, usable, int(seed), features, output, begun, progress)
        progress.note(note)
        if note:
            output.write_bytes(b"")
        elif kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_file(kept, output.read_bytes())


def _kept(kind: Any, task: Any, seed: int, code_version: str) -> Path | None:
    """The file of the very same pretraining in the state folder; None: telemetry has a part in it."""
    if not isinstance(kind, PretrainsWithoutTelemetry):
        return None
    parts = json.dumps([kind.pretrains_from(task), seed, code_version])
    return project_configuration().home / "pretrained" / hashlib.sha256(parts.encode()).hexdigest()[:32]
