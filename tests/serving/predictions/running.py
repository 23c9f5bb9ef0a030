"""A state folder whose ledger moves, and `assay serve` as a process of its own."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.bundle import check_bundle
from serving.kept_bundles import kept_bundle
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.moves import Move, Standing
from serving.signature import sign_folder
from serving.state_folder import StateFolder, state_folder
from tests.serving.conftest import ROOT, write_bundle

INSIDE = {"psi_cpu_some": 0.3, "psi_io_full": 0.2, "connections": 8.0}
LIGHT = "from pipelines.controller_command_line import main; main()"
WHOLE = "from pipelines.command_line import main; main()"


class Place:
    """A state folder of the task performance, and the private key that signed what is in it."""

    def __init__(self, folder: Path) -> None:
        self.state: StateFolder = state_folder(folder / "state")
        self.private = folder / "private" / "assay.key"
        for path in (self.private, self.state.public_key_path, self.state.ledger_path):
            path.parent.mkdir(parents=True, exist_ok=True)
        create_key_pair(self.private, self.state.public_key_path)
        self._ledger = Ledger(self.state.ledger_path, self.state.public_key_path, self.private)

    def kept(self, version: int, workload: str = "redis") -> Path:
        return kept_bundle(self.state.home, "performance", workload, version)

    def promote(self, version: int, workload: str = "redis", keep: bool = True) -> str:
        """A new champion, whose answers are those of version 1 times its own; its digest. keep: where it belongs."""
        made = signed_bundle(self.kept(version, workload), self.private, workload, 10.0 * version)
        sha256 = check_bundle(made, self.state.public_key_path).sha256
        if not keep:
            made.rename(made.with_name(f"away-{version}"))
        for action in ("register", "champion"):
            self.move(action, version, workload, sha256)
        return sha256

    def move(self, action: Any, version: int, workload: str = "redis", sha256: str = "") -> None:
        standing = self._ledger.standings().get(("performance", workload), Standing())
        self._ledger.append([Move(action, "2026-11-23T00:00:00+00:00", "performance", workload,
                                  f"assay.performance.{workload}", version, standing.champion,
                                  sha256 or standing.registered[version], gates_passed=True, reason="", actor="test")])


def signed_bundle(folder: Path, private_key: Path, workload: str = "redis", slope: float = 10.0) -> Path:
    """A bundle as export writes it, whose proof is made up (tests/serving/conftest.py)."""
    write_bundle(folder, workload=workload, slope=slope)
    sign_folder(folder, private_key)
    return folder


@dataclass
class Running:
    """A service. lines: what it has printed."""

    process: "subprocess.Popen[str]"
    url: str = ""
    lines: list[str] = field(default_factory=list)

    def wait_for(self, holds: Callable[[], Any], seconds: float = 20.0) -> None:
        """Until something holds. Raises AssertionError."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline and self.process.poll() is None, self.lines
            time.sleep(0.02)


@contextmanager
def running(*options: str | Path, command: str = LIGHT) -> Iterator[Running]:
    """`assay serve` at a free port; it is killed where a test leaves it running."""
    process = subprocess.Popen([sys.executable, "-c", command, "serve", "--port", "0", *map(str, options)], cwd=ROOT,
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    made = Running(process)

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            made.lines.append(line.rstrip())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        made.wait_for(lambda: any(" at http" in line for line in made.lines), 60.0)
        made.url = next(line for line in made.lines if " at http" in line).rpartition(" ")[2]
        yield made
    finally:
        process.kill()
        process.wait()
        reader.join(10.0)
        assert process.stdout is not None
        process.stdout.close()
