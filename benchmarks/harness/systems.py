"""The benchmarks of controlled systems: `systems/<name>/benchmarks/`, found here and named nowhere else."""

from importlib import import_module
from types import ModuleType

from benchmarks.harness.isolation import ROOT


def systems(part: str) -> list[ModuleType]:
    """The module of that name of each system's benchmarks, in alphabetical order of the systems.

    names  BENCHMARKS: name -> module of a benchmark (benchmarks/harness/runner.py)
    shown  TABLES and PLOTS of their results (benchmarks/harness/shown.py)
    """
    return [import_module(f"systems.{path.parents[1].name}.benchmarks.{part}")
            for path in sorted((ROOT / "systems").glob(f"*/benchmarks/{part}.py"))]
