"""Carries out a Dockerfile's COPY and RUN steps in a folder and a virtual environment, where no image can be built."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from deploy.assay_serving.build import ROOT


def instructions(path: Path) -> Iterator[tuple[str, str]]:
    """Name and arguments of each, without comments; continued lines are one."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, arguments = line.partition(" ")
        yield name, arguments


def carry_out(path: Path, folder: Path, programs: Path, more: Path = ROOT) -> None:
    """COPY into `folder`, the image's /app; RUN there, with `programs` first on the path.

    Args:
        more: a second context, for what is built.
    """
    ignored = (ROOT / ".dockerignore").read_text().split()
    for name, arguments in instructions(path):
        if name == "COPY":
            *sources, target = arguments.split()
            for source in sources:
                assert Path(source).parts[0] not in ignored, f"{source} is not sent to the builder (.dockerignore)"
                found = next(place / source for place in (more, ROOT) if (place / source).exists())
                into = folder / target / found.name if target == "./" else folder / target
                if found.is_dir():
                    shutil.copytree(found, into, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copyfile(found, into)
        elif name == "RUN":
            run(["sh", "-c", arguments], folder, programs)


def environment(folder: Path, with_ours: bool) -> Path:
    """Programs of a new virtual environment; with_ours: it sees what is installed here."""
    run([sys.executable, "-m", "venv", str(folder)], folder.parent, Path(sys.executable).parent)
    if with_ours:
        (site,) = folder.glob("lib/python*/site-packages")
        # a path in a .pth file is only looked in: the project's own .pth file there is not read
        (site / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def run(command: list[str], folder: Path, programs: Path) -> str:
    """What it prints; nothing in its environment leads to the sources."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ASSAY"))}
    environment |= {"PATH": f"{programs}:{environment['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
