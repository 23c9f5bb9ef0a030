"""Writes data/demo: the proved policy for nginx of this benchmark, signed with a key that is thrown away.

    python -m systems.autoscaling.benchmarks.real_servers.demo_bundle [--policies FOLDER] [--output data/demo]
"""

import argparse
import sys
from pathlib import Path

from benchmarks.harness.isolation import ROOT
from benchmarks.harness.shipped_bundle import ship
from feature_store.errors import AssayError, InputError
from systems.autoscaling.benchmarks.real_servers.comparison import POLICIES
from systems.autoscaling.benchmarks.real_servers.policies import trained

WORKLOAD = "nginx"


def write_demo_bundle(policies: Path, output: Path) -> str:
    """Digest of what was written. Raises InputError: there is no promoted policy; RefusedError: it does not check."""
    if not (policies / "proved.json").exists():
        raise InputError(f"policies must be trained first (python -m benchmarks closed-loop), got none in {policies}")
    bundle = trained(policies, "proved", policies).entries[WORKLOAD]["bundle"]
    if not bundle:
        raise InputError(f"policy of {WORKLOAD} must be promoted, got one that was not ({policies})")
    return ship(Path(bundle), output, "python -m benchmarks closed-loop --data-folder FOLDER")


def main(arguments: list[str]) -> int:
    """2 where there is nothing to write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=Path, default=POLICIES)
    parser.add_argument("--output", type=Path, default=ROOT / "data" / "demo")
    options = parser.parse_args(arguments)
    try:
        print(f"wrote {write_demo_bundle(options.policies, options.output)[:12]}")
    except AssayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
