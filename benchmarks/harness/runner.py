"""What all benchmarks share when they start and end: options, errors in one line, being stopped.

A benchmark is a module with
    __doc__              what it measures, printed by --help; its first line by `python -m benchmarks --list`
    OUTPUT               its result file, None where it writes none of its own; --output names another one
    add_options(parser)  its own options
    run(options)         measures; returns an exit code or None, which is 0; may raise AssayError, such as InputError
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from benchmarks.harness.isolation import stop_as_by_keyboard
from feature_store.errors import AssayError


def run_benchmark(name: str, module: ModuleType, arguments: Sequence[str]) -> int:
    """The benchmark's exit code; 2 on bad usage or data, 130 when stopped (SIGINT or SIGTERM)."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=module.__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_options(parser)
    if module.OUTPUT is not None:
        parser.add_argument("--output", type=Path, default=module.OUTPUT,
                            help=f"result file; default: benchmarks/results/{module.OUTPUT.name}")
    options = parser.parse_args(arguments)
    stop_as_by_keyboard()
    try:
        code = module.run(options) or 0
    except AssayError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the result file holds what was finished", file=sys.stderr)
        return 130
    if module.OUTPUT is not None:
        print(f"wrote {options.output.name}", file=sys.stderr)
    return code
