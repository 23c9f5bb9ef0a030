import json
from pathlib import Path

import pytest

from benchmarks.tables import TABLES
from tests.benchmarks.sample_results import performance_results, pipeline_results


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with result files and a README that holds every table."""
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    (results / "pipeline.json").write_text(json.dumps(pipeline_results()))
    (results / "performance.json").write_text(json.dumps(performance_results()))
    marked = [f"## {name}\n\n<!-- table: {name} -->\n<!-- end table -->\n" for name in TABLES]
    (tmp_path / "README.md").write_text("# Project\n\n" + "\n".join(marked) + "\nThe end.\n")
    return tmp_path
