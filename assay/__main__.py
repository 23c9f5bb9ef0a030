"""`assay`, and `python -m assay`: finds the packages, then hands over to `pipelines/command_line.py`.

In a clone they lie beside this one. In the wheel they lie below it, in `assay/packages/`, so that installing Assay puts
one name beside what else is installed, and `models` or `serving` stay a user's own names
(docs/decisions/0016-one-name-in-the-wheel.md). Only this process and those that it starts look there.
"""

import os
import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().with_name("packages")


def main() -> None:
    """Entry point of the installed command."""
    if PACKAGES.is_dir():
        sys.path.insert(0, str(PACKAGES))
        paths = [str(PACKAGES), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # for the processes of a run's steps
    from pipelines.command_line import main as command

    command()


if __name__ == "__main__":
    main()
