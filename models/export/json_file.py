"""JSON files that appear whole: what steps leave for each other and what ships in a bundle.

A file of its own, so that a step that writes a few names need not load what writes a network.
"""

import json
from pathlib import Path
from typing import Any

from feature_store.whole_files import write_file


def write_json(path: Path, value: Any) -> None:
    """Writes JSON whole: a reader never sees a part."""
    write_file(path, json.dumps(value, indent=1, allow_nan=True) + "\n")
