"""Builds the wheel `assay-serving` from the project's own sources: no second copy of any of them is kept.

    python -m deploy.assay_serving.build [--output dist]
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.assay_serving.closure import Closure, Sources, normalised

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_BESIDE = ("LICENSE", "docs/controllers.md")
_NAME_ENDS = " <>=!~;["  # what may follow a distribution's name in a requirement


def description() -> Mapping[str, Any]:
    """The wheel's pyproject.toml."""
    return tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))


def name_of(requirement: str) -> str:
    """Normalised name of a requirement's distribution."""
    end = min((requirement.index(sign) for sign in _NAME_ENDS if sign in requirement), default=len(requirement))
    return normalised(requirement[:end])


def light_closure() -> Closure:
    """The modules of the wheel."""
    project = description()["project"]
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    return Sources(ROOT, frozenset(map(name_of, [*project["dependencies"], *extras]))).closure()


def build_wheel(output: Path) -> Path:
    """Builds it with pip.

    Returns:
        The wheel's file in `output`.

    Raises:
        ClosureError: a module needs what the wheel's environment does not have.
        subprocess.CalledProcessError: pip could not build it.
    """
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="assay-serving-") as temporary:
        folder = Path(temporary)
        for path in (*light_closure().modules.values(), HERE / "pyproject.toml", *(ROOT / name for name in _BESIDE)):
            inside = path.relative_to(ROOT) if path.suffix == ".py" else Path(path.name)
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / inside)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--wheel-dir", str(folder / "built"), str(folder)]
        subprocess.run(command, check=True)
        made = next((folder / "built").glob("*.whl"))
        return Path(shutil.copy(made, output / made.name))


def main(arguments: Sequence[str] | None = None) -> None:
    """Says what it built."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder; default: dist")
    wheel = build_wheel(parser.parse_args(arguments).output)
    print(f"{wheel.name}: {len(light_closure().modules)} modules, {wheel.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
