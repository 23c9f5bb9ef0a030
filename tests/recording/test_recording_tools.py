"""A missing program is named with its Debian package."""

import re
import subprocess
from pathlib import Path

import pytest

from feature_store.errors import MissingToolError
from recording import tools
from recording.tools import PACKAGES, require_tools
from recording.workloads.catalogue import WORKLOADS

INSTALLER = Path(__file__).parents[2] / "deploy" / "install-debian-packages.sh"


def test_a_missing_program_names_its_package_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "SEARCH_PATH", "/nowhere")
    with pytest.raises(MissingToolError) as caught:
        require_tools(["groonga"])
    assert "apt-get install groonga-bin" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["--chekc"], 2), (["--check", "now"], 2)])
def test_the_installer_installs_nothing_where_it_is_asked_otherwise(arguments: list[str], status: int) -> None:
    done = subprocess.run(["bash", INSTALLER, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert "--check" in (done.stderr if status else done.stdout) and "installed" not in done.stdout


def test_every_tool_of_a_workload_has_a_package_that_the_installer_installs() -> None:
    installed = set(re.findall(r"[\w-]+:([\w-]+)", INSTALLER.read_text()))
    for workload in WORKLOADS.values():
        assert set(workload.tools) <= PACKAGES.keys()
    assert set(PACKAGES.values()) <= installed
