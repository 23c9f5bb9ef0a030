"""A way of a benchmark in a process of its own, by this interpreter or by one that has Stable-Baselines3."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.isolation import ROOT
from benchmarks.harness.machine import without_paths


def add_peers_python(parser: argparse.ArgumentParser) -> None:
    """Which interpreter has it."""
    parser.add_argument("--peers-python", type=Path, default=Path(os.environ.get("PEERS_PYTHON", sys.executable)),
                        help="interpreter that has Stable-Baselines3; default: the variable PEERS_PYTHON, or this one")


def measured_by(python: Path, module: str, arguments: Sequence[str], key: str) -> dict[str, Any]:
    """{key: the JSON of the last line that the module prints}, or {"missing": why there is none}."""
    try:
        done = subprocess.run([python, "-m", module, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError as error:
        return {"missing": without_paths(str(error))}
    if done.returncode:
        return {"missing": without_paths(done.stderr.strip().split("\n")[-1]) or f"ended with code {done.returncode}"}
    return {key: json.loads(done.stdout.strip().split("\n")[-1])}
