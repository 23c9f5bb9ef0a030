"""Where training keeps what it needs to go on after a kill: a folder in the state folder, one for each very same work.

    <state>/checkpoints/<key>/

The key is made of the task, the seed, the code, the data and what training starts from: nothing of another work is
taken. Two runs of the same work share the folder, and the one that ends first takes it away: whoever writes into it
makes it again.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from components.finished_learners import RESUME_VARIABLE, data_of, key_of
from components.tracking import project_configuration
from feature_store.names import inside


@contextmanager
def checkpoints(step: str, task_yaml: str, seed: int, code_version: str, features: Path,
                pretrained: Path | None = None, workloads: Sequence[str] = ()) -> Iterator[Path]:
    """The folder, which is there; where the block ends well it is removed, or of a shard what its workloads left in it.

    Args:
        step: pretrain or finetune.
        features: the folder of all workloads, which says what data they are made of.
        pretrained: what training starts from; None: nothing.
        workloads: the shard; shards share the folder, in which each workload has its own, which is there too.
    """
    key = key_of(step.encode(), task_yaml.encode(), str(seed).encode(), code_version.encode(), data_of(features),
                 b"" if pretrained is None else pretrained.read_bytes())
    folder = project_configuration().home / "checkpoints" / key
    its_own = [inside(folder, name) for name in workloads] or [folder]
    if os.environ.get(RESUME_VARIABLE) == "0":
        for own in its_own:  # not the folder, in which another shard is at work
            shutil.rmtree(own, ignore_errors=True)
    for own in its_own:  # at once: a shard that ends takes an empty folder away
        own.mkdir(parents=True, exist_ok=True)
    yield folder
    for own in its_own:
        shutil.rmtree(own, ignore_errors=True)
    with suppress(OSError):  # of other shards
        folder.rmdir()
