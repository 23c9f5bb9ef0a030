"""Result files: JSON, written whole or not at all, so that a killed benchmark keeps what it had measured."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
PIPELINE_RESULTS = RESULTS / "pipeline.json"
PERFORMANCE_RESULTS = RESULTS / "performance.json"


def read_results(path: Path) -> dict[str, Any] | None:
    """The content of a result file; None where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_results(path: Path, content: dict[str, Any]) -> None:
    """Writes under a temporary name and renames."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)
