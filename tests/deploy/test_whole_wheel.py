"""The whole project's wheel in an environment of its own: it brings one name, and works from an empty folder.

What the wheel needs is looked for in the environment of the tests (a .pth file), not installed once more.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from models.tasks.task import task_path
from tests.deploy.dockerfile import environment
from tests.e2e import tiny

ROOT = tiny.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKLOAD = "training"
Done = subprocess.CompletedProcess
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, in which an earlier version was built once."""
    folder = tmp_path_factory.mktemp("sources")
    packages = [one.removesuffix("*") for one in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]
    for name in (*packages, "data"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "raw"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "mlflow.yaml"):
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "build" / "lib" / "models").mkdir(parents=True)
    (folder / "build" / "lib" / "models" / "left_over.py").touch()
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--no-build-isolation", "--wheel-dir", "dist", "."], cwd=folder, check=True)
    (made,) = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment in which a user's own `models` was there before."""
    found = environment(tmp_path_factory.mktemp("installed") / "environment", with_ours=True)
    (site,) = found.parent.glob("lib/python*/site-packages")
    (site / "models.py").write_text("OWN = True\n")
    subprocess.run([found / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
                    str(wheel)], check=True)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty, with an empty HOME beside it."""
    place = tmp_path_factory.mktemp("user")
    for name in ("home", "work"):
        (place / name).mkdir()
    return place / "work"


def run(programs: Path, folder: Path, *command: str) -> "Done[str]":
    """Nothing in its environment leads to the sources."""
    return subprocess.run([programs / command[0], *command[1:]], cwd=folder, capture_output=True, text=True,
                          env={"PATH": "/usr/bin:/bin", "HOME": str(folder.parent / "home"),
                               "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")})


def checked(programs: Path, folder: Path, *command: str) -> str:
    done = run(programs, folder, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_installs_one_name_and_a_user_s_own_stay(programs: Path, folder: Path) -> None:
    version = PROJECT["project"]["version"]
    (site,) = programs.parent.glob("lib/python*/site-packages")
    names = {path.name for path in site.iterdir()} - {"__pycache__"}
    assert {name for name in names if not name.startswith(("pip", "setuptools", "_distutils", "distutils", "pkg_r"))} \
        == {"assay", f"assay-{version}.dist-info", "models.py", "installed.pth"}
    assert checked(programs, folder, "python", "-c", "import models; print(models.OWN)") == "True\n"
    assert checked(programs, folder, "assay", "--version") == f"assay {version}\n"
    assert checked(programs, folder, "python", "-m", "assay", "--version") == f"assay {version}\n"


def test_where_there_is_no_mlflow_yaml_each_command_says_so_in_one_line(programs: Path, folder: Path) -> None:
    for command in (("run",), ("history",), ("promote", "-w", "redis")):
        done = run(programs, folder, "assay", *command)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert f"mlflow.yaml must be in the current folder, got none ({folder}); `assay init` writes one" in done.stderr
    assert list(folder.iterdir()) == []


def test_the_main_job_runs_from_an_empty_folder(programs: Path, folder: Path) -> None:
    """One workload of README's, with a small network, on the telemetry that the wheel brings."""
    assert checked(programs, folder, "assay", "init").splitlines() == ["wrote    mlflow.yaml", "next     assay run"]
    written = folder / "mlflow.yaml"
    assert written.read_bytes() == (ROOT / "mlflow.yaml").read_bytes()
    assert WORKLOAD in checked(programs, folder, "assay", "validate")

    task = yaml.safe_load(task_path("performance").read_text())
    task["workloads"] = {WORKLOAD: {**task["workloads"][WORKLOAD], "hidden": [16, 16]}}
    task["training"] = tiny.task()["training"] | {"epochs": 4, "pretrain_epochs": 1}
    tiny.write_yaml(task, folder / "small.yaml")
    configuration = tiny.configuration()  # a network that small would not be accurate enough
    gates = configuration["gates"]["performance"]
    configuration["gates"]["performance"] = {name: gates[name] for name in ("specification", "parity")}
    tiny.write_yaml(configuration, written)
    (entry,) = json.loads(checked(programs, folder, "assay", "run", "--task", "small.yaml", "--json"))["entries"]
    assert (entry["status"], entry["verdict"]) == ("registered", "PROVED")
    assert Path(entry["bundle"]).is_relative_to(folder / ".assay")
    assert "accepted: performance, training" in checked(programs, folder, "assay", "check", entry["bundle"])
    assert "champion" in checked(programs, folder, "assay", "history")
    assert {path.name for path in folder.iterdir()} == {"mlflow.yaml", "small.yaml", ".assay"}
    (packages,) = programs.parent.glob("lib/python*/site-packages/assay/packages")
    assert not (packages / ".assay").exists()


@pytest.mark.parametrize("name", ["demo", "generic/autoscaling"])
def test_bundles_that_ship_are_there_and_check(programs: Path, folder: Path, name: str) -> None:
    (place,) = programs.parent.glob(f"lib/python*/site-packages/assay/packages/data/{name}")
    said = checked(programs, folder, "assay", "check", str(place / "bundle"), "--public-key", str(place / "assay.pub"))
    assert "accepted: autoscaling" in said
