"""Result files: JSON, written whole or not at all, so that a killed benchmark keeps what it had measured."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

from feature_store.whole_files import write_file

RESULTS = Path(__file__).resolve().parents[1] / "results"


def read_results(path: Path) -> dict[str, Any] | None:
    """The content of a result file; None where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_results(path: Path, content: dict[str, Any]) -> None:
    """Writes the whole file; makes its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


@contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Waits for whoever reads and writes the file now; the lock is on its folder, in which nothing is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        lock_descriptor(handle)
        yield
    finally:
        os.close(handle)
