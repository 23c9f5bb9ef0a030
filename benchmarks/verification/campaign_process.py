"""Asks one tool about one network, in a child process under limits of time and memory; ours and peers alike.

    ask("scip", questions, Limits(seconds=120.0), installation) -> Answer
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.limited_process import Ended, run_limited
from benchmarks.harness.machine import without_paths
from benchmarks.verification.campaign_child import STRETCH, write_request
from benchmarks.verification.own_verifier import MODES
from benchmarks.verification.peers.installation import ROOT, Installation
from benchmarks.verification.peers.question import Question, refuted
from models.verification.verdict import Status

DECIDED = (Status.PROVED, Status.REFUTED)
# Beside the solve time: start, imports, warm-up, programs of millions of terms, a last round that overshoots the limit.
START_UP_S = 120.0


@dataclass(frozen=True)
class Limits:
    """seconds of solve time for all questions, see campaign_child.py; threads; memory_gib of resident memory; boxes
    bounded (ours)."""

    seconds: float
    threads: int = 1
    memory_gib: float = 8.0
    boxes: int = 10_000_000


@dataclass(frozen=True)
class Answer:
    """What a tool says about a network.

    Attributes:
        seconds: solve time, start-up and warm-up left out; of the processor where there is one thread.
        wall_seconds: the same by the clock.
        setup_seconds: all else that its process took, by the clock.
        processor_share: processor time by wall time while it worked (NaN: it did not say).
        boxes, search_seconds: see own_verifier.py.
    """

    status: Status
    reason: str
    seconds: float
    wall_seconds: float
    setup_seconds: float = 0.0
    peak_rss_mib: float = 0.0
    processor_share: float = float("nan")
    boxes: int = 0
    search_seconds: float = 0.0


def ask(
    tool: str, questions: Sequence[Question], limits: Limits, installation: Installation = Installation(),
    start_up_s: float = START_UP_S,
) -> Answer:
    """The tool's answer to all questions (of one network, box and tolerance); never raises for a hard one.

    Returns:
        REFUTED with a witness that replays in float64 here, whoever found it; TIMEOUT also for an answer that came
        after the limit and for a process that had to be ended; ERROR for a crash or too much memory.
    """
    with tempfile.TemporaryDirectory(prefix="assay-campaign-") as folder:
        request, result, log = (Path(folder) / file for file in ("request.npz", "result.json", "log.txt"))
        write_request(request, questions, limits.seconds, limits.threads, limits.boxes)
        is_own = tool in MODES
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT)] if is_own else installation.path(tool))}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
                                     str(limits.threads))
        python = sys.executable if is_own else str(installation.python)
        deadline = limits.seconds * (STRETCH if limits.threads == 1 else 1.0) + start_up_s
        ended = run_limited([python, "-W", "ignore", "-m", "benchmarks.verification.campaign_child", tool, str(request),
                             str(result)], Path(folder), environment, log, deadline, limits.memory_gib)
        written: dict[str, Any] = {"answers": [], "peak_rss_mib": 0.0}
        if result.is_file():
            written = json.loads(result.read_text())
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
    answers = [_replayed(answer, questions) for answer in written["answers"]]
    return _judged(answers, 1 if is_own else len(questions), limits, replace(
        ended, peak_rss_mib=max(ended.peak_rss_mib, written["peak_rss_mib"])), last)


def _judged(answers: Sequence[dict[str, Any]], questions: int, limits: Limits, ended: Ended, last: str) -> Answer:
    """The answer of a process that has ended; last: the last line of its standard error."""
    seconds, wall = (sum(answer[key] for answer in answers) for key in ("seconds", "wall_seconds"))
    status, reason = _together(answers, questions)
    if status in DECIDED and seconds > limits.seconds:
        status, reason = Status.TIMEOUT, f"{status} after its limit of {limits.seconds:g} s: {reason}"
    elif status not in DECIDED and (ended.stopped or ended.code):
        status, reason = _ended(ended, limits, last)
        if status is Status.TIMEOUT:
            seconds, wall = max(seconds, limits.seconds), ended.seconds
    return Answer(status, without_paths(reason), seconds, wall, ended.seconds - wall, ended.peak_rss_mib,
                  min((answer["processor_share"] for answer in answers), default=float("nan")),
                  sum(answer.get("boxes", 0) for answer in answers),
                  sum(answer.get("search_seconds", 0.0) for answer in answers))


def _ended(ended: Ended, limits: Limits, last: str) -> tuple[Status, str]:
    """Why a process that did not decide ended as it did."""
    if ended.stopped == "memory":
        return Status.ERROR, f"stopped at its memory limit of {limits.memory_gib:g} GiB"
    if ended.code == -signal.SIGXCPU:
        return Status.TIMEOUT, f"stopped: its {limits.seconds:g} s of the processor are spent"
    if ended.stopped == "time":
        return Status.TIMEOUT, (f"stopped after {ended.seconds:.1f} s: it did not keep to its limit of "
                                f"{limits.seconds:g} s")
    return Status.ERROR, f"its process ended with code {ended.code}: {last}"


def _replayed(answer: dict[str, Any], questions: Sequence[Question]) -> dict[str, Any]:
    """The answer, UNKNOWN where its counterexample does not replay in float64."""
    if answer["status"] != Status.REFUTED:
        return answer
    low, high = (np.array(answer[end], dtype=np.float64) for end in ("low", "high"))
    (question,) = (one for one in questions if (one.feature, one.sign) == (answer["feature"], answer["sign"]))
    replay = refuted(question, low, high, answer["reason"], 0.0, 0.0)
    return {**answer, "status": str(replay.status), "reason": replay.reason}


def _together(answers: Sequence[dict[str, Any]], questions: int) -> tuple[Status, str]:
    """One refutation decides, or else the first question that was not proved."""
    wrong = [answer for answer in answers if answer["status"] == Status.REFUTED]
    unproved = [answer for answer in answers if answer["status"] != Status.PROVED]
    if wrong or unproved:
        return Status((wrong or unproved)[0]["status"]), (wrong or unproved)[0]["reason"]
    if len(answers) < questions:
        return Status.TIMEOUT, f"{len(answers)} of {questions} features proved when its time was spent"
    return Status.PROVED, "; ".join(dict.fromkeys(answer["reason"] for answer in answers))
