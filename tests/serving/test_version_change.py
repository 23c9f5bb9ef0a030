"""What a new version promises otherwise than the champion, as the report shows it."""

from pathlib import Path
from typing import Any

import yaml

from serving.bundle import open_bundle
from serving.version_change import changes
from tests.serving.conftest import promised


def test_a_version_that_promises_the_same_changes_nothing(bundle: Path) -> None:
    champion = open_bundle(bundle)
    found = changes(champion.promise, champion)
    assert found["weaker"] == found["added"] == found["box"] == []
    assert found["data_version"] == champion.contract.data_version
    assert found["gates"] == {gate.name: [gate.comparison, gate.threshold] for gate in champion.gates.gates}


def test_a_smaller_box_is_weaker_and_another_box(bundle: Path) -> None:
    def narrow(contract: dict[str, Any]) -> None:
        contract["inputs"][0]["maximum"] = 0.5

    found = changes(promised(narrow), open_bundle(bundle))
    assert found["box"] == ["psi_cpu_some 0 to 0.5 share, the champion's 0 to 0.6"]
    assert any(line.startswith("box of psi_cpu_some is 0 to 0.5") for line in found["weaker"])


def test_a_property_that_is_new_is_added_and_weakens_nothing(bundle: Path) -> None:
    champion = open_bundle(bundle)
    bounded = {"range": {"output": "latency_ms", "minimum": 0.0, "maximum": 100.0}}
    new = promised(properties=[*yaml.safe_load(champion.files["specification.yaml"])["properties"], bounded])
    assert changes(new, champion)["added"] == ["latency_ms is at least 0 and at most 100"]
