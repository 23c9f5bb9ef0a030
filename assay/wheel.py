"""How the wheel is built (`pip wheel .`, `pip install .`, `pipx install .`): all packages go below the name `assay`.

Setuptools calls this instead of its own build_py (pyproject.toml). An editable install, and with it every type checker,
sees the packages where they are in the clone.
"""

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

# What commands read that lies in no package: the mlflow.yaml that `assay init` writes, the telemetry that a run takes
# where none is named, the bundles of `assay demo` and `--generic`.
DATA = ("mlflow.yaml", "data/base", "data/autoscaling", "data/loads", "data/demo", "data/generic")


class BuildBelowOneName(build_py):
    """Builds `assay/packages/<every other package>` and the data beside them, and `assay/__main__.py` on top."""

    build_lib: str

    def run(self) -> None:
        """See `setuptools.Command`."""
        if self.editable_mode:
            super().run()
            return
        whole = Path(self.build_lib)
        shutil.rmtree(whole, ignore_errors=True)  # what an earlier build left would be packed too
        packages = whole / "assay" / "packages"
        self.build_lib = str(packages)
        super().run()
        for name in ("__init__.py", "__main__.py"):
            (packages / "assay" / name).replace(packages.parent / name)
        shutil.rmtree(packages / "assay")
        for name in DATA:
            copy = shutil.copytree if Path(name).is_dir() else shutil.copy2
            (packages / name).parent.mkdir(exist_ok=True)
            copy(name, packages / name)
