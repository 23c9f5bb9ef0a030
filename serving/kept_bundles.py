"""The copies of signed bundles in the state folder: where users find them, and what stands for a version that is gone.

    <home>/bundles/<task>/<workload>/<version>/

A copy is as good as the registry's: whoever opens one checks its signature, and that its digest is the ledger's.
"""

import shutil
from pathlib import Path

from feature_store.names import inside
from feature_store.whole_files import whole_folder


def kept_bundle(home: Path, task: str, workload: str, version: int) -> Path:
    """The folder of a version's copy, whether it is there or not.

    Raises:
        InputError: a name leads out of the state folder's bundles.
    """
    return inside(home / "bundles", task, workload, str(version))


def keep_bundle(folder: Path, kept: Path) -> None:
    """Copies a signed bundle to where users find it; it appears whole, in the place of an older one.

    Raises:
        OSError: the disk is full or cannot be written.
    """
    with whole_folder(kept) as new:
        shutil.copytree(folder, new, dirs_exist_ok=True)
