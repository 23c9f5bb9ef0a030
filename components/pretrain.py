"""pretrain: one model over all workloads that have features, from which each workload's learner starts."""

import json
from pathlib import Path

from components.checkpoints import checkpoints
from components.kind import task_and_kind
from components.progress import step


def run_pretrain(task_yaml: str, seed: int, code_version: str, features: Path, output: Path) -> None:
    """Writes what all workloads start from to the file `output`; an empty file where there is nothing to pretrain."""
    with step("pretrain") as progress:
        task, kind = task_and_kind(task_yaml)
        status = json.loads((features / "status.json").read_text())
        usable = [name for name, message in status.items() if not message]
        output.parent.mkdir(parents=True, exist_ok=True)
        with checkpoints("pretrain", task_yaml, int(seed), code_version, features) as kept:
            note = "no workload has features" if not usable else kind.pretrain(
                task, usable, int(seed), features, output, kept, progress)
        progress.note(note)
        if note:
            output.write_bytes(b"")
