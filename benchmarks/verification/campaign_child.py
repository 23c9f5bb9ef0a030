"""One tool on the questions about one network, in a process of its own. Usage by campaign_process.py alone:

    python -m benchmarks.verification.campaign_child TOOL REQUEST.npz RESULT.json

Two questions about a network of a few neurons come first, so that what a process does once (imports inside of
functions, registries, thread pools) is left out of everybody's seconds. Ours gets all questions at once, a peer
one after the other, until one is refuted or the time is spent. The result is written after every answer.

On one thread seconds are those of the processor: the machine's other work then costs a tool nothing. Tools keep to wall
seconds, and so are given STRETCH times as many; the kernel ends a process that has used up its processor time.
"""

import json
import math
import resource
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.verification.own_verifier import MODES, decide
from benchmarks.verification.peers.question import PeerResult, Question
from feature_store.whole_files import write_file
from models.verification.network.fully_connected import ReluNetwork
from models.verification.verdict import Status

WARM_UP_S = 10.0
STRETCH = 3.0
# Processor seconds beside the solve time: of any tool, and of those that build a program, by a million weights.
PREPARING_S, BUILDING_S = 2.0, {"marabou": 30.0, "highs": 30.0, "scip": 30.0}


def write_request(path: Path, questions: Sequence[Question], seconds: float, threads: int, boxes: int) -> None:
    """Questions about one network, its box and tolerance, and the limits, as arrays."""
    first = questions[0]
    layers = {f"weight_{k}": weight for k, weight in enumerate(first.network.weights)}
    layers |= {f"bias_{k}": bias for k, bias in enumerate(first.network.biases)}
    queries = np.array([(question.feature, question.sign) for question in questions])
    np.savez(path, allow_pickle=False, queries=queries, lower=first.lower, upper=first.upper,
             tolerance=first.tolerance, seconds=seconds, threads=threads, boxes=boxes, **layers)


def read_request(path: Path) -> tuple[list[Question], float, int, int]:
    """The inverse of write_request."""
    with np.load(path, allow_pickle=False) as stored:
        layers = range(sum(name.startswith("weight_") for name in stored.files))
        network = ReluNetwork(tuple(stored[f"weight_{k}"] for k in layers), tuple(stored[f"bias_{k}"] for k in layers))
        questions = [Question(network, int(feature), int(sign), stored["lower"], stored["upper"],
                              float(stored["tolerance"])) for feature, sign in stored["queries"]]
        return questions, float(stored["seconds"]), int(stored["threads"]), int(stored["boxes"])


def own_peak_mib() -> float:
    """Largest resident memory so far. Not getrusage's: a child starts with its parent's there."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def processor_seconds() -> float:
    """Of this process, to the microsecond: under a limit, time.process_time() lags by up to a tick of the kernel."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(tool: str, request: Path, result: Path) -> None:
    questions, seconds, threads, boxes = read_request(request)
    torch.set_num_threads(threads)
    for question in _small_questions():
        _answer(tool, [question], WARM_UP_S, threads, boxes, lambda answers: None)
    if threads == 1:
        weights = sum(weight.size for weight in questions[0].network.weights)
        beside = PREPARING_S + BUILDING_S.get(tool, 0.0) * len(questions) * weights / 1e6
        last = math.ceil(processor_seconds() + seconds + beside)
        resource.setrlimit(resource.RLIMIT_CPU, (last, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the signal at its end would write one

    def write(answers: list[dict[str, Any]]) -> None:
        write_file(result, json.dumps({"answers": answers, "peak_rss_mib": own_peak_mib()}, allow_nan=False))

    _answer(tool, questions, seconds, threads, boxes, write)


def _answer(tool: str, questions: Sequence[Question], seconds: float, threads: int, boxes: int,
            write: Callable[[list[dict[str, Any]]], None]) -> None:
    """Writes the answers so far after each of them; ours is one for all questions."""
    answers: list[dict[str, Any]] = []
    stretch = STRETCH if threads == 1 else 1.0
    if tool in MODES:
        clock = processor_seconds()
        results = decide(tool, questions, seconds * stretch, boxes)
        answer = _plain(results.answer, processor_seconds() - clock, threads)
        share = answer["seconds"] / answer["wall_seconds"]
        answers.append({**answer, "boxes": results.boxes, "search_seconds": results.search_seconds * share})
        write(answers)
        return
    solve = import_module(f"benchmarks.verification.peers.{tool}").solve
    for question in questions:
        left = seconds - sum(answer["seconds"] for answer in answers)
        if left <= 0 or (answers and answers[-1]["status"] == Status.REFUTED):
            return
        clock = processor_seconds()
        try:
            result = solve(question, left * stretch, threads)
        except Exception as error:  # the next question may be one that it can refute
            result = PeerResult(Status.ERROR, f"{type(error).__name__}: {error}".partition("\n")[0])
        answers.append(_plain(result, processor_seconds() - clock, threads))
        write(answers)


def _plain(answer: PeerResult, processor_seconds: float, threads: int) -> dict[str, Any]:
    """JSON of an answer; seconds: of the processor where there is one thread, which waits for nobody there."""
    wall = answer.seconds + answer.setup_seconds
    share = processor_seconds / wall if wall > 0 else 1.0
    plain: dict[str, Any] = {"status": str(answer.status), "reason": answer.reason, "wall_seconds": answer.seconds,
                             "seconds": answer.seconds * min(share, 1.0) if threads == 1 else answer.seconds,
                             "processor_share": share}
    if answer.witness is not None:
        plain |= {"low": answer.witness.low.tolist(), "high": answer.witness.high.tolist(),
                  "feature": answer.witness.feature, "sign": answer.witness.sign}
    return plain


def _small_questions() -> list[Question]:
    """A network that rises in its first input, and whether it rises, and falls."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((8, 2), (8, 8), (1, 8))]
    for weight in (weights[0][:, :1], *weights[1:]):
        np.abs(weight, out=weight)
    network = ReluNetwork(tuple(weights), tuple(rng.normal(size=len(w)).astype(np.float32) for w in weights))
    return [Question(network, 0, sign, np.zeros(2), np.ones(2), 1e-4) for sign in (1, -1)]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
