"""Whether a scheduled run has anything to do: which data and code the last registered run of a task has seen.

A scheduled run asks `is_new_data` after ingestion and, where the answer is no, says so and registers nothing; it calls
`record_data_version` only once its results are registered, so that a run that failed is tried again on the same data.
The state is one small JSON file in the state folder:
  {"format": "assay-freshness/1", "tasks": {task: {"data_version": ..., "code_version": ...}}}
A file that cannot be read is no reason to skip a retraining: it counts as new data, with a warning.
"""

import json
import logging
from pathlib import Path

from feature_store.errors import InputError
from feature_store.file_lock import file_lock
from feature_store.whole_files import write_file

STATE_NAME = "freshness.json"
_FORMAT = "assay-freshness/1"
_LOGGER = logging.getLogger(__name__)


def is_new_data(state_path: Path, task: str, data_version: str, code_version: str) -> bool:
    """Whether the last recorded run of `task` saw other data, or was made by other code.

    Args:
        state_path: the state file, usually `<state folder>/freshness.json`; may be missing.
        task: name of the task.
        data_version: content hash of the ingested telemetry.
        code_version: version of the code; new code retrains on the same data.

    Returns:
        True also where nothing was recorded, or where the file is torn (a warning is logged).
    """
    return _read_tasks(state_path).get(task) != {"data_version": data_version, "code_version": code_version}


def record_data_version(state_path: Path, task: str, data_version: str, code_version: str) -> None:
    """Remembers what a finished run of `task` has seen; the other tasks' entries stay.

    Raises:
        InputError: the disk is full or the folder cannot be written; the old state stays.
    """
    try:
        state_path.parent.mkdir(parents=True, exist_ok=True)
        # Two runs of different tasks that end at once must not lose each other's entry.
        with file_lock(state_path.with_name(f"{state_path.name}.lock")):
            tasks = {**_read_tasks(state_path), task: {"data_version": data_version, "code_version": code_version}}
            write_file(state_path, json.dumps({"format": _FORMAT, "tasks": tasks}, indent=2, sort_keys=True) + "\n")
    except OSError as error:
        raise InputError(f"state of schedules: expected a file that can be written, got {error.strerror} "
                         f"({state_path}); what the run registered stands, but the next scheduled run will repeat "
                         "it") from error


def _read_tasks(state_path: Path) -> dict[str, object]:
    """The recorded tasks, or none where the file is missing or unusable."""
    try:
        state = json.loads(state_path.read_text(encoding="utf-8"))
        if state["format"] != _FORMAT:
            raise ValueError(f"expected format {_FORMAT}, got {state['format']!r}")
        return dict(state["tasks"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        _LOGGER.warning("state of schedules is unusable, so all data counts as new (%s): %s", state_path, error)
        return {}
