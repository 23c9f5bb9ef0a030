"""SIGKILL at every point of a controller's life: the next start gives back exactly what was found."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.tiny import ROOT
from tests.serving.actuators.control_group.groups import MIB, PARENT, Tree


def killed_at_each_point(tree: Tree, state: Path) -> dict[str, Any]:
    limits = {limit: "130000 50000" if limit == "cpu" else str(250 * MIB) for limit in tree.folders}
    tree.set(**limits)
    program = "tests.serving.actuators.control_group.kill_at_each_point"
    done = subprocess.run([sys.executable, "-m", program, str(tree.root), PARENT, str(state), json.dumps(limits)],
                          cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_plain_files(tree: Tree, tmp_path: Path) -> None:
    found = killed_at_each_point(tree, tmp_path / "state")
    assert found["wrong"] == [] and found["exit"] == 0
    assert found["points"] > 50 and found["differed"] > 20, "it was killed while it acted"


def test_this_hosts_control_groups(real: Tree, tmp_path: Path) -> None:
    found = killed_at_each_point(real, tmp_path / "state")
    assert found["wrong"] == [] and found["exit"] == 0
    assert found["points"] > 50 and found["differed"] > 20
