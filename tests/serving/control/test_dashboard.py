"""Dashboard and alert rules ask for metrics, and labels, that a controller has; Prometheus takes their queries."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from serving.control.control_step import ControlStep
from serving.control.metrics import Metrics
from serving.control.parts import Model
from serving.control.shield import Change

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy/control-alerts.yaml"
VARIABLES = {"$__rate_interval": "1m", "$task": "autoscaling", "$workload": "nginx", "$control": "target_replicas"}
SELECTED = re.compile(r"(assay_control_\w+)(?:\{([^}]*)\})?")
TARGET = {"job", "namespace", "app_kubernetes_io_name"}  # of Prometheus and pod-monitor.yaml
GROUPED = re.compile(r"by \(([^)]*)\)")


def _exposed() -> dict[str, set[str]]:
    """Metric -> its labels, after a step with one of everything."""
    metrics = Metrics("autoscaling", "nginx", lambda: Model(None, "", "abc"), lambda: 0.0)
    metrics.count(ControlStep(0, "now", "policy", "", "abc", {}, ("p99_ms is missing",), ("rate_rps",), None,
                              (Change("target_replicas", "rate", 9.0, 4.0),), {"target_replicas": 4.0},
                              {"target_replicas": 4.0}, took_s={"observe": 0.1}, strange=("rate_rps",)))
    exposed: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            exposed.setdefault(sample.name, set()).update(sample.labels)
    return exposed


def _dashboard():
    return json.loads((ROOT / "deploy/control-dashboard.json").read_text())


def _queries() -> list[str]:
    rules = [rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in _dashboard()["panels"] for target in panel["targets"]]
    return [*rules, *panels]


def _filled(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def test_every_metric_and_label_that_is_asked_for_is_exported():
    exposed = _exposed()
    variables = [one["definition"] for one in _dashboard()["templating"]["list"] if one["type"] == "query"]
    for query in [*_queries(), *variables]:
        found = SELECTED.findall(query)
        assert found, query
        grouped = {label.strip() for labels in GROUPED.findall(query) for label in labels.split(",")}
        for name, labels in found:
            assert name in exposed, query
            asked = {label.partition("=")[0].rstrip("!~ ") for label in labels.split(",") if label} | grouped
            assert asked <= exposed[name] | TARGET, query


def test_every_metric_of_a_controller_is_on_the_dashboard():
    asked = {name for panel in _dashboard()["panels"] for target in panel["targets"]
             for name, _ in SELECTED.findall(target["expr"])}
    exposed = {name for name in _exposed() if not name.endswith(("_created", "_count", "_sum"))}
    assert asked == exposed


def test_panels_do_not_overlap_and_have_names_of_their_own():
    cells = [(x, y) for panel in _dashboard()["panels"] for place in [panel["gridPos"]]
             for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["title"] for panel in _dashboard()["panels"]}) == len(_dashboard()["panels"])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs the Debian package prometheus (make debian)")
def test_prometheus_takes_every_query(tmp_path):
    rules = [{"record": f"asked:{number}", "expr": _filled(query)} for number, query in enumerate(_queries())]
    assert "$" not in "".join(rule["expr"] for rule in rules)
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": rules}]}))
    checked = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout
    path.write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": [{"record": "a:b", "expr": "sum by ("}]}]}))
    assert subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True).returncode != 0
