"""Other verifiers on our monotonicity questions, and where they are installed (campaign_process.py runs them).

| peer | what it is | where it comes from |
| --- | --- | --- |
| auto_lirpa | auto_LiRPA's Jacobian bounds, our input splitting on top | a checkout of its source |
| alpha_beta_crown | alpha-beta-CROWN's complete verifier, input splitting | a checkout of its source |
| marabou | Marabou on two copies of the network | maraboupy |
| highs, scip | HiGHS, SCIP on two copies of the network as a mixed-integer program | highspy, pyscipopt |

Peers may live in another interpreter than ours: an `Installation` says where. All get the same number of threads,
the same box, tolerance and limits; each of their counterexamples is replayed in float64.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from feature_store.errors import InputError, nearest

ROOT = Path(__file__).resolve().parents[3]


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
