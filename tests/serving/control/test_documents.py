"""What the documents say of a controller holds: its file is read, its metrics and alerts are there."""

import re
import shlex
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from models.tasks.task import load_task
from pipelines.controller_command_line import make_parser
from serving.actuators.cgroup import CgroupTarget
from serving.control.controller_file import read_controller_file
from serving.control.metrics import ALERTED_REASONS, Metrics
from serving.control.parts import Model
from systems.autoscaling.observer import AutoscalingObserver

ROOT = Path(__file__).parents[3]
PAGE, ALERTS = ROOT / "docs/reference/control.md", ROOT / "deploy/control-alerts.yaml"


def _names() -> set[str]:
    """All metrics of a controller."""
    metrics = Metrics("autoscaling", "nginx", lambda: Model(None, "", "abc"), lambda: 0.0)
    return {name for family in metrics.registry.collect()
            for name in (f"{family.name}_total" if family.type == "counter" else family.name,)}


def test_the_file_on_the_page_is_one(tmp_path):
    (tmp_path / "controller.yaml").write_text(re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    written = read_controller_file(tmp_path / "controller.yaml")
    written.require_all(AutoscalingObserver.measured)
    assert written.signals["p99_ms"].fresh_s == 45.0
    assert [one.name for one in written.budgets] == ["cores"]


def test_the_part_of_the_kubernetes_page_is_one(tmp_path):
    part = re.search(r"```yaml\n(.*?)```", (ROOT / "docs/reference/kubernetes-actuator.md").read_text(), re.DOTALL)[1]
    (tmp_path / "controller.yaml").write_text("prometheus: http://127.0.0.1:9090\nsignals: {}\n" + part)
    target = read_controller_file(tmp_path / "controller.yaml").actuators["kubernetes"]
    assert (target.deployment, target.lease_s, target.controls) == (
        "web", 45, ("target_replicas", "target_cpu_limit_cores"))


def test_every_key_of_a_control_group_is_on_the_page():
    written = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    assert set(written["cgroup"]) == set(CgroupTarget.__dataclass_fields__)


def _controllers(page):
    return re.findall(r"^ *assay (control (?!.*--generic).*)$", page.read_text().replace("\\\n", " "), re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in (ROOT / "docs/controllers.md", *sorted(PAGE.parent.glob("*.md")))
                                  if _controllers(page)], ids=lambda page: page.stem)
def test_controllers_on_a_page_know_their_task_and_have_a_folder_each(page):
    """Of workloads that a predictor may have, too, the task is named; two of one task and workload share no folder."""
    lines = _controllers(page)
    given = [make_parser().parse_args(shlex.split(line, comments=True)) for line in lines]
    assert given
    for one in given:
        assert one.task or one.bundle or one.workload not in load_task("performance").workloads, one
    for one, other in combinations(given, 2):
        assert (one.task, one.workload, one.folder) != (other.task, other.workload, other.folder)


def test_every_metric_is_on_the_page():
    page = PAGE.read_text()
    missing = [name for name in _names() if name not in page and name.removeprefix("assay_control") not in page]
    assert missing == []


def test_alerts_ask_for_metrics_that_there_are():
    asked = set(re.findall(r"assay_control_\w+", ALERTS.read_text()))
    assert asked <= _names()
    assert len(yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]) == 8


def test_the_alert_of_the_shield_is_of_what_begins_at_0():
    """To Prometheus the first sample of a counter is no increase."""
    (asked,) = re.findall(r'shield_changes_total{actor="policy",reason=~"([^"]+)"}', ALERTS.read_text())
    assert tuple(asked.split("|")) == ALERTED_REASONS


needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None,
                                    reason="needs the Debian package prometheus (make debian)")


@needs_promtool
def test_alerts_are_rules_of_prometheus():
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize(("alert", "at", "values", "fires"), [
    ("AssayControlSilent", "1h", {'last_step_time_seconds{C="web",pod="a"}': "0+60x10",
                                  'interval_seconds{C="web",pod="a"}': "15x10",
                                  'last_step_time_seconds{C="web",pod="b"}': "_x10 660+60x60",
                                  'interval_seconds{C="web",pod="b"}': "_x10 15x60"}, []),
    ("AssayControlSilent", "26h", {'last_step_time_seconds{C="web",pod="a"}': "0+60x10",
                                   'interval_seconds{C="web",pod="a"}': "15x10",
                                   'last_step_time_seconds{C="api",pod="b"}': "0+60x1600",
                                   'interval_seconds{C="api",pod="b"}': "15x1600"}, ["web"]),
    ("AssayControlSilent", "50m", {'last_step_time_seconds{C="web",pod="a"}': "0x4 300x4 600x4 900x60",
                                   'interval_seconds{C="web",pod="a"}': "300x80"}, ["web"]),
    ("AssayControlSilent", "19m", {'last_step_time_seconds{C="web",pod="a"}': "0x4 300x4 600x4 900x60",
                                   'interval_seconds{C="web",pod="a"}': "300x80"}, []),
    ("AssayControlShielded", "1h", {'shield_changes_total{C="web",actor="policy",reason="rate"}': "0x50 1x9"}, ["web"]),
    ("AssayControlShielded", "1h", {'shield_changes_total{C="web",actor="policy",reason="missed"}': "0x50 1"}, ["web"]),
    ("AssayControlShielded", "1h", {'shield_changes_total{C="web",actor="policy",reason="budget"}': "0x50 1x9"}, []),
    ("AssayControlShielded", "1h", {'shield_changes_total{C="web",actor="fallback",reason="rate"}': "0x50 1x9"}, []),
], ids=["a replaced pod", "dead for a day", "dead, of five minutes", "alive, of five minutes",
        "the first change of a proved policy", "what it takes away while the objective is missed",
        "an operator's budget", "of its fallback"])
def test_what_fires(alert, at, values, fires, tmp_path):
    label = "app_kubernetes_io_name"
    series = [{"series": "assay_control_" + name.replace("{C", '{task="autoscaling",workload="nginx",' + label),
               "values": text} for name, text in values.items()]
    asked = {"expr": f'count by ({label}) (ALERTS{{alertname="{alert}",alertstate="firing"}})', "eval_time": at,
             "exp_samples": [{"labels": f'{{{label}="{name}"}}', "value": 1} for name in fires]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({
        "rule_files": [str(ALERTS)],
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}]}))
    done = subprocess.run(["promtool", "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
