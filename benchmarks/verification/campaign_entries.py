"""The campaign's result file: settings, machine, one entry for each network and tool; several writers at a time.

An entry is of the same measurement if weights, question and code are the same: `digest` covers the first two, `code`
the third. Entries of other weights or code stand until they are made again.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.result_file import one_writer, read_results, write_results
from benchmarks.verification.networks import weights_digest
from benchmarks.verification.own_verifier import OUR_TOOLS
from benchmarks.verification.peers.question import Question
from feature_store.errors import InputError

FORMAT = "assay-verification-campaign/1"
Entry = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What all entries of a file share: seconds of solve time, threads, GiB of resident memory."""

    limit_s: float
    threads: int
    memory_gib: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be positive, got {value!r}")


def begin(path: Path, settings: Settings) -> None:
    """Makes the file, or notes the machine in one that is there.

    Raises:
        InputError: the file is of another format, or of other settings or another processor: they do not compare.
    """
    with one_writer(path):
        before, machine = read_results(path), describe_machine()
        if before is not None:
            if before.get("format") != FORMAT:
                raise InputError(f"--output must be of format {FORMAT}, got {before.get('format')!r} ({path.name})")
            if before["settings"] != asdict(settings):
                raise InputError(f"--output must be of the same limits, {asdict(settings)}, got {before['settings']}; "
                                 f"give another file ({path.name})")
            if before["machine"]["cpu_model"] != machine["cpu_model"]:
                raise InputError(f"--output must be of this machine's processor, {machine['cpu_model']}, got "
                                 f"{before['machine']['cpu_model']}; give another file ({path.name})")
        write_results(path, {"entries": [], **(before or {}), "format": FORMAT, "settings": asdict(settings),
                             "machine": machine})


def keep(path: Path, entry: Entry) -> None:
    """Writes an entry in place of the one of the same network and tool."""
    with one_writer(path):
        results = read_results(path) or {}
        results["entries"] = [one for one in results["entries"]
                              if (one["network"], one["tool"]) != (entry["network"], entry["tool"])] + [entry]
        write_results(path, results)


def keep_part(path: Path, name: str, part: Any) -> None:
    """Writes a part of the file beside the entries."""
    with one_writer(path):
        write_results(path, {**(read_results(path) or {}), name: part})


def instance_digest(questions: Sequence[Question]) -> str:
    """The first 16 hex digits for a network's weights and what is asked about it."""
    first = questions[0]
    text = [weights_digest(first.network), first.lower.tolist(), first.upper.tolist(), first.tolerance,
            [(question.feature, question.sign) for question in questions]]
    return hashlib.sha256(repr(text).encode()).hexdigest()[:16]


def tool_code(tool: str) -> str:
    """Digest of the code that a tool's verdict and seconds come from, as far as it is in this repository."""
    if tool in OUR_TOOLS:
        return code_digest("models.verification.verify", "models.")
    return code_digest(f"benchmarks.verification.peers.{tool}", "benchmarks.verification.peers")
