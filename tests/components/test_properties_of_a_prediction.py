"""A predictor's task may demand more than directions: limits, points, conditions; all of it is proved and ships."""

import json
from pathlib import Path

import pytest
import yaml

from tests.components.steps import IGNORED_WARNING, prepare, project
from tests.e2e import tiny

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

PROPERTIES = [
    {"monotone": {"features": ["psi_cpu_some"], "direction": "increasing"}},
    {"monotone": {"features": ["psi_io_some"], "direction": "increasing", "when": {"psi_cpu_some": [0.1, 0.4]}}},
    {"range": {"output": "latency_ms", "minimum": -100.0, "maximum": 1000.0}},
    {"range": {"output": "latency_ms", "maximum": 500.0, "when": {"psi_cpu_some": [0.1, 0.2], "connections": [1, 4]}}},
    {"robust": {"points": [{"psi_cpu_some": 0.3, "psi_io_some": 0.3, "connections": 4.0}],
                "radius": {"psi_cpu_some": 0.01}, "change": 50.0}}]


def test_every_property_of_a_task_is_proved_in_the_pipeline_and_stands_in_the_bundle(tmp_path: Path) -> None:
    task = tiny.task(("redis",))
    task["workloads"]["redis"]["specification"] = {"properties": PROPERTIES}
    with project(tmp_path):
        steps = prepare(tmp_path, tiny.telemetry(("redis",)), task)
        steps.train()
        assert steps.gate()
        assert steps.register()["redis"]["alias"] == "champion"
    bundle = steps.folder / "gated" / "redis"
    shipped = yaml.safe_load((bundle / "specification.yaml").read_text())["properties"]
    assert [next(iter(entry)) for entry in shipped] == ["monotone", "monotone", "range", "range", "robust", "range"]
    assert shipped[5] == {"range": {"output": "latency_ms", "minimum": 0.001}}, "what a latency can be is always proved"
    assert shipped[3]["range"]["when"] == {"psi_cpu_some": [0.1, 0.2], "connections": [1.0, 4.0]}
    statement = json.loads((bundle / "contract.json").read_text())["specification"]["statement"]
    for text in ("increasing in psi_cpu_some", "where psi_cpu_some is 0.1 to 0.4", "at most 1000", "at most 500"):
        assert text in statement
