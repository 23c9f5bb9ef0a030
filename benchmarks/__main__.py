"""Runs a benchmark by its name.

    python -m benchmarks --list
    python -m benchmarks NAME --help
    python -m benchmarks NAME [options]

All are resumable: what is in the result file and was made by the same code is not made again. `make tables` puts the
results into the documents.
"""

import argparse
import ast
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.harness.runner import run_benchmark
from benchmarks.harness.systems import systems
from feature_store.errors import nearest

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS: Mapping[str, str] = {
    "pipeline": "benchmarks.pipeline.speed",
    "performance": "benchmarks.learning.performance",
    "stacked-training": "benchmarks.learning.stacked_training",
    "adaptation-accuracy": "benchmarks.adaptation.accuracy",
    "adaptation-cost": "benchmarks.adaptation.cost",
    "adaptation-metrics": "benchmarks.adaptation.metrics",
    "adaptation-scale": "benchmarks.adaptation.scale",
    "adaptation-search": "benchmarks.adaptation.search",
    "sizing": "benchmarks.adaptation.sizing",
    "control-runs": "benchmarks.control.default_runs",
    "control-soak": "benchmarks.control.soak",
    "verification": "benchmarks.verification.published",
    "verification-campaign": "benchmarks.verification.campaign",
    "verification-forests": "benchmarks.verification.forests",
    "execution-rounding": "benchmarks.verification.execution_rounding",
    "certificate-mutants": "benchmarks.verification.mutants",
    "false-promotion": "benchmarks.gates.false_promotion",
    "later-runs": "benchmarks.gates.later_runs",
    "monitor": "benchmarks.gates.monitor",
    "code-mutation": "benchmarks.test_quality.code_mutation",
    "light-install": "benchmarks.pipeline.light_install",
    "larger-than-memory": "benchmarks.pipeline.larger_than_memory",
    "serve-predictions": "benchmarks.serving.predictions",
    "tables": "benchmarks.tables",
    **{name: module for found in systems("names") for name, module in found.BENCHMARKS.items()},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The benchmark's exit code; 2 on bad usage, 130 when stopped."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="the benchmarks, each with one line")
    parser.add_argument("name", nargs="?", metavar="NAME", help="of a benchmark")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its own; see NAME --help")
    given = parser.parse_args(arguments)
    if given.list:
        for name, module in BENCHMARKS.items():
            print(f"{name:22} {_first_line(module)}")
        return 0
    if given.name not in BENCHMARKS:
        got = "no name" if given.name is None else f"{given.name!r}; {nearest(given.name, BENCHMARKS)}"
        parser.error(f"expected the name of a benchmark, got {got} (--list shows them)")
    return run_benchmark(given.name, import_module(BENCHMARKS[given.name]), given.options)


def _first_line(module: str) -> str:
    """Of the module's docstring, read and not imported: some import torch."""
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").split("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
