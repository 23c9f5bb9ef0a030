"""The import contracts of pyproject.toml hold: who may import what."""

import subprocess
import sys
from pathlib import Path

from tests.e2e.tiny import ROOT


def test_import_linter_finds_no_broken_contract() -> None:
    done = subprocess.run([Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert " 0 broken." in done.stdout
