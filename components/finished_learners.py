"""Learners that a run finished before it was killed: the next run with the same code, data, task and seed takes them.

    <state>/learners/<key>/<workload>/

A step's output is known to kfp's cache when the whole step is done; these are kept until then, one by one.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from components.tracking import project_configuration
from components.workload_status import failure
from feature_store.names import inside
from feature_store.whole_files import whole_folder

RESUME_VARIABLE = "ASSAY_RESUME"  # "0": nothing of an earlier run is taken


def data_of(features: Path) -> bytes:
    """What features are made of, for a key: telemetry, and what `featurize` took beside it (a controller's log)."""
    versions = {path.parent.name: json.loads(path.read_bytes())["data_version"]
                for path in features.glob("*/quality.json")}
    return (features / "source.json").read_bytes() + json.dumps(versions, sort_keys=True).encode()


def key_of(*parts: bytes) -> str:
    """Of the same work, and of no other."""
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]


class FinishedLearners:
    """Of one task, seed, code and data."""

    def __init__(self, folder: Path, resume: bool) -> None:
        self._folder, self._resume = folder, resume

    @classmethod
    def of(cls, task_yaml: str, seed: int, code_version: str, features: Path, pretrained: Path) -> "FinishedLearners":
        """Where they are, in the state folder."""
        key = key_of(task_yaml.encode(), str(seed).encode(), code_version.encode(), data_of(features),
                     pretrained.read_bytes())
        return cls(project_configuration().home / "learners" / key, os.environ.get(RESUME_VARIABLE) != "0")

    def restore(self, workloads: Sequence[str], output: Path) -> list[str]:
        """Copies those that are there to <output>/<workload>; returns their names."""
        return [name for name in workloads if self._resume and inside(self._folder, name).is_dir()
                and self._copied(self._folder / name, output / name)]

    def keep(self, learner: Path) -> None:
        """Copies a finished learner; one that failed is tried again by the next run."""
        if failure(learner) is None:
            self._copied(learner, self._folder / learner.name)

    def forget(self, workloads: Sequence[str]) -> None:
        """Takes these away, and the folder where none is left."""
        for name in workloads:
            shutil.rmtree(inside(self._folder, name), ignore_errors=True)
        with suppress(OSError):  # others are left, or another shard has just taken it away
            self._folder.rmdir()

    @staticmethod
    def _copied(source: Path, target: Path) -> bool:
        """Whole or not at all; False where another run took the source away meanwhile."""
        if target.exists():
            return True
        try:
            with whole_folder(target, overwrite=False) as new:
                shutil.copytree(source, new, dirs_exist_ok=True)
            return True
        except OSError:
            return False
