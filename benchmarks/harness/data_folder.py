"""The folder of public data sets, which are no part of this repository: an option of several benchmarks."""

import argparse
import os
from pathlib import Path

from feature_store.errors import InputError

VARIABLE = "ASSAY_DATA"
MISSING = f"folder of public data sets must be given, got none; set ${VARIABLE} or name it with"


def add_data_folder(parser: argparse.ArgumentParser, option: str = "--data-folder") -> None:
    """`option` FOLDER, by default what $ASSAY_DATA names; without either the value is None."""
    named = os.environ.get(VARIABLE)
    parser.add_argument(option, type=Path, default=Path(named) if named else None, metavar="FOLDER",
                        help=f"folder of public data sets (examples/*/README.md: where they come from); default: "
                             f"${VARIABLE}")


def required(folder: Path | None, option: str = "--data-folder") -> Path:
    """The folder. Raises InputError where none was given."""
    if folder is None:
        raise InputError(f"{MISSING} {option} (examples/*/README.md: where they come from)")
    return folder
