"""The generic policy beside the governors, on services that nobody was tuned on (control/generic_policies.py).

    python -m benchmarks cpu-frequency-policies [--seeds 3]
"""

import argparse

from benchmarks.control.generic_policies import add_seeds, measure, output_of

OUTPUT = output_of("cpu_frequency")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    add_seeds(parser)


def run(options: argparse.Namespace) -> None:
    """See benchmarks/harness/runner.py."""
    measure("cpu_frequency", options)
