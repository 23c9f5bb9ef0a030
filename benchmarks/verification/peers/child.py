"""One peer on one question in a process of its own. Usage by peer_process.py alone:

    python -m benchmarks.verification.peers.child PEER REQUEST.npz RESULT.json
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.verification.peers.question import Question
from models.verification.network.fully_connected import ReluNetwork


def write_request(path: Path, question: Question, seconds: float, threads: int) -> None:
    """The question and the limits as arrays."""
    layers = {f"weight_{k}": weight for k, weight in enumerate(question.network.weights)}
    layers |= {f"bias_{k}": bias for k, bias in enumerate(question.network.biases)}
    np.savez(path, allow_pickle=False, lower=question.lower, upper=question.upper, feature=question.feature,
             sign=question.sign, tolerance=question.tolerance, seconds=seconds, threads=threads, **layers)


def read_request(path: Path) -> tuple[Question, float, int]:
    """The inverse of write_request."""
    with np.load(path, allow_pickle=False) as stored:
        layers = range(sum(name.startswith("weight_") for name in stored.files))
        network = ReluNetwork(tuple(stored[f"weight_{k}"] for k in layers), tuple(stored[f"bias_{k}"] for k in layers))
        question = Question(network, int(stored["feature"]), int(stored["sign"]), stored["lower"], stored["upper"],
                            float(stored["tolerance"]))
        return question, float(stored["seconds"]), int(stored["threads"])


def main(peer: str, request: Path, result: Path) -> None:
    answer = import_module(f"benchmarks.verification.peers.{peer}").solve(*read_request(request))
    written: dict[str, Any] = {"status": str(answer.status), "reason": answer.reason, "seconds": answer.seconds,
                               "peak_rss_mib": own_peak_mib()}
    if answer.witness is not None:
        written |= {"low": answer.witness.low.tolist(), "high": answer.witness.high.tolist()}
    result.write_text(json.dumps(written, allow_nan=False))


def own_peak_mib() -> float:
    """Largest resident memory so far. Not getrusage's: a child starts with its parent's there."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    return next((float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
