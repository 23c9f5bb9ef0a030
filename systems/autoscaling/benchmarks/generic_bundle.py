"""Writes data/generic/autoscaling: the generic policy of a run, PROVED over all that can be observed, and gated.

    python -m systems.autoscaling.benchmarks.generic_bundle PRETRAINED [--output data/generic/autoscaling]

PRETRAINED is what `pretrain` of `assay run --task autoscaling` wrote: a policy that was trained on applications of all
kinds, with rules that were tuned to the same. Its evidence is how it did on applications that no training saw, each at
its own objective; what its training saw are the training applications, not one service.
"""

import argparse
import hashlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.isolation import ROOT
from benchmarks.harness.shipped_bundle import ship
from feature_store.errors import AssayError
from models.control.contract.systems import environment_of
from models.export.bundle import complete_bundle, write_bundle
from models.export.product import Versions
from models.tasks.control.judging import model_acting
from models.tasks.control.pretraining import load_pretrained
from models.tasks.control.product import policy_product
from models.tasks.control.seen import seen_in_training
from models.tasks.control.task import ControlWorkload
from models.tasks.task import load_task
from pipelines.request import code_version

TASK, WORKLOAD = "autoscaling", "any"
SLO_MS = 100.0  # whoever tries the policy must name another: serving/control/generic.py
OUTPUT = ROOT / "data" / "generic" / TASK


def write_generic_bundle(pretrained: Path, output: Path) -> str:
    """Digest of what was written. Raises RefusedError: it does not pass its gates or is not PROVED."""
    task, environment, start = load_task(TASK), environment_of(TASK), load_pretrained(pretrained)
    task = task.model_copy(update={"workloads": {WORKLOAD: ControlWorkload(settings={"slo_ms": SLO_MS})}})
    versions = Versions(code_version(), hashlib.sha256(pretrained.read_bytes()).hexdigest(), 0)
    product = policy_product(task, WORKLOAD, environment, start.policy, versions, start.rules[task.fallback])
    seen = seen_in_training(task, environment, model_acting(product.model), start.rules)
    held_out = start.training["held_out"]
    with tempfile.TemporaryDirectory() as work:
        made, whole = Path(work) / "made", Path(work) / "whole"
        verdict = write_bundle(made, replace(product, driving={**(product.driving or {}), "seen": seen}))
        complete_bundle(made, whole, {
            "kind": task.kind, "task": TASK, "workload": WORKLOAD, "metrics": held_out["metrics"],
            "case_counts": dict.fromkeys(held_out["metrics"], task.judging.episodes),
            "verdict": {"status": str(verdict.status)}, "reproduce": {}})
        return ship(whole, output, "python -m systems.autoscaling.benchmarks.generic_bundle PRETRAINED",
                    output / "gates.yaml")


def main(arguments: list[str]) -> int:
    """2 where there is nothing to write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pretrained", type=Path)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="with gates.yaml; default: data/generic/...")
    options = parser.parse_args(arguments)
    try:
        print(f"wrote {write_generic_bundle(options.pretrained, options.output)[:12]}")
    except (AssayError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
