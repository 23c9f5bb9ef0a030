"""The generic policy beside the governors (benchmarks/control/generic_policies.py).

    python -m benchmarks cpu-frequency-policies [--seeds 3]
"""

import argparse

from benchmarks.control.generic_policies import add_options, measure, output_of

__all__ = ["OUTPUT", "add_options", "run"]
OUTPUT = output_of("cpu_frequency")


def run(options: argparse.Namespace) -> None:
    """See benchmarks/harness/runner.py."""
    measure("cpu_frequency", options)
