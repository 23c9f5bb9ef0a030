"""finetune: each workload of a shard gets its learner. Learners that a killed run had finished are taken over."""

import json
from collections.abc import Callable
from pathlib import Path

from components.checkpoints import checkpoints
from components.finished_learners import FinishedLearners
from components.kind import task_and_kind
from components.progress import step
from components.workload_status import together


def run_finetune(task_yaml: str, workloads: list[str], seed: int, code_version: str, features: Path, pretrained: Path,
                 output: Path) -> None:
    """Writes <workload>/ below `output` for each of the shard's workloads."""
    with step("finetune", workloads) as progress:
        task, kind = task_and_kind(task_yaml)
        kept = FinishedLearners.of(task_yaml, int(seed), code_version, features, pretrained)
        status = json.loads((features / "status.json").read_text())
        resumed = kept.restore([name for name in workloads if not status[name]], output)
        for name in resumed:
            progress.done(name)

        def work(folders: dict[str, Path], finished: Callable[[str, str], None]) -> None:
            made_of = ("finetune", task_yaml, int(seed), code_version, features, pretrained)
            with checkpoints(*made_of, list(folders)) as state:
                kind.finetune(task, list(folders), int(seed), features, pretrained, folders, state, finished, progress)

        def done(name: str) -> None:
            kept.keep(output / name)
            progress.done(name)

        together("finetune", {name: status[name] for name in workloads if name not in resumed}, output, work, done)


def forget_finished(task_yaml: str, workloads: list[str], seed: int, code_version: str, features: Path,
                    pretrained: Path) -> None:
    """The whole shard is done, however many processes it took: from here on kfp's cache has its learners."""
    FinishedLearners.of(task_yaml, int(seed), code_version, features, pretrained).forget(workloads)
