"""Whether a scheduled run has anything to do: what the last finished run of the same command was made of.

A scheduled run asks `is_new` before it trains and, where the answer is no, says so and registers nothing; it calls
`record` only once its results are registered, so that a run that failed is tried again on the same data. The state is
one small JSON file in the state folder:
  {"format": "assay-freshness/2", "runs": {"assay run --telemetry ... --seed 0": "<digest>"}}
A file that cannot be read, or of an earlier format, is no reason to skip a retraining: all data counts as new,
with a warning.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from feature_store.errors import InputError
from feature_store.file_lock import file_lock
from feature_store.whole_files import write_file
from models.gates import Gate
from pipelines.request import TrainRequest

STATE_NAME = "freshness.json"
_FORMAT = "assay-freshness/2"
_LOGGER = logging.getLogger(__name__)


def digest_of(request: TrainRequest, gates: Sequence[Gate]) -> str:
    """Of what a run is made of: data, code, task (with method and budget), mapping, seed, workloads, gates.

    Args:
        gates: of the request's task.
    """
    parts = [request.data_version, request.code_version, request.task_yaml, request.mapping_yaml, request.seed,
             request.workloads, [asdict(gate) for gate in gates]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def is_new(state_path: Path, command: str, digest: str) -> bool:
    """Whether the last recorded run of `command` was made of anything else.

    Args:
        state_path: the state file, usually `<state folder>/freshness.json`; may be missing.
        command: what a user types for the run (`TrainRequest.command`), so that two schedules do not take turns.
        digest: see `digest_of`.

    Returns:
        True also where nothing was recorded, or where the file is torn or of an earlier format (a warning is logged).
    """
    return _read_runs(state_path).get(command) != digest


def record(state_path: Path, command: str, digest: str) -> None:
    """Remembers what a finished run of `command` was made of; the entries of other commands stay.

    Raises:
        InputError: the disk is full or the folder cannot be written; the old state stays.
    """
    try:
        state_path.parent.mkdir(parents=True, exist_ok=True)
        # Two runs of different commands that end at once must not lose each other's entry.
        with file_lock(state_path.with_name(f"{state_path.name}.lock")):
            runs = {**_read_runs(state_path), command: digest}
            write_file(state_path, json.dumps({"format": _FORMAT, "runs": runs}, indent=2, sort_keys=True) + "\n")
    except OSError as error:
        raise InputError(f"state of schedules: expected a file that can be written, got {error.strerror} "
                         f"({state_path}); what the run registered stands, but the next scheduled run will repeat "
                         "it") from error


def _read_runs(state_path: Path) -> dict[str, object]:
    """The recorded runs, or none where the file is missing or unusable."""
    try:
        state = json.loads(state_path.read_text(encoding="utf-8"))
        if state["format"] != _FORMAT:
            raise ValueError(f"expected format {_FORMAT}, got {state['format']!r}")
        return dict(state["runs"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        _LOGGER.warning("state of schedules is unusable, so all data counts as new (%s): %s", state_path, error)
        return {}
