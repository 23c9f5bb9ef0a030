"""JSON files that appear whole: what steps leave for each other and what ships in a bundle.

A file of its own, so that a step that writes a few names need not load what writes a network.
"""

import json
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """Writes JSON under a temporary name and renames it: a reader never sees a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(value, indent=1, allow_nan=True) + "\n", encoding="utf-8")
    temporary.replace(path)
