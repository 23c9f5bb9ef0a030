"""Runs another verifier on one of our monotonicity questions: in a child process, under limits of time and memory.

    run_peer("scip", Question(network, feature, sign, lower, upper, tolerance), seconds=60.0) -> PeerResult

| peer | what it is | where it comes from |
| --- | --- | --- |
| auto_lirpa | auto_LiRPA's Jacobian bounds, our input splitting on top | a checkout of its source |
| alpha_beta_crown | alpha-beta-CROWN's complete verifier, input splitting | a checkout of its source |
| marabou | Marabou on two copies of the network | maraboupy |
| highs, scip | HiGHS, SCIP on two copies of the network as a mixed-integer program | highspy, pyscipopt |

Peers may live in another interpreter than ours: an `Installation` says where. All get the same number of threads,
the same box, tolerance and limits; each of their counterexamples is replayed in float64.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.harness.limited_process import run_limited
from benchmarks.harness.machine import without_paths
from benchmarks.verification.peers.child import write_request
from benchmarks.verification.peers.question import PeerResult, Question, refuted
from feature_store.errors import InputError, MissingToolError, nearest
from models.verification.verdict import Status

ROOT = Path(__file__).resolve().parents[2]
# What a peer may take beside its solve time: start-up, imports, model building, overshooting its own limit.
START_UP_S = 60.0


@dataclass(frozen=True)
class Peer:
    """What a peer needs.

    Attributes:
        modules: what it imports.
        packages: what brings these modules.
        source: folders of a checkout to import from.
    """

    modules: tuple[str, ...]
    packages: tuple[str, ...]
    source: tuple[str, ...] = ()
    repository: str = ""


_LIRPA = ("appdirs", "graphviz", "packaging", "tqdm")
_CROWN = ("psutil", "sortedcontainers", "sympy")
PEERS = {
    "auto_lirpa": Peer(("auto_LiRPA", *_LIRPA), _LIRPA, (".",), "github.com/Verified-Intelligence/auto_LiRPA"),
    "alpha_beta_crown": Peer(("auto_LiRPA", "complete_verifier_func", "yaml", *_LIRPA, *_CROWN),
                             (*_LIRPA, *_CROWN, "pyyaml"), ("complete_verifier", "auto_LiRPA"),
                             "github.com/Verified-Intelligence/alpha-beta-CROWN with its submodule auto_LiRPA"),
    "marabou": Peer(("maraboupy.MarabouCore",), ("maraboupy",)),
    "highs": Peer(("highspy",), ("highspy",)),
    "scip": Peer(("pyscipopt",), ("pyscipopt",)),
}


@dataclass(frozen=True)
class Installation:
    """Where peers are installed.

    Attributes:
        python: the interpreter that has the peers' packages, numpy and torch.
        sources: checkouts by peer.
    """

    python: Path = Path(sys.executable)
    sources: tuple[tuple[str, Path], ...] = ()

    def path(self, name: str) -> list[str]:
        """Folders on the child's module path, ours first."""
        source = dict(self.sources).get(name)
        return [str(ROOT), *(str((source / folder).resolve()) for folder in PEERS[name].source if source is not None)]


def missing(name: str, installation: Installation = Installation()) -> str | None:
    """One line that says how to get the peer; None: it is there. Raises InputError for an unknown name."""
    if name not in PEERS:
        raise InputError(f"peer must be known, got {name!r}; {nearest(name, PEERS)}")
    peer = PEERS[name]
    source = f", and give the path of a checkout of {peer.repository}" if peer.source else ""
    line = f"peer {name} is not installed; pip install {' '.join(peer.packages)}{source}"
    if peer.source and name not in dict(installation.sources):
        return line
    # looks for the modules without running them: a parent package alone is imported, in case of a dotted name
    check = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(installation.path(name))}
    imported = subprocess.run([installation.python, "-W", "ignore", "-c", check, *peer.modules], env=environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return None if imported.returncode == 0 else line


def run_peer(
    name: str,
    question: Question,
    seconds: float,
    installation: Installation = Installation(),
    threads: int = 2,
    memory_gib: float = 8.0,
    start_up_s: float = START_UP_S,
) -> PeerResult:
    """The peer's answer; never raises for a hard question or a peer that crashes.

    Args:
        seconds: the peer's own limit of solve time; its process ends for good `start_up_s` later.
        memory_gib: the process and its children end when their resident memory exceeds this (an address-space limit
            would stop torch, which reserves far more than it uses).

    Returns:
        setup_seconds: the process's wall time but for the solve time. TIMEOUT also where the process had to be ended;
        ERROR where it crashed or ran out of memory.

    Raises:
        MissingToolError: the peer is not installed; the message is one line with the install command.
    """
    line = missing(name, installation)
    if line is not None:
        raise MissingToolError(line)
    with tempfile.TemporaryDirectory(prefix="assay-peer-") as folder:
        request, result, log = (Path(folder) / file for file in ("request.npz", "result.json", "log.txt"))
        write_request(request, question, seconds, threads)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(installation.path(name))}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
        command = [str(installation.python), "-W", "ignore", "-m", "benchmarks.verification.peers.child", name,
                   str(request), str(result)]
        ended = run_limited(command, Path(folder), environment, log, seconds + start_up_s, memory_gib)
        wall, peak_mib = ended.seconds, ended.peak_rss_mib
        if ended.stopped == "memory":
            return PeerResult(Status.ERROR, f"stopped at its memory limit of {memory_gib:g} GiB", wall,
                              peak_rss_mib=peak_mib)
        if ended.stopped == "time":
            return PeerResult(Status.TIMEOUT, f"stopped after {wall:.1f} s: it did not keep to its limit of "
                              f"{seconds:g} s", wall, peak_rss_mib=peak_mib)
        if not result.is_file():
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            return PeerResult(Status.ERROR, f"its process ended with code {ended.code}: {without_paths(last)}",
                              wall, peak_rss_mib=peak_mib)
        return _answer(question, json.loads(result.read_text()), wall, peak_mib)


def _answer(question: Question, written: dict[str, object], wall: float, peak_mib: float) -> PeerResult:
    """What the child wrote, its counterexample replayed here once more."""
    took = float(str(written["seconds"]))
    answer = PeerResult(Status(str(written["status"])), str(written["reason"]), took, wall - took)
    if answer.status is Status.REFUTED:
        low, high = (np.array(written[end], dtype=np.float64) for end in ("low", "high"))
        answer = refuted(question, low, high, answer.reason, answer.seconds, answer.setup_seconds)
    return replace(answer, peak_rss_mib=max(peak_mib, float(str(written["peak_rss_mib"]))))
